/** The generation view: the selected zone's power by type of plant, hour by hour, as layers and as a table. */

import type uPlot from "uplot";
import { find, make, setNumber, setText } from "./dom.ts";
import { dayInterval, interval, power, unit as written } from "./format.ts";
import { Plot, stepped } from "./plot.ts";
import { Unfolded, writeNumber } from "./rows.ts";
import type { Step } from "./series.ts";
import { steps } from "./series.ts";
import type { Slice } from "./stack.ts";
import { complete, known, layered, layers, slices, totals } from "./stack.ts";
import { axisNumber } from "./strokes.ts";
import { marketTime } from "./time.ts";
import type { MarketTime } from "./time.ts";
import type { Agreed } from "./units.ts";
import { agreed, aloud, behind } from "./units.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";

const colourOf = (kind: string): string => `--mix-${known(kind) ? kind : "other"}`;
const title = (kind: string): string => kind.charAt(0).toUpperCase() + kind.slice(1);
const whole = (share: number | null): string => (share === null ? "–" : `${Math.round(share * 100)} %`);

export class MixView extends View {
  readonly #plot: Plot;
  readonly #table: Unfolded;
  #name = "";
  #time = marketTime(null);
  #endpoints = "";
  #kinds: string[] = [];
  /** The types that the chart has series for. */
  #drawn: string[] = [];
  #series = new Map<string, Step[]>();
  /** By type, of those that have data. */
  readonly #units = new Map<string, string>();
  #agreed: Agreed = { unit: "", odd: [] };
  #slices: Slice[] = [];
  #pointed: Slice | null = null;
  /** The cells of each type: its power, its share. */
  #rows = new Map<string, [HTMLElement, HTMLElement]>();

