/** The chart of any series: a step line, and behind it an older version to compare with. */

import uPlot from "uplot";
import { Plot, stepped } from "../plot.ts";
import type { Step } from "../series.ts";
import { columns, stepAt } from "../series.ts";
import { axisNumber, drawDot, wash } from "../strokes.ts";
import type { MarketTime } from "../time.ts";
import { valueRange } from "./values.ts";

/** Room of an axis of values for each character of its longest number, and for a short one. */
const CHARACTER_PX = 7;
const SHORT_PX = 44;

export class SeriesChart {
  readonly #plot: Plot;
  #steps: readonly Step[] = [];
  #compared = false;

  /** `onCursor` is called with the step under the cursor, null without one; `describe` puts it, or the series, into words. */
  constructor(root: HTMLElement, onCursor: (step: Step | null) => void, describe: (step: Step | null) => string) {
    this.#plot = new Plot(root, {
      pointed: (span) => onCursor(span as Step | null),
      describe: (span) => describe(span as Step | null),
      look: (colour) => ({
        scales: { y: { range: (_plot, low, high) => valueRange(low, high) } },
        axes: [{
          values: (_plot, splits) => splits.map(axisNumber),
          size: (_plot, values) => Math.max(SHORT_PX, 12 + CHARACTER_PX * Math.max(0, ...(values ?? []).map(({ length }) => length))),
        }],
        series: [
          ...(this.#compared ? [{ stroke: colour("--ink-2"), width: 1.5, dash: [4, 4], points: { show: false }, paths: stepped }] : []),
          { stroke: colour("--accent"), width: 2, fill: (plot: uPlot) => wash(plot, colour), points: { show: false }, paths: stepped },
        ],
        draw: (plot) => {
          const found = stepAt(this.#steps, Date.now());
          if (found?.current && found.step.value !== null) drawDot(plot, Date.now(), found.step.value, "y", colour("--now"), colour("--panel"));
        },
      }),
    });
  }

  /** `older`: the steps of a version to compare with; null without one. */
  show(steps: readonly Step[], older: readonly Step[] | null, time: MarketTime): void {
    this.#steps = steps;
    this.#compared = older !== null;
    const ends = [...steps, ...(older ?? [])];
    this.#plot.show({
      key: this.#compared ? "compared" : "",
      data: older === null ? columns(steps) : uPlot.join([columns(older), columns(steps)]),
      spans: steps,
      from: Math.min(...boundsOf(ends)),
      to: Math.max(...boundsOf(ends)),
      time,
    });
  }

  tick(): void {
    this.#plot.tick();
  }

  repaint(): void {
    this.#plot.repaint();
  }
}

/** The earliest start and the latest end of steps in order; of none, now. */
function boundsOf(steps: readonly Step[]): number[] {
  let [from, to] = [Infinity, -Infinity];
  for (const { start, end } of steps) {
    from = Math.min(from, start);
    to = Math.max(to, end);
  }
  return from < to ? [from, to] : [Date.now() - 1, Date.now()];
}
