/** The buttons under a long list: its previous and its next part. */

import { find, setText } from "../dom.ts";
import { count as written } from "../format.ts";
import type { Slice } from "./search.ts";
import { slice } from "./search.ts";

export class Pager {
  readonly #root: HTMLElement;
  readonly #size: number;
  #index = 0;
  #pages = 1;

  /** `turned` is called when the user turns the page. */
  constructor(root: HTMLElement, size: number, turned: () => void) {
    this.#root = root;
    this.#size = size;
    for (const [name, by] of [["previous", -1], ["next", 1]] as const) {
      find(root, `.page-${name}`).addEventListener("click", () => {
        const to = this.#index + by;
        if (to < 0 || to >= this.#pages) return;
        this.#index = to;
        turned();
      });
    }
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
    setText(find(this.#root, ".page-range"), `${written(shown.from + 1)}–${written(shown.to)} of ${written(count)}`);
    // Not `disabled`: a button that has the focus must not lose it.
    find(this.#root, ".page-previous").ariaDisabled = String(shown.index === 0);
    find(this.#root, ".page-next").ariaDisabled = String(shown.index === shown.pages - 1);
    return shown;
  }
}
