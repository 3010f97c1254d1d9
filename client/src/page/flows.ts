/** The flows view: zones by zones, each cell with sign and heat, a grid that arrow keys move through. */

import { find, flash, make, setData, setText } from "./dom.ts";
import { signed, unit as written } from "./format.ts";
import { heat, moveTo, Network } from "./network.ts";
import type { Step } from "./series.ts";
import { stepAt, steps } from "./series.ts";
import { agreed, behind } from "./units.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";
import { zoneName } from "./zones.ts";

/** Below this strongest flow all have two decimals: a whole gigawatt is a lot. */
const SMALL = 10;

/** One direction of a border, by its last dataset. */
interface Flow {
  readonly from: string;
  readonly to: string;
  steps: readonly Step[];
  /** Null while there is no data. */
  unit: string | null;
}

export class FlowsView extends View {
  readonly #table: HTMLTableElement;
  #pairs = "";
  #network = new Network([]);
  #flows: readonly Flow[] = [];
  /** By row and column; the last column is the net position. */
  #cells: (HTMLTableCellElement | null)[][] = [];
  #focused: readonly [number, number] = [0, 0];
  /** Unit of the cells. */
  #unit = "";

  constructor(desk: Desk, root: HTMLElement) {
    super(desk, root);
    this.#table = find<HTMLTableElement>(root, "table");
    this.#table.addEventListener("keydown", (event) => this.#key(event));
    this.#table.addEventListener("focusin", ({ target }) => this.#enter(target as HTMLElement));
    this.#table.addEventListener("pointerover", ({ target }) => this.#explain((target as HTMLElement).closest("td")));
    this.#table.addEventListener("pointerleave", () => this.#explain(null));
  }

