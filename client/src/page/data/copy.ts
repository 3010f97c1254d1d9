/** Copies text; pages without TLS on another host than this machine have no clipboard, and copy a selection. */

/** Copies the text of an element. Returns whether that succeeded; otherwise the text is selected, for Ctrl+C. */
export async function copyText(element: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(element.textContent ?? "");
    return true;
  } catch {
    getSelection()?.selectAllChildren(element);
    try {
      return document.execCommand("copy"); // deprecated, and the only way without TLS
    } catch {
      return false;
    }
  }
}
