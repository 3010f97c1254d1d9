/** A table of zones: its rows follow the catalogue, and those that stay keep their subscriptions. */

import type { Dataset } from "../sdk/index.ts";
import type { Comparison } from "./comparisons.ts";
import { find, setData, setText } from "./dom.ts";
import { nameOf, PairRow } from "./pairrow.ts";
import { agreed, aloud, behind } from "./units.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";
import type { LoadRow } from "./zones.ts";

export class PairTable extends View {
  readonly #comparison: Comparison;
  readonly #select: (zone: string) => void;
  readonly #rows = new Map<string, PairRow>();

  /** `select` is called with the zone of a row that the user selects. */
  constructor(desk: Desk, root: HTMLElement, comparison: Comparison, select: (zone: string) => void) {
    super(desk, root);
    this.#comparison = comparison;
    this.#select = select;
  }

  /** Shows these rows, in this order; rows that stay keep their subscriptions. `priced`: zones that can be selected. */
  list(rows: readonly LoadRow[], priced: ReadonlySet<string>): void {
    const wanted = new Map(rows.map((row) => [row.actual, row]));
    for (const [endpoint, row] of this.#rows) {
      if (wanted.get(endpoint)?.forecast === row.row.forecast) continue;
      row.stop();
      this.dropped(endpoint);
      this.#rows.delete(endpoint);
    }
    const body = find(this.root, "tbody");
    rows.forEach((row, index) => {
      let made = this.#rows.get(row.actual);
      if (made === undefined) {
        const select = row.zone && priced.has(row.zone) ? this.#select : null;
        const accepted = (dataset: Dataset): void => this.accepted(dataset, nameOf(row));
        made = new PairRow(this.group, this.frames, this.#comparison, row, select, accepted, () => this.changed());
        this.#rows.set(row.actual, made);
      }
      if (body.children[index] !== made.element) body.insertBefore(made.element, body.children[index] ?? null);
    });
    this.changed();
  }

  /** Marks the row of the selected zone. */
  mark(zone: string | null): void {
    for (const { element, row } of this.#rows.values()) {
      const picked = row.zone !== null && row.zone === zone;
      setData(element, "picked", String(picked));
      find(element, ".zone-name").ariaCurrent = picked ? "true" : null;
    }
  }

  /** Draws the parts common to all rows; each row redraws itself on changes. */
  protected draw(): void {
    const rows = [...this.#rows.values()];
    const { unit } = agreed(rows.flatMap(({ row, unit }) => (unit === null ? [] : { name: nameOf(row), unit })));
    const { about, caption } = this.#comparison;
    this.about(`${about}${behind(unit)}`);
    setText(find(this.root, "caption"), `${caption}${aloud(unit)}`);
    for (const row of rows) row.say(unit);
    this.leaveOut({ unit: null, odd: rows.flatMap(({ odd }) => odd ?? []) });
  }
}
