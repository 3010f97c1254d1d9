/** The price curve of a day: a step line, with a dot at the current price. */

import { Plot, stepped } from "./plot.ts";
import type { Step } from "./series.ts";
import { columns, priceRange, stepAt } from "./series.ts";
import { axisNumber, drawDot, wash } from "./strokes.ts";
import type { MarketTime } from "./time.ts";

export class PriceChart {
  readonly #plot: Plot;
  #steps: readonly Step[] = [];

  /** `onCursor` is called with the step under the cursor, null without one; `describe` puts it, or the day, into words. */
  constructor(root: HTMLElement, onCursor: (step: Step | null) => void, describe: (step: Step | null) => string) {
    this.#plot = new Plot(root, {
      pointed: (span) => onCursor(span as Step | null),
      describe: (span) => describe(span as Step | null),
      look: (colour) => ({
        scales: { y: { range: (_plot, low, high) => priceRange(low, high) } },
        axes: [{ values: (_plot, splits) => splits.map(axisNumber) }],
        series: [
          {
            stroke: colour("--accent"), width: 2, fill: (plot) => wash(plot, colour), points: { show: false },
            paths: stepped,
          },
        ],
        draw: (plot) => {
          const found = stepAt(this.#steps, Date.now());
          if (found?.current && found.step.value !== null) drawDot(plot, Date.now(), found.step.value, "y", colour("--now"), colour("--panel"));
        },
      }),
    });
  }

  show(steps: readonly Step[], from: number, to: number, time: MarketTime): void {
    this.#steps = steps;
    this.#plot.show({ data: columns(steps), spans: steps, from, to, time });
  }

  tick(): void {
    this.#plot.tick();
  }

  repaint(): void {
    this.#plot.repaint();
  }
}
