/** Links to the views move the window and the focus; the hash stays with zone and day. */

export function setUpLinks(root: ParentNode): void {
  for (const link of root.querySelectorAll<HTMLAnchorElement>('a[href^="#"]')) {
    link.addEventListener("click", (event) => {
      const target = document.getElementById(link.hash.slice(1));
      if (target === null) return;
      event.preventDefault();
      target.scrollIntoView(); // smooth where the style sheet says so
      target.focus({ preventScroll: true });
    });
  }
}
