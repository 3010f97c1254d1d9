/** A chart over time on uPlot, with a marker for now and a cursor that mouse, touch and arrow keys move; a slider for assistive technology. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Colour } from "./strokes.ts";
import { axisTime, drawNow, tickSpace } from "./strokes.ts";
import { colours } from "./theme.ts";
import type { MarketTime } from "./time.ts";
import { marketTime } from "./time.ts";

/** The parts that a kind of chart adds. */
export interface Look {
  readonly series: uPlot.Series[];
  readonly scales: uPlot.Scales;
  /** The axes of values; the first one has the grid. */
  readonly axes: uPlot.Axis[];
  /** Drawn over everything else. */
  readonly draw?: (plot: uPlot) => void;
}

/** The positions of the cursor: Unix milliseconds. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface Scene {
  readonly data: uPlot.AlignedData;
  readonly spans: readonly Span[];
  readonly from: number;
  readonly to: number;
  readonly time: MarketTime;
  /** Identifies the set of series; another key is another set. */
  readonly key?: string;
}

/** Room beside the chart for half the text of the last tick, such as "Wed 30" or "Nov 2026". */
const LAST_TICK_PX = 30;

/** Each value from its time to the next one's: a gap begins at the time of the missing value, not at the one before it. */
export const stepped = uPlot.paths.stepped?.({ align: 1, alignGaps: 1 }) ?? (() => null);

const EMPTY: Scene = { data: [[]], spans: [], from: 0, to: 1, time: marketTime(null) };

export interface PlotOptions {
  look(colour: Colour, font: string): Look;
  /** Called with the span at the cursor, null without one. */
  pointed(span: Span | null): void;
  /** What assistive technology reads for a span; null: for the whole chart. */
  describe(span: Span | null): string;
}

export class Plot {
  readonly #root: HTMLElement;
  readonly #options: PlotOptions;
  #plot: uPlot | null = null;
  #scene = EMPTY;
  #colour: Colour = () => "";
  #family = "";

  constructor(root: HTMLElement, options: PlotOptions) {
    this.#root = root;
    this.#options = options;
    new ResizeObserver(() => this.#resize()).observe(root);
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focus", () => this.#say());
    root.addEventListener("blur", () => this.#plot?.setCursor({ left: -10, top: -10 }));
  }

  show(scene: Scene): void {
    const same = this.#plot !== null && this.#scene.key === scene.key && this.#scene.time === scene.time;
    this.#scene = scene;
    if (same) this.#plot?.setData(scene.data);
    else this.#build();
    if (document.activeElement !== this.#root) this.#say(); // read out when it moves, not at every update
  }

  /** Draws the marker at the present time. */
  tick(): void {
    this.#plot?.redraw(false);
  }

  /** Applies the colours of the theme. */
  repaint(): void {
    if (this.#plot !== null) this.#build();
  }

  #build(): void {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#configure(), this.#scene.data, this.#root);
  }

  #size(): { width: number; height: number } {
    return { width: Math.max(this.#root.clientWidth, 120), height: Math.max(this.#root.clientHeight, 120) };
  }

  #resize(): void {
    const { width, height } = this.#size();
    if (this.#plot && (this.#plot.width !== width || this.#plot.height !== height)) this.#plot.setSize({ width, height });
  }

  #configure(): uPlot.Options {
    this.#colour = colours(this.#root);
    this.#family = getComputedStyle(this.#root).fontFamily; // once: it computes the styles of the page
    const font = `12px ${this.#family}`;
    const look = this.#options.look(this.#colour, font);
    const axis = { stroke: this.#colour("--ink-2"), font, ticks: { show: false }, gap: 8 };
    const grid = { stroke: this.#colour("--line"), width: 1 };
    const { time } = this.#scene;
    return {
      ...this.#size(),
      padding: [18, LAST_TICK_PX, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), time.zone),
      scales: { x: { range: () => [this.#scene.from / 1_000, this.#scene.to / 1_000] }, ...look.scales },
      axes: [
        { ...axis, grid: { show: false }, size: 30, space: () => tickSpace(this.#scene.to - this.#scene.from), values: (_plot, splits) => splits.map((at) => axisTime(at * 1_000, time, this.#scene.to - this.#scene.from)) },
        ...look.axes.map((own, index) => ({ ...axis, grid: index === 0 ? grid : { show: false }, size: 44, space: 46, ...own })),
      ],
      series: [{}, ...look.series],
      hooks: {
        draw: [(plot) => this.#drawNow(plot), ...(look.draw ? [look.draw] : [])],
        setCursor: [(plot) => this.#moved(plot)],
      },
    };
  }

  #under(plot: uPlot): Span | null {
    const { left = -1 } = plot.cursor;
    if (left < 0) return null;
    const at = plot.posToVal(left, "x") * 1_000;
    return this.#scene.spans.find(({ start, end }) => start <= at && at < end) ?? null;
  }

  #moved(plot: uPlot): void {
    this.#options.pointed(this.#under(plot));
    this.#say();
  }

  /** Updates the text for assistive technology, which reads it out only while the element has the focus. */
  #say(): void {
    const under = this.#plot && this.#under(this.#plot);
    const { spans } = this.#scene;
    const index = under ? spans.indexOf(under) : spans.findIndex(({ end }) => Date.now() < end);
    this.#root.ariaValueMax = String(Math.max(spans.length - 1, 0));
    this.#root.ariaValueNow = String(Math.max(index, 0));
    this.#root.ariaValueText = this.#options.describe(under);
  }

  #drawNow(plot: uPlot): void {
    const now = Date.now();
    if (now < this.#scene.from || now >= this.#scene.to) return;
    drawNow(plot, now, this.#colour("--now"), this.#family);
  }

  /** Left and right move the cursor by one step, Home and End to the ends, Escape removes it. */
  #key(event: KeyboardEvent): void {
    const plot = this.#plot;
    const { spans } = this.#scene;
    const last = spans.length - 1;
    if (plot === null || last < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const under = this.#under(plot);
    const now = spans.findIndex(({ end }) => Date.now() < end);
    const at = under ? spans.indexOf(under) : now >= 0 ? now : last;
    const by = under ? 1 : 0;
    const move: Record<string, number> = { ArrowLeft: at - by, ArrowDown: at - by, ArrowRight: at + by, ArrowUp: at + by, Home: 0, End: last, Escape: -1 };
    const wanted = move[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    const span = event.key === "Escape" ? undefined : spans[Math.min(Math.max(wanted, 0), last)];
    const left = span ? plot.valToPos((span.start + span.end) / 2_000, "x") : -10;
    plot.setCursor({ left, top: span ? plot.bbox.height / devicePixelRatio / 2 : -10 });
  }
}
