/** The list of zones to select from. */

import { zoneName } from "./zones.ts";

export class ZonePicker {
  readonly #select: HTMLSelectElement;
  #shown = "";

  /** `picked` is called with the zone that the user selects. */
  constructor(select: HTMLSelectElement, picked: (zone: string) => void) {
    this.#select = select;
    select.addEventListener("change", () => select.value && picked(select.value));
  }

  /** `zone` null: the page shows something else, called `name`. The list is written only when it has changed, because it may be open. */
  show(zones: readonly string[], zone: string | null, name: string): void {
    const options = zone === null || zones.includes(zone) ? zones : [zone, ...zones];
    const shown = [zone === null ? name : "", ...options].join("\n");
    if (shown !== this.#shown) {
      this.#shown = shown;
      const other = zone === null ? [new Option(name, "")] : [];
      this.#select.replaceChildren(...other, ...options.map((code) => new Option(zoneName(code), code)));
    }
    const value = zone ?? "";
    if (this.#select.value !== value) this.#select.value = value;
  }
}
