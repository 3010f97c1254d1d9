/** What the page remembers from visit to visit; where the browser forbids that, or has no room, it forgets. */

export function recall(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function remember(name: string, text: string): void {
  try {
    localStorage.setItem(name, text);
  } catch {
    // Forbidden or full: it lasts as long as the page.
  }
}