  constructor(desk: Desk, root: HTMLElement) {
    super(desk, root);
    this.#plot = new Plot(find(root, ".chart"), {
      pointed: (span) => {
        this.#pointed = span as Slice | null;
        this.#showShares(false);
      },
      describe: (span) => this.#words((span as Slice | null) ?? this.#slices.at(-1) ?? null),
      look: (colour) => ({
        scales: { y: { range: (_plot, _low, high) => [0, Math.max((high ?? 0) * 1.06, 10)] } },
        axes: [{ size: 54, values: (_plot, splits) => splits.map(axisNumber) }],
        series: [...this.#drawn].reverse().map((kind) => ({
          stroke: colour("--panel"), width: 1, fill: colour(colourOf(kind)), points: { show: false },
          paths: stepped,
        })),
      }),
    });
    this.#table = new Unfolded(find(root, "details"), () => ({
      head: ["Time", ...this.#layersDown.map(title), `Total${behind(this.#agreed.unit)}`],
      body: this.#slices.map((slice) => [
        dayInterval(slice.start, slice.end, this.#time),
        ...this.#layersDown.map((kind) => valueText(slice, kind)),
        power(totals(slice).total),
      ]),
    }));
  }

  /** Shows a zone; `endpoints` by type of plant. */
  select(zone: string | null, name: string, endpoints: ReadonlyMap<string, string>): void {
    const wanted = [zone, ...endpoints.values()].join();
    if (wanted === this.#endpoints) return;
    this.#endpoints = wanted;
    this.#name = name;
    this.#time = marketTime(zone);
    this.#kinds = layered(endpoints.keys());
    this.#series = new Map(this.#kinds.map((kind) => [kind, []]));
    this.#units.clear();
    this.#pointed = null;
    this.forget();
    this.group.clear();
    for (const [kind, endpoint] of endpoints) {
      this.group.want(endpoint, (dataset) => {
        this.#series.set(kind, dataset.gone ? [] : steps(dataset));
        if (dataset.gone) this.#units.delete(kind);
        else this.#units.set(kind, dataset.unit);
        this.accepted(dataset, title(kind));
      });
    }
    this.root.hidden = endpoints.size === 0;
    this.#showKinds();
    this.changed();
  }

  override repaint(): void {
    this.#plot.repaint();
  }

  protected override time(): MarketTime {
    return this.#time;
  }

  protected override passed(): void {
    this.#plot.tick();
  }

  /** The types in the order of the chart, from the top down. */
  get #layersDown(): string[] {
    return [...this.#drawn].reverse();
  }

  #showKinds(): void {
    this.#rows = new Map();
    const lines = [...this.#kinds].reverse().map((kind) => {
      const line = make("tr");
      line.dataset.kind = kind;
      const head = make("th");
      head.scope = "row";
      const swatch = make("span", "swatch");
      swatch.style.setProperty("--swatch", `var(${colourOf(kind)})`);
      head.append(swatch, title(kind));
      const cells: [HTMLElement, HTMLElement] = [make("td", "num", "–"), make("td", "num share", "–")];
      cells[0].dataset.testid = "mix-value";
      this.#rows.set(kind, cells);
      line.append(head, ...cells);
      return line;
    });
    find(this.root, "tbody").replaceChildren(...lines);
  }

  protected draw(): void {
    const parts = this.#kinds.flatMap((kind) => {
      const unit = this.#units.get(kind);
      return unit === undefined ? [] : { name: title(kind), unit };
    });
    this.#agreed = agreed(parts);
    const { unit } = this.#agreed;
    this.#drawn = this.#kinds.filter((kind) => (this.#units.get(kind) ?? unit) === unit);
    this.#slices = complete(slices(new Map(this.#drawn.map((kind) => [kind, this.#series.get(kind) ?? []]))));
    const [first, last] = [this.#slices[0], this.#slices.at(-1)];
    if (this.#pointed) this.#pointed = this.#slices.find(({ start }) => start === this.#pointed?.start) ?? null;
    this.#plot.show({
      key: this.#drawn.join(),
      data: layers(this.#slices, this.#drawn) as uPlot.AlignedData,
      spans: this.#slices,
      from: first?.start ?? Date.now() - 1,
      to: last?.end ?? Date.now(),
      time: this.#time,
    });
    this.about(`${this.#name}, by type${behind(unit)}`);
    this.leaveOut(this.#agreed);
    setText(find(this.root, ".mix-table caption"), `Generation by type${aloud(unit)}, with its share`);
    setText(find(this.root, ".mix-unit"), written(unit) || "Power");
    setText(find(this.root, ".timezone"), `Times in ${this.#time.label(Date.now())}`);
    find(this.root, ".chart").ariaLabel = `Generation by type of ${this.#name}`;
    this.#showShares(this.#pointed === null);
    this.#table.draw();
  }

  /** The table beside the chart: the hour at the cursor, otherwise the latest. */
  #showShares(glow: boolean): void {
    const slice = this.#pointed ?? this.#slices.at(-1) ?? null;
    const { total, renewable } = slice ? totals(slice) : { total: 0, renewable: null };
    for (const [kind, [value, share]] of this.#rows) {
      const found = slice?.values.get(kind) ?? null;
      writeNumber(value, found, power, glow);
      setText(share, whole(found === null || total <= 0 ? null : found / total));
    }
    setNumber(find(this.root, ".mix-total"), slice ? power(total) : "–");
    setText(find(this.root, ".figure-value"), whole(renewable));
    setText(find(this.root, ".interval"), slice ? interval(slice.start, slice.end, "pointed", this.#time) : "");
  }

  #words(slice: Slice | null): string {
    if (slice === null) return "no data";
    const parts = this.#layersDown.map((kind) => `${title(kind)} ${valueText(slice, kind)}`);
    return `${dayInterval(slice.start, slice.end, this.#time)}: ${parts.join(", ")}${aloud(this.#agreed.unit)}`;
  }
}

function valueText({ values }: Slice, kind: string): string {
  const value = values.get(kind);
  return value == null ? "–" : power(value);
}
