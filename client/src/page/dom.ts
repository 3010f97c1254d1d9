/** The few DOM helpers of the page. Writes touch the document only when something changes. */

/** The element for `selector` under `root`; the page's own markup guarantees it. */
export function find<E extends Element = HTMLElement>(root: ParentNode, selector: string): E {
  const found = root.querySelector<E>(selector);
  if (found === null) throw new Error(`no ${selector} in the page`);
  return found;
}

/** Returns whether the text has changed. */
export function setText(element: Element, text: string): boolean {
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}

export function setData(element: HTMLElement, name: string, value: string): void {
  if (element.dataset[name] !== value) element.dataset[name] = value;
}

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", text = ""): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

const FLASHES = new WeakMap<Element, Animation>();
let still: MediaQueryList | undefined;

/** A short glow behind a value that changed; none with reduced motion. */
export function flash(element: Element): void {
  FLASHES.get(element)?.cancel();
  still ??= matchMedia("(prefers-reduced-motion: reduce)");
  if (still.matches) return;
  // To the background at that time; computing the style here would cost a layout for each value.
  FLASHES.set(element, element.animate([{ backgroundColor: "var(--glow)" }], { duration: 1_400, easing: "cubic-bezier(.2,.6,.3,1)" }));
}

/**
 * Shows a number with its thousands separated by style only: the text stays a plain number, for copying and searching.
 * Returns whether it changed.
 */
export function setNumber(element: HTMLElement, text: string): boolean {
  if (element.textContent === text) return false;
  const [, head = "", tail = ""] = /^([−-]?\d+?)((?:\d{3})*(?:\.\d+)?)$/.exec(text) ?? [];
  const groups = tail.match(/\d{3}(?:\.\d+)?|\.\d+/g) ?? [];
  if (head === "" || groups.length === 0 || !/^\d{3}/.test(tail)) element.textContent = text;
  else element.replaceChildren(head, ...groups.map((group) => make("span", "group", group)));
  return true;
}
