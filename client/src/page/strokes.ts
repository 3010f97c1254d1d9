/** Additions to uPlot's drawing: the marker of now, dots, gradients, and the text of axes. */

import type uPlot from "uplot";
import type { MarketTime } from "./time.ts";

export type Colour = (name: string) => string;

/** A number on an axis, with a true minus sign. */
export const axisNumber = (value: number): string => String(value).replace("-", "−");

const DAY_MS = 24 * 3_600_000;
/** Axes that are longer have dates without the day of the week, and beyond the second bound months. */
const WEEK_MS = 9 * DAY_MS;
const LONG_MS = 300 * DAY_MS;
/** Axes that are shorter have seconds. */
const SHORT_MS = 10 * 60_000;

/** Pixels from tick to tick on an axis of times of `length` milliseconds. */
export const tickSpace = (length: number): number => (length > LONG_MS || length <= SHORT_MS ? 80 : 56);

/** A time on an axis of `length` milliseconds: the day at midnight, else the time of day. */
export function axisTime(ms: number, time: MarketTime, length = 0): string {
  if (length > LONG_MS) return time.month(ms);
  if (length > WEEK_MS) return time.date(ms);
  if (length > 0 && length <= SHORT_MS) return time.clockSeconds(ms);
  return ms === time.startOf(time.dayOf(ms)) ? time.weekday(ms) : time.clock(ms);
}

/** A dashed line at `now` (Unix milliseconds), with the word above it. */
export function drawNow(plot: uPlot, now: number, colour: string, family: string): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const x = Math.round(plot.valToPos(now / 1_000, "x", true));
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.font = `600 ${11 * ratio}px ${family}`;
  ctx.textAlign = x > bbox.left + bbox.width - 40 * ratio ? "right" : x < bbox.left + 20 * ratio ? "left" : "center";
  ctx.textBaseline = "bottom";
  ctx.fillText("now", x, bbox.top - 4 * ratio);
  ctx.restore();
}

/** A dot on a line, for the current value. */
export function drawDot(plot: uPlot, at: number, value: number, scale: string, fill: string, rim: string): void {
  const { ctx } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.arc(Math.round(plot.valToPos(at / 1_000, "x", true)), plot.valToPos(value, scale, true), 5 * ratio, 0, 2 * Math.PI);
  ctx.fillStyle = fill;
  ctx.fill();
  ctx.lineWidth = 2 * ratio;
  ctx.strokeStyle = rim;
  ctx.stroke();
  ctx.restore();
}

/** A gradient that fades to the bottom. */
export function wash(plot: uPlot, colour: Colour): CanvasGradient {
  const gradient = plot.ctx.createLinearGradient(0, plot.bbox.top, 0, plot.bbox.top + plot.bbox.height);
  gradient.addColorStop(0, colour("--accent-wash"));
  gradient.addColorStop(1, colour("--accent-fade"));
  return gradient;
}
