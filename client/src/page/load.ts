/** The load table: one row a zone, each subscribed to its own endpoints and changed in place. */

import type { Dataset, Diem, Subscription } from "../sdk/index.ts";
import { find, flash, make, setData, setNumber, setText } from "./dom.ts";
import { clock, percent, power } from "./format.ts";
import { Freshness } from "./freshness.ts";
import type { Step } from "./series.ts";
import { beneath, latest, steps } from "./series.ts";
import { makeSpark, sparkPaths } from "./spark.ts";
import type { LoadRow } from "./zones.ts";
import { zoneName } from "./zones.ts";

/** One row, with its subscriptions. */
class Row {
  readonly element = make("tr");
  readonly row: LoadRow;
  /** When the newest data of the row was accepted, Unix milliseconds; null before any. */
  acceptedAt: number | null = null;
  readonly #cells = { actual: make("td", "num"), forecast: make("td", "num forecast"), off: make("td", "num off") };
  readonly #spark = makeSpark();
  readonly #stops: Subscription[] = [];
  readonly #changed: () => void;
  #actual: Step[] = [];
  #forecast: Step[] = [];

  constructor(diem: Diem, row: LoadRow, select: ((zone: string) => void) | null, changed: () => void) {
    this.row = row;
    this.#changed = changed;
    this.element.dataset.endpoint = row.actual;
    this.element.dataset.version = "";
    this.#cells.actual.dataset.testid = "load-value";
    this.element.append(this.#head(select), ...Object.values(this.#cells), make("td", "trend"));
    find(this.element, ".trend").append(this.#spark.element);
    for (const cell of Object.values(this.#cells)) cell.append("–");
    this.#stops.push(diem.watch(row.actual, (dataset) => this.#takeActual(dataset), () => setText(this.#cells.actual, "–")));
    if (row.forecast) this.#stops.push(diem.watch(row.forecast, (dataset) => this.#takeForecast(dataset), () => undefined));
  }

  get endpoints(): string[] {
    return this.row.forecast ? [this.row.actual, this.row.forecast] : [this.row.actual];
  }

  stop(): void {
    for (const stop of this.#stops) stop();
    this.element.remove();
  }

  #head(select: ((zone: string) => void) | null): HTMLElement {
    const head = make("th");
    head.scope = "row";
    const { zone, actual } = this.row;
    const label = select && zone ? make("button", "zone-name") : make("span", "zone-name");
    const code = zone ?? actual.slice(1);
    const name = zone ? zoneName(zone) : "";
    label.append(make("b", "", code));
    if (name && name !== code) label.append(" ", make("span", "", name));
    if (select && zone) {
      (label as HTMLButtonElement).type = "button";
      label.title = `Show the price of ${name || code}`;
      label.addEventListener("click", () => select(zone));
    }
    head.append(label);
    return head;
  }

  #takeActual(dataset: Dataset): void {
    this.element.dataset.version = String(dataset.version);
    this.element.dataset.gone = String(dataset.gone);
    if (!dataset.gone) this.#actual = steps(dataset); // a withdrawn series stays in sight, struck through
    this.#accepted(dataset);
  }

  #takeForecast(dataset: Dataset): void {
    this.#forecast = dataset.gone ? [] : steps(dataset);
    this.#accepted(dataset);
  }

  #accepted(dataset: Dataset): void {
    this.acceptedAt = Math.max(this.acceptedAt ?? 0, Date.parse(dataset.time) || dataset.version);
    this.#draw();
    this.#changed();
  }

  #draw(): void {
    const actual = latest(this.#actual);
    const beside = beneath(this.#forecast, actual?.start ?? Date.now());
    const off = actual?.value != null && beside?.value ? actual.value / beside.value - 1 : null;
    this.#write(this.#cells.actual, actual?.value ?? null, power);
    this.#write(this.#cells.forecast, beside?.value ?? null, power);
    this.#write(this.#cells.off, off, percent);
    setData(this.#cells.off, "way", off === null || Math.abs(off) < 0.03 ? "near" : off > 0 ? "over" : "under");
    this.element.title = actual ? `${this.row.actual}, value of ${clock(actual.start)}` : this.row.actual;
    this.#spark.draw(sparkPaths(this.#actual, this.#forecast));
  }

  #write(cell: HTMLElement, value: number | null, format: (value: number) => string): void {
    const empty = cell.textContent === "–";
    setData(cell, "value", value === null ? "" : String(value));
    if (setNumber(cell, value === null ? "–" : format(value)) && !empty) flash(cell);
  }
}

export class LoadTable {
  readonly #diem: Diem;
  readonly #root: HTMLElement;
  readonly #select: (zone: string) => void;
  readonly #freshness: Freshness;
  readonly #rows = new Map<string, Row>();

  /** `select` is called with the zone of a row that somebody picks. */
  constructor(diem: Diem, root: HTMLElement, select: (zone: string) => void) {
    this.#diem = diem;
    this.#root = root;
    this.#select = select;
    this.#freshness = new Freshness(diem, root);
  }

  /** Shows these rows, in this order; rows that stay keep their subscriptions. `priced`: zones that can be picked. */
  show(rows: readonly LoadRow[], priced: ReadonlySet<string>): void {
    const wanted = new Map(rows.map((row) => [row.actual, row]));
    for (const [endpoint, row] of this.#rows) {
      if (wanted.get(endpoint)?.forecast === row.row.forecast) continue;
      row.stop();
      this.#rows.delete(endpoint);
    }
    const body = find(this.#root, "tbody");
    rows.forEach((row, index) => {
      let made = this.#rows.get(row.actual);
      if (made === undefined) {
        const select = row.zone && priced.has(row.zone) ? this.#select : null;
        this.#rows.set(row.actual, (made = new Row(this.#diem, row, select, () => this.tick())));
      }
      if (body.children[index] !== made.element) body.insertBefore(made.element, body.children[index] ?? null);
    });
    this.tick();
  }

  /** Marks the row of the zone whose price is in sight. */
  mark(zone: string | null): void {
    for (const { element, row } of this.#rows.values()) {
      setData(element, "picked", String(row.zone !== null && row.zone === zone));
      find(element, ".zone-name").ariaCurrent = row.zone === zone ? "true" : null;
    }
  }

  /** Says why there are no rows; "" = there are. */
  explain(text: string): void {
    const empty = find(this.#root, ".empty");
    setText(empty, text);
    empty.hidden = text === "";
  }

  /** Time has passed. */
  tick(): void {
    const rows = [...this.#rows.values()];
    const accepted = rows.flatMap(({ acceptedAt }) => acceptedAt ?? []);
    const endpoints = rows.flatMap((row) => row.endpoints);
    this.#freshness.show(endpoints, accepted.length > 0 ? Math.max(...accepted) : null, "");
  }
}
