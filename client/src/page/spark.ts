/** A sparkline in SVG: the trend of one row, its forecast behind it, and a dot at the latest value. */

import type { Step } from "./series.ts";

const WIDTH = 88;
const HEIGHT = 24;
const EDGE = 3;
/** More than the line has pixels. */
const MAX_POINTS = 96;

export interface SparkPaths {
  readonly actual: string;
  readonly forecast: string;
  readonly dot: { readonly x: number; readonly y: number } | null;
}

/** Paths in a box of 88 by 24 over the time of `actual`; both lines on one scale. Gaps lift the pen. */
export function sparkPaths(actual: readonly Step[], forecast: readonly Step[]): SparkPaths {
  const end = actual.findLastIndex(({ value }) => value !== null) + 1;
  const shown = actual.slice(Math.max(0, end - MAX_POINTS), end);
  const from = shown[0]?.start;
  const last = shown.at(-1);
  if (from === undefined || last === undefined) return { actual: "", forecast: "", dot: null };
  const to = last.start;
  const beside = forecast.filter(({ start }) => from <= start && start <= to);
  const values = [...shown, ...beside].flatMap(({ value }) => (value === null ? [] : [value]));
  const low = Math.min(...values);
  const high = Math.max(...values);
  const x = (start: number): number => EDGE + ((start - from) / (to - from || 1)) * (WIDTH - 2 * EDGE);
  const y = (value: number): number => HEIGHT - EDGE - ((value - low) / (high - low || 1)) * (HEIGHT - 2 * EDGE);
  const path = (line: readonly Step[]): string => {
    let pen = "M";
    let drawn = "";
    for (const { start, value } of line) {
      if (value === null) pen = "M";
      else {
        drawn += `${pen}${x(start).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
    }
    return drawn;
  };
  return { actual: path(shown), forecast: path(beside), dot: { x: x(to), y: y(last.value ?? 0) } };
}

const SVG = "http://www.w3.org/2000/svg";

/** An empty spark and the function that draws it. */
export function makeSpark(): { element: SVGElement; draw(paths: SparkPaths): void } {
  const element = document.createElementNS(SVG, "svg");
  element.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  element.setAttribute("class", "spark");
  element.setAttribute("aria-hidden", "true");
  const part = (tag: string, name: string): SVGElement => {
    const made = document.createElementNS(SVG, tag);
    made.setAttribute("class", name);
    element.append(made);
    return made;
  };
  const [forecast, actual, dot] = [part("path", "spark-forecast"), part("path", "spark-actual"), part("circle", "spark-dot")];
  dot.setAttribute("r", "2");
  dot.setAttribute("visibility", "hidden");
  return {
    element,
    draw(paths) {
      forecast.setAttribute("d", paths.forecast);
      actual.setAttribute("d", paths.actual);
      dot.setAttribute("visibility", paths.dot ? "visible" : "hidden");
      dot.setAttribute("cx", String(paths.dot?.x ?? 0));
      dot.setAttribute("cy", String(paths.dot?.y ?? 0));
    },
  };
}
