/** The price curve: a step line on uPlot, with a marker for now and a cursor that mouse, touch and arrow keys move. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, weekday } from "./format.ts";
import type { Step } from "./series.ts";
import { columns, priceRange, stepAt } from "./series.ts";
import { colours } from "./theme.ts";

export class PriceChart {
  readonly #root: HTMLElement;
  readonly #onCursor: (step: Step | null) => void;
  #plot: uPlot | null = null;
  #steps: readonly Step[] = [];

  /** `onCursor` hears of the step under the cursor, null when there is none. */
  constructor(root: HTMLElement, onCursor: (step: Step | null) => void) {
    this.#root = root;
    this.#onCursor = onCursor;
    new ResizeObserver(() => this.#resize()).observe(root);
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("blur", () => this.#plot?.setCursor({ left: -10, top: -10 }));
  }

  show(steps: readonly Step[]): void {
    this.#steps = steps;
    if (this.#plot === null) this.#build();
    else this.#plot.setData(columns(steps));
  }

  /** Draws the marker where now is now. */
  tick(): void {
    this.#plot?.redraw(false);
  }

  /** Takes the colours of the theme in sight. */
  repaint(): void {
    if (this.#plot !== null) this.#build();
  }

  #build(): void {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), columns(this.#steps), this.#root);
  }

  #size(): { width: number; height: number } {
    return { width: Math.max(this.#root.clientWidth, 120), height: Math.max(this.#root.clientHeight, 120) };
  }

  #resize(): void {
    const { width, height } = this.#size();
    if (this.#plot && (this.#plot.width !== width || this.#plot.height !== height)) this.#plot.setSize({ width, height });
  }

  #options(): uPlot.Options {
    const colour = colours(this.#root);
    const font = `12px ${getComputedStyle(this.#root).fontFamily}`;
    const axis = { stroke: colour("--ink-2"), font, ticks: { show: false } };
    const grid = { stroke: colour("--line"), width: 1 };
    const fill = (plot: uPlot): CanvasGradient => {
      const gradient = plot.ctx.createLinearGradient(0, plot.bbox.top, 0, plot.bbox.top + plot.bbox.height);
      gradient.addColorStop(0, colour("--accent-wash"));
      gradient.addColorStop(1, colour("--accent-fade"));
      return gradient;
    };
    return {
      ...this.#size(),
      padding: [18, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { y: { range: (_plot, low, high) => priceRange(low, high) } },
      axes: [
        { ...axis, grid: { show: false }, size: 30, gap: 8, space: 56, values: (_plot, splits) => splits.map(timeLabel) },
        { ...axis, grid, size: 44, gap: 8, space: 46, values: (_plot, splits) => splits.map((value) => String(value).replace("-", "−")) },
      ],
      series: [
        {},
        { stroke: colour("--accent"), width: 2, fill, points: { show: false }, paths: uPlot.paths.stepped?.({ align: 1 }) ?? null },
      ],
      hooks: {
        draw: [(plot) => this.#drawNow(plot, colour)],
        setCursor: [(plot) => this.#onCursor(this.#under(plot))],
      },
    } as uPlot.Options;
  }

  #under(plot: uPlot): Step | null {
    const { left = -1 } = plot.cursor;
    if (left < 0) return null;
    const at = plot.posToVal(left, "x") * 1_000;
    return this.#steps.find(({ start, end }) => start <= at && at < end) ?? null;
  }

  #drawNow(plot: uPlot, colour: (name: string) => string): void {
    const now = Date.now();
    const found = stepAt(this.#steps, now);
    if (!found?.current || found.step.value === null) return;
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const x = Math.round(plot.valToPos(now / 1_000, "x", true));
    const y = plot.valToPos(found.step.value, "y", true);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--now");
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.arc(x, y, 5 * ratio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.lineWidth = 2 * ratio;
    ctx.strokeStyle = colour("--panel");
    ctx.stroke();
    ctx.font = `600 ${11 * ratio}px ${getComputedStyle(this.#root).fontFamily}`;
    ctx.textAlign = x > bbox.left + bbox.width - 40 * ratio ? "right" : x < bbox.left + 20 * ratio ? "left" : "center";
    ctx.textBaseline = "bottom";
    ctx.fillText("now", x, bbox.top - 4 * ratio);
    ctx.restore();
  }

  /** Left and right move the cursor by one step, Home and End to the ends, Escape takes it away. */
  #key(event: KeyboardEvent): void {
    const plot = this.#plot;
    const last = this.#steps.length - 1;
    if (plot === null || last < 0) return;
    const under = this.#under(plot);
    const at = under ? this.#steps.indexOf(under) : (stepAt(this.#steps, Date.now())?.index ?? 0);
    const move: Record<string, number> = { ArrowLeft: under ? at - 1 : at, ArrowRight: under ? at + 1 : at, Home: 0, End: last, Escape: -1 };
    const wanted = move[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    const step = event.key === "Escape" ? undefined : this.#steps[Math.min(Math.max(wanted, 0), last)];
    const left = step ? plot.valToPos((step.start + step.end) / 2_000, "x") : -10;
    plot.setCursor({ left, top: step ? plot.bbox.height / devicePixelRatio / 2 : -10 });
  }
}

function timeLabel(seconds: number): string {
  const date = new Date(seconds * 1_000);
  const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  return midnight ? weekday(seconds * 1_000) : clock(seconds * 1_000);
}
