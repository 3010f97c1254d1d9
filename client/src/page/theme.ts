/** The theme: the system's, unless the user selected light or dark. */

import { find, setText } from "./dom.ts";
import { remember } from "./memory.ts";

const KEY = "diem.theme";
const ORDER = ["auto", "light", "dark"] as const;
type Theme = (typeof ORDER)[number];

/** Connects the toggle; `changed` is called whenever the colours change. */
export function setUpTheme(button: HTMLElement, changed: () => void): void {
  const label = find(button, "span");
  const show = (theme: Theme): void => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    setText(label, theme[0]?.toUpperCase() + theme.slice(1));
    button.setAttribute("aria-label", `Theme: ${theme}`);
    changed();
  };
  let theme = ORDER.find((name) => name === document.documentElement.dataset.theme) ?? "auto";
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length] ?? "auto";
    remember(KEY, theme);
    show(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  show(theme);
}

/** The colours a canvas needs, as the style sheet resolves them now; each is looked up once. */
export function colours(root: HTMLElement): (name: string) => string {
  const read = new Map<string, string>();
  return (name) => {
    let found = read.get(name);
    if (found === undefined) {
      const probe = document.createElement("span");
      probe.hidden = true;
      probe.style.color = `var(${name}, transparent)`;
      root.append(probe);
      read.set(name, (found = getComputedStyle(probe).color));
      probe.remove();
    }
    return found;
  };
}
