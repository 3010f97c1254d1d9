/** The curve of a figure over the last quarter of an hour, as inline SVG from 0 to its greatest value. */

import { make } from "./svg.ts";

const SPAN_MS = 15 * 60_000;
/** Samples further apart than this are not joined: the machine was asleep. */
const GAP_MS = 30_000;
const WIDTH = 300;
const HEIGHT = 40;
/** Half of the stroke, which must not be cut. */
const EDGE = 1.5;

export interface Point {
  /** Unix milliseconds. */
  readonly at: number;
  readonly value: number | null;
}

/** The path in a box of 300 by 40 that ends at `now`. Gaps lift the pen; a lone point is a dot. */
export function curvePath(points: readonly Point[], now: number, most: number): string {
  let drawn = "";
  let last = -Infinity;
  for (const { at, value } of points) {
    if (value === null || at < now - SPAN_MS) continue;
    const x = WIDTH - EDGE - ((now - at) / SPAN_MS) * (WIDTH - 2 * EDGE);
    const y = HEIGHT - EDGE - (most > 0 ? value / most : 0) * (HEIGHT - 2 * EDGE);
    drawn += `${at - last > GAP_MS ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (at - last > GAP_MS) drawn += "h0";
    last = at;
  }
  return drawn;
}

/** Draws the curve of a figure into `root`, up to `full` at least; `format` is that of the figure. */
export function drawCurve(root: HTMLElement, title: string, points: readonly Point[], now: number, format: (value: number) => string, full = 0): void {
  const values = points.flatMap(({ value }) => (value === null ? [] : [value]));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  let path = root.querySelector("path");
  if (!path) {
    const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    path = make("path") as SVGPathElement;
    svg.append(path);
    root.append(svg);
  }
  path.setAttribute("d", curvePath(points, now, Math.max(full, most)));
  const range = values.length === 0 ? "no values" : `from ${format(least)} to ${format(most)}`;
  path.parentElement?.setAttribute("aria-label", `${title} in the last 15 minutes: ${range}`);
  root.dataset.most = most > 0 && values.length > 0 ? format(most) : "";
}
