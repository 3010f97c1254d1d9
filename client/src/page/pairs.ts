/** A table of zones: what was measured beside what was expected; each row subscribed to its own endpoints and changed in place. */

import type { Dataset } from "../sdk/index.ts";
import { find, make, setData } from "./dom.ts";
import { percent, power, price, signedPrice } from "./format.ts";
import type { Frames } from "./frames.ts";
import { writeNumber, zoneHead } from "./rows.ts";
import type { Step } from "./series.ts";
import { beneath, latest, steps } from "./series.ts";
import { makeSpark, sparkPaths } from "./spark.ts";
import { marketTime } from "./time.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";
import type { Group } from "./watching.ts";
import type { LoadRow } from "./zones.ts";

/** What a table compares. */
export interface Comparison {
  readonly testid: string;
  readonly format: (value: number) => string;
  /** How far a value is from what was expected of it; null where that cannot be said. */
  readonly off: (value: number, expected: number) => number | null;
  readonly formatOff: (off: number) => string;
  /** From where on the difference is worth a colour. */
  readonly notable: number;
}

export const LOADS: Comparison = {
  testid: "load-value",
  format: power,
  off: (value, expected) => (expected === 0 ? null : value / expected - 1),
  formatOff: percent,
  notable: 0.03,
};

export const IMBALANCES: Comparison = {
  testid: "imbalance-value",
  format: price,
  off: (value, expected) => value - expected,
  formatOff: signedPrice,
  notable: 20,
};

/** One row, with its subscriptions. */
class Row {
  readonly element = make("tr");
  readonly row: LoadRow;
  readonly #cells = { actual: make("td", "num"), forecast: make("td", "num forecast"), off: make("td", "num off") };
  readonly #spark = makeSpark();
  readonly #group: Group;
  readonly #comparison: Comparison;
  #version = 0;
  #gone = false;
  #actual: Step[] = [];
  #forecast: Step[] = [];

  constructor(
    group: Group,
    frames: Frames,
    comparison: Comparison,
    row: LoadRow,
    select: ((zone: string) => void) | null,
    accepted: (dataset: Dataset) => void,
  ) {
    this.row = row;
    this.#group = group;
    this.#comparison = comparison;
    this.element.dataset.endpoint = row.actual;
    this.element.dataset.version = "";
    this.#cells.actual.dataset.testid = comparison.testid;
    this.element.append(zoneHead(row.zone ?? row.actual.slice(1), row.zone, select), ...Object.values(this.#cells), make("td", "trend"));
    find(this.element, ".trend").append(this.#spark.element);
    for (const cell of Object.values(this.#cells)) cell.append("–");
    const draw = (): void => this.#draw();
    const take = (keep: (dataset: Dataset) => void) => (dataset: Dataset) => {
      keep(dataset);
      accepted(dataset);
      frames.draw(draw);
    };
    group.want(row.actual, take((dataset) => this.#takeActual(dataset)));
    if (row.forecast) group.want(row.forecast, take((dataset) => (this.#forecast = dataset.gone ? [] : steps(dataset))));
  }

  stop(): void {
    this.#group.drop(this.row.actual);
    if (this.row.forecast) this.#group.drop(this.row.forecast);
    this.element.remove();
  }

  #takeActual(dataset: Dataset): void {
    this.#version = dataset.version;
    this.#gone = dataset.gone;
    if (!dataset.gone) this.#actual = steps(dataset); // a withdrawn series stays in sight, struck through
  }

  #draw(): void {
    const { format, off, formatOff, notable } = this.#comparison;
    setData(this.element, "version", String(this.#version || ""));
    setData(this.element, "gone", String(this.#gone));
    const actual = latest(this.#actual);
    const beside = beneath(this.#forecast, actual?.start ?? Date.now());
    const apart = actual?.value != null && beside?.value != null ? off(actual.value, beside.value) : null;
    writeNumber(this.#cells.actual, actual?.value ?? null, format);
    writeNumber(this.#cells.forecast, beside?.value ?? null, format);
    writeNumber(this.#cells.off, apart, formatOff);
    setData(this.#cells.off, "way", apart === null || Math.abs(apart) < notable ? "near" : apart > 0 ? "over" : "under");
    this.element.title = actual ? `${this.row.actual}, value of ${marketTime(this.row.zone).clock(actual.start)}` : this.row.actual;
    this.#spark.draw(sparkPaths(this.#actual, this.#forecast));
  }
}

export class PairTable extends View {
  readonly #comparison: Comparison;
  readonly #select: (zone: string) => void;
  readonly #rows = new Map<string, Row>();

  /** `select` is called with the zone of a row that somebody picks. */
  constructor(desk: Desk, root: HTMLElement, comparison: Comparison, select: (zone: string) => void) {
    super(desk, root);
    this.#comparison = comparison;
    this.#select = select;
  }

  /** Shows these rows, in this order; rows that stay keep their subscriptions. `priced`: zones that can be picked. */
  list(rows: readonly LoadRow[], priced: ReadonlySet<string>): void {
    const wanted = new Map(rows.map((row) => [row.actual, row]));
    for (const [endpoint, row] of this.#rows) {
      if (wanted.get(endpoint)?.forecast === row.row.forecast) continue;
      row.stop();
      this.#rows.delete(endpoint);
    }
    const body = find(this.root, "tbody");
    rows.forEach((row, index) => {
      let made = this.#rows.get(row.actual);
      if (made === undefined) {
        const select = row.zone && priced.has(row.zone) ? this.#select : null;
        made = new Row(this.group, this.frames, this.#comparison, row, select, (dataset) => this.accepted(dataset));
        this.#rows.set(row.actual, made);
      }
      if (body.children[index] !== made.element) body.insertBefore(made.element, body.children[index] ?? null);
    });
    this.changed();
  }

  /** Marks the row of the zone that the page is about. */
  mark(zone: string | null): void {
    for (const { element, row } of this.#rows.values()) {
      const picked = row.zone !== null && row.zone === zone;
      setData(element, "picked", String(picked));
      find(element, ".zone-name").ariaCurrent = picked ? "true" : null;
    }
  }

  protected draw(): void {
    // The rows draw themselves, each only when it has changed.
  }
}
