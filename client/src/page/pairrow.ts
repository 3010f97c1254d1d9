/** One row of a table of zones: measured and expected value, with its own subscriptions, changed in place. */

import type { Dataset } from "../sdk/index.ts";
import type { Comparison } from "./comparisons.ts";
import { find, make, setData, setText } from "./dom.ts";
import { unit as written } from "./format.ts";
import type { Frames } from "./frames.ts";
import { writeNumber, zoneHead } from "./rows.ts";
import type { Step } from "./series.ts";
import { beneath, latest, steps } from "./series.ts";
import { makeSpark, sparkPaths } from "./spark.ts";
import { marketTime } from "./time.ts";
import type { Part } from "./units.ts";
import type { Group } from "./watching.ts";
import type { LoadRow } from "./zones.ts";

/** Name of a row. */
export const nameOf = (row: LoadRow): string => row.zone ?? row.actual.slice(1);

export class PairRow {
  readonly element = make("tr");
  readonly row: LoadRow;
  readonly #cells = { actual: make("td", "num"), forecast: make("td", "num forecast"), off: make("td", "num off") };
  readonly #spark = makeSpark();
  readonly #own = make("span", "own-unit");
  readonly #group: Group;
  readonly #comparison: Comparison;
  #version = 0;
  #gone = false;
  #actual: Step[] = [];
  #forecast: Step[] = [];
  /** Null while there is no data. */
  #unit: string | null = null;
  #forecastUnit: string | null = null;

  /** `accepted` is called for actual values, `changed` for the others. */
  constructor(
    group: Group,
    frames: Frames,
    comparison: Comparison,
    row: LoadRow,
    select: ((zone: string) => void) | null,
    accepted: (dataset: Dataset) => void,
    changed: () => void,
  ) {
    this.row = row;
    this.#group = group;
    this.#comparison = comparison;
    this.element.dataset.endpoint = row.actual;
    this.element.dataset.version = "";
    this.#cells.actual.dataset.testid = comparison.testid;
    this.element.append(zoneHead(nameOf(row), row.zone, select), ...Object.values(this.#cells), make("td", "trend"));
    find(this.element, "th").append(this.#own);
    find(this.element, ".trend").append(this.#spark.element);
    for (const cell of Object.values(this.#cells)) cell.append("–");
    const draw = (): void => this.#draw();
    group.want(row.actual, (dataset) => {
      this.#takeActual(dataset);
      accepted(dataset);
      frames.draw(draw);
    });
    if (row.forecast === null) return;
    group.want(row.forecast, (dataset) => {
      this.#forecast = dataset.gone ? [] : steps(dataset);
      this.#forecastUnit = dataset.gone ? null : dataset.unit;
      changed();
      frames.draw(draw);
    });
  }

  /** Unit of the row; null while there is no data. */
  get unit(): string | null {
    return this.#unit ?? this.#forecastUnit;
  }

  /** The expected value, if it cannot be compared because it has another unit. */
  get odd(): Part | null {
    const fits = this.#unit === null || this.#forecastUnit === null || this.#unit === this.#forecastUnit;
    return fits ? null : { name: `${this.#comparison.beside} of ${nameOf(this.row)}`, unit: this.#forecastUnit ?? "" };
  }

  /** Shows the row's unit where it differs from the table's. */
  say(common: string): void {
    const { unit } = this;
    setText(this.#own, unit === null || unit === common ? "" : ` in ${written(unit) || "no unit"}`);
  }

  stop(): void {
    this.#group.drop(this.row.actual);
    if (this.row.forecast) this.#group.drop(this.row.forecast);
    this.element.remove();
  }

  #takeActual(dataset: Dataset): void {
    this.#version = dataset.version;
    this.#gone = dataset.gone;
    if (dataset.gone) return; // a deleted series stays visible, struck through
    this.#actual = steps(dataset);
    this.#unit = dataset.unit;
  }

  #draw(): void {
    const { format, off, formatOff, notable } = this.#comparison;
    setData(this.element, "version", String(this.#version || ""));
    setData(this.element, "gone", String(this.#gone));
    const actual = latest(this.#actual);
    const forecast = this.odd === null ? this.#forecast : [];
    const beside = beneath(forecast, actual?.start ?? Date.now());
    const apart = actual?.value != null && beside?.value != null ? off(actual.value, beside.value) : null;
    writeNumber(this.#cells.actual, actual?.value ?? null, format);
    writeNumber(this.#cells.forecast, beside?.value ?? null, format);
    writeNumber(this.#cells.off, apart, formatOff);
    setData(this.#cells.off, "way", apart === null || Math.abs(apart) < notable ? "near" : apart > 0 ? "over" : "under");
    this.element.title = actual ? `${this.row.actual}, value of ${marketTime(this.row.zone).clock(actual.start)}` : this.row.actual;
    this.#spark.draw(sparkPaths(this.#actual, forecast));
  }
}
