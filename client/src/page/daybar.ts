/** The row of buttons that lead from day to day, and the same by Page Up and Page Down. */

import type { DayStep } from "./days.ts";
import { neighbours } from "./days.ts";
import { find, setText } from "./dom.ts";
import type { MarketTime } from "./time.ts";

/** The current selection. */
export interface DaysInSight {
  readonly day: string;
  /** The days that have data, in order. */
  readonly days: readonly string[];
  readonly time: MarketTime;
}

const BUTTONS = { previous: "Previous", next: "Next" } as const;

export class DayBar {
  readonly #root: HTMLElement;
  readonly #inSight: () => DaysInSight;
  readonly #pick: (day: string | null) => void;

  /** `pick` is called with the day that the user selects; null is today. `keys`: the element whose key presses count. */
  constructor(root: HTMLElement, keys: HTMLElement, inSight: () => DaysInSight, pick: (day: string | null) => void) {
    this.#root = root;
    this.#inSight = inSight;
    this.#pick = pick;
    for (const name of ["previous", "next"] as const) find(root, `.day-${name}`).addEventListener("click", () => this.#go(name));
    find(root, ".day-today").addEventListener("click", () => pick(null));
    keys.addEventListener("keydown", (event) => {
      const name = { PageUp: "previous", PageDown: "next" }[event.key] as "previous" | "next" | undefined;
      if (name === undefined) return;
      event.preventDefault();
      this.#go(name);
    });
  }

  show(): void {
    const { day, days, time } = this.#inSight();
    setText(find(this.#root, ".day-name"), time.dayName(day));
    const around = neighbours(day, days);
    for (const name of ["previous", "next"] as const) {
      const { day: other, open } = around[name];
      const label = `${BUTTONS[name]} day, ${time.dayName(other, true)}${open ? "" : ": not in the data"}`;
      const button = find(this.#root, `.day-${name}`);
      if (button.ariaLabel !== label) button.ariaLabel = button.title = label;
      if (button.ariaDisabled !== String(!open)) button.ariaDisabled = String(!open);
    }
    find(this.#root, ".day-today").ariaPressed = String(day === time.dayOf(Date.now()));
  }

  /** Announces it to assistive technology. */
  say(text: string): void {
    setText(find(this.#root, ".day-said"), text);
  }

  #go(name: "previous" | "next"): void {
    const { day, days, time } = this.#inSight();
    const to: DayStep = neighbours(day, days)[name];
    if (to.open) this.#pick(to.day === time.dayOf(Date.now()) ? null : to.day);
    else this.say(`No prices for ${time.dayName(to.day, true)}`);
  }
}