  /** Shows the flows between these pairs of zones. */
  list(pairs: readonly [string, string][]): void {
    const wanted = pairs.join(" ");
    this.root.hidden = pairs.length === 0;
    if (wanted === this.#pairs) return;
    this.#pairs = wanted;
    this.group.clear();
    this.forget();
    this.#network = new Network(pairs);
    this.#flows = pairs.map(([from, to]) => {
      const flow: Flow = { from, to, steps: [], unit: null };
      this.group.want(`/flows/${from}/${to}`, (dataset) => {
        flow.steps = dataset.gone ? [] : steps(dataset);
        flow.unit = dataset.gone ? null : dataset.unit;
        this.accepted(dataset, `${from} to ${to}`);
      });
      return flow;
    });
    this.#build();
    this.changed();
  }

  /** Marks row and column of the selected zone. */
  mark(zone: string | null): void {
    for (const head of this.#table.querySelectorAll<HTMLElement>("th[data-zone]")) setData(head, "picked", String(head.dataset.zone === zone));
  }

  #build(): void {
    const { zones } = this.#network;
    const top = make("tr");
    top.append(make("th", "corner"), ...zones.map((zone) => zoneHeader(zone, "col")), make("th", "net", "Net"));
    (top.firstElementChild as HTMLTableCellElement).append(make("span", "sr", "From, to"));
    (top.lastElementChild as HTMLTableCellElement).scope = (top.firstElementChild as HTMLTableCellElement).scope = "col";
    const lines = zones.map((from) => {
      const line = make("tr");
      const cells = [...zones, null].map((to) => this.#cell(from, to));
      line.append(zoneHeader(from, "row"), ...cells);
      return { line, cells: cells.map((cell) => (cell.dataset.from ? cell : null)) };
    });
    this.#cells = lines.map(({ cells }) => cells);
    find(this.#table, "thead").replaceChildren(top);
    find(this.#table, "tbody").replaceChildren(...lines.map(({ line }) => line));
    this.#focused = this.#nearest();
    this.#at(this.#focused)?.setAttribute("tabindex", "0");
  }

  #cell(from: string, to: string | null): HTMLTableCellElement {
    const cell = make("td", to === null ? "net" : "");
    if (to !== null && !this.#network.isBorder(from, to)) {
      cell.className = from === to ? "self" : "none";
      return cell;
    }
    cell.tabIndex = -1;
    cell.dataset.from = from;
    if (to !== null) cell.dataset.to = to;
    cell.dataset.testid = to === null ? "position" : "flow";
    return cell;
  }

  #at([row, column]: readonly [number, number]): HTMLTableCellElement | null {
    return this.#cells[row]?.[column] ?? null;
  }

  /** The first cell that Tab focuses. */
  #nearest(): readonly [number, number] {
    const column = this.#cells[0]?.findIndex((cell) => cell !== null) ?? 0;
    return [0, Math.max(column, 0)];
  }

  /** Values that were known in advance become current. */
  protected override passed(): void {
    this.draw();
  }

  protected draw(): void {
    const units = agreed(this.#flows.flatMap(({ from, to, unit }) => (unit === null ? [] : { name: `${from} to ${to}`, unit })));
    this.leaveOut(units);
    this.about(`From the row to the column${behind(units.unit)}: + is sent, − is received`);
    for (const { from, to, steps, unit } of this.#flows) {
      this.#network.set(from, to, unit === units.unit ? (stepAt(steps, Date.now())?.step.value ?? null) : null);
    }
    const isOther = units.unit !== this.#unit;
    this.#unit = units.unit;
    this.#write(isOther);
  }

  /** `again`: rewrite the cells' labels, because the unit has changed. */
  #write(again: boolean): void {
    const { strongest } = this.#network;
    const digits = strongest > 0 && strongest < SMALL ? 2 : 0;
    for (const cell of this.#cells.flat()) {
      const from = cell?.dataset.from;
      if (!cell || from === undefined) continue;
      const { to } = cell.dataset;
      const value = to === undefined ? this.#network.position(from) : this.#network.net(from, to);
      if (to !== undefined) {
        setData(cell, "heat", String(value === null ? 0 : heat(value, strongest))); // also changes with the strongest flow
        setData(cell, "way", (value ?? 0) < 0 ? "in" : "out");
      }
      const before = cell.textContent;
      const changed = setText(cell, value === null ? "–" : signed(value, digits));
      if (!changed && !again) continue;
      setData(cell, "value", value === null ? "" : String(value));
      cell.ariaLabel = flowWords(from, to ?? null, value, this.#unit, digits);
      if (changed && before && before !== "–") flash(cell);
    }
  }

  #enter(target: HTMLElement): void {
    const row = this.#cells.findIndex((line) => line.includes(target as HTMLTableCellElement));
    const column = this.#cells[row]?.indexOf(target as HTMLTableCellElement) ?? -1;
    if (column < 0) return;
    this.#at(this.#focused)?.setAttribute("tabindex", "-1");
    this.#focused = [row, column];
    target.tabIndex = 0;
    this.#explain(target);
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.metaKey) return;
    const size = [this.#cells.length, this.#cells[0]?.length ?? 0] as const;
    const to = moveTo(event.key, event.ctrlKey, this.#focused, size, (row, column) => this.#cells[row]?.[column] != null);
    if (to === null) return;
    event.preventDefault();
    this.#at(to)?.focus();
  }

  /** The line under the matrix: a cell in words. */
  #explain(cell: HTMLElement | null): void {
    setText(find(this.root, ".pointed"), cell?.ariaLabel ?? "");
  }
}

function zoneHeader(zone: string, scope: "row" | "col"): HTMLElement {
  const head = make("th", "", zone);
  head.scope = scope;
  head.dataset.zone = zone;
  head.title = zoneName(zone);
  return head;
}

/** "Greece sends 412 MW to Bulgaria"; a flow the other way round is named by its own direction. */
export function flowWords(from: string, to: string | null, value: number | null, unit: string, digits = 0): string {
  const [here, there] = [zoneName(from), to === null ? null : zoneName(to)];
  if (value === null) return there === null ? `${here}: no data` : `${here} and ${there}: no data`;
  const amount = [Math.abs(value).toFixed(digits), written(unit)].filter(Boolean).join(" ");
  if (there === null) return value < 0 ? `${here} imports ${amount} net` : `${here} exports ${amount} net`;
  return value < 0 ? `${here} receives ${amount} from ${there}` : `${here} sends ${amount} to ${there}`;
}
