/** The buttons under a long list: its previous and its next part. */

import { make, setText } from "../dom.ts";
import { count as written } from "../format.ts";
import type { Slice } from "./search.ts";
import { slice } from "./search.ts";

export class Pager {
  readonly #root: HTMLElement;
  readonly #previous: HTMLButtonElement;
  readonly #range = make("p", "page-range quiet");
  readonly #next: HTMLButtonElement;
  readonly #size: number;
  readonly #turned: () => void;
  #index = 0;
  #pages = 1;

  /** Fills `root`, whose data are the labels of the buttons. `turned` is called when the user turns the page. */
  constructor(root: HTMLElement, size: number, turned: () => void) {
    this.#root = root;
    this.#size = size;
    this.#turned = turned;
    this.#previous = this.#button("previous", -1);
    this.#next = this.#button("next", 1);
    root.replaceChildren(this.#previous, this.#range, this.#next);
  }

  #button(name: "previous" | "next", by: number): HTMLButtonElement {
    const button = make("button", `page-${name}`);
    button.type = "button";
    button.ariaLabel = this.#root.dataset[name] ?? "";
    button.addEventListener("click", () => {
      const to = this.#index + by;
      if (to < 0 || to >= this.#pages) return;
      this.#index = to;
      this.#turned();
    });
    return button;
  }

  /** Shows the page with this item next. */
  turnTo(item: number): void {
    this.#index = Math.floor(Math.max(item, 0) / this.#size);
  }

  /** Returns the part to show of so many items, and writes which it is. */
  show(count: number): Slice {
    const shown = slice(count, this.#size, this.#index);
    this.#index = shown.index;
    this.#pages = shown.pages;
    this.#root.hidden = shown.pages === 1;
    setText(this.#range, `${written(shown.from + 1)}–${written(shown.to)} of ${written(count)}`);
    // Not `disabled`: a button that has the focus must not lose it.
    this.#previous.ariaDisabled = String(shown.index === 0);
    this.#next.ariaDisabled = String(shown.index === shown.pages - 1);
    return shown;
  }
}
