/** A notice: the version of data that is elsewhere, and where. */

import { find, setText } from "../../dom.ts";
import { marketTime } from "../../time.ts";
import type { Body, Shown } from "../body.ts";

export class NoticeBody implements Body {
  readonly time = marketTime(null);
  readonly differences = "";
  readonly #root: HTMLElement;

  constructor(root: HTMLElement) {
    this.#root = root;
  }

  clear(): void {
    // Nothing is kept.
  }

  show({ version: { version, at, value } }: Shown): void {
    const { url } = (value ?? {}) as { url?: unknown };
    const text = typeof url === "string" ? url : "";
    const link = find<HTMLAnchorElement>(this.#root, "a");
    const href = webAddress(text);
    if (href === null) link.removeAttribute("href");
    else if (link.getAttribute("href") !== href) link.href = href;
    setText(link, text || "No URL is configured ([[prefix]] url in diem.toml)");
    setText(find(this.#root, ".notice-version"), String(version));
    setText(find(this.#root, ".notice-time"), `${this.time.fullDate(at)} ${this.time.clockSeconds(at)}`);
  }
}

/** The address for a link: only one of the web, for any other could run. Null for what is none. */
export function webAddress(url: string): string | null {
  try {
    const { href, protocol } = new URL(url || "none:", document.baseURI);
    return /^https?:$/.test(protocol) ? href : null;
  } catch {
    return null;
  }
}
