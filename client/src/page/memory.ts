/** State that the page stores from visit to visit; without it where the browser forbids that, or has no room. */

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
