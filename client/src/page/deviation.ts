/** Load beside its forecast on one grid of times, and how far apart they are. Pure. */

import type { Step } from "./series.ts";
import { beneath } from "./series.ts";

const DAY_MS = 24 * 3_600_000;

export interface Moment {
  readonly start: number;
  readonly end: number;
  readonly actual: number | null;
  readonly forecast: number | null;
  /** actual / forecast - 1; null where one of them is missing. */
  readonly off: number | null;
}

/** Every interval from a day before the last actual value to a day after it. */
export function moments(actual: readonly Step[], forecast: readonly Step[]): Moment[] {
  const last = actual.findLast(({ value }) => value !== null) ?? actual.at(-1) ?? forecast[0];
  if (last === undefined) return [];
  const [from, to] = [last.start - DAY_MS, last.end + DAY_MS];
  const measuredUntil = actual.length > 0 ? last.end : -Infinity;
  const ahead = forecast
    .map((step) => ({ ...step, start: Math.max(step.start, measuredUntil) })) // the rest of the hour that is being measured
    .filter(({ start, end }) => start < end);
  const measured = actual.filter(({ start }) => start <= last.start);
  return [...measured.map((step) => ({ ...step, measured: true })), ...ahead.map((step) => ({ ...step, measured: false }))]
    .filter(({ start }) => from <= start && start < to)
    .map(({ start, end, value, measured: isActual }) => {
      const expected = isActual ? (beneath(forecast, start)?.value ?? null) : value;
      const seen = isActual ? value : null;
      return { start, end: Math.min(end, to), actual: seen, forecast: expected, off: seen !== null && expected ? seen / expected - 1 : null };
    });
}

/** The mean absolute deviation of the forecast; null where there is nothing to compare. */
export function meanError(all: readonly Moment[]): number | null {
  const errors = all.flatMap(({ off }) => (off === null ? [] : [Math.abs(off)]));
  return errors.length > 0 ? errors.reduce((sum, error) => sum + error, 0) / errors.length : null;
}

/** Columns for uPlot: times in Unix seconds, forecast, actual, and the deviation above and below zero. */
export function columnsOf(all: readonly Moment[]): [number[], ...(number | null)[][]] {
  const last = all.at(-1);
  const times = all.map(({ start }) => start / 1_000);
  const forecast = all.map((moment) => moment.forecast);
  const actual = all.map((moment) => moment.actual);
  const over = all.map(({ off }) => (off !== null && off >= 0 ? off : null));
  const under = all.map(({ off }) => (off !== null && off < 0 ? off : null));
  const measured = all.findLastIndex((moment) => moment.actual !== null);
  if (last === undefined) return [times, forecast, actual, over, under];
  // The end of the last interval, so that a step is as long as its interval.
  const close = actual[measured] ?? null;
  if (measured === all.length - 1) actual.push(close);
  else {
    if (measured >= 0) actual[measured + 1] = close;
    actual.push(null);
  }
  return [[...times, last.end / 1_000], [...forecast, last.forecast], actual, [...over, null], [...under, null]];
}

/** The range of the load's axis: the lower part of the chart is left to the deviation. */
export function loadRange(all: readonly Moment[]): [number, number] {
  const values = all.flatMap(({ actual, forecast }) => [actual, forecast].filter((value) => value !== null));
  if (values.length === 0) return [0, 100];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = Math.max(high - low, Math.abs(high) * 0.05, 1);
  return [low - span * 0.5, high + span * 0.08];
}

/** Half the width of the deviation's axis: the largest deviation, at least three per cent, rounded up to a whole one. */
export function deviationBound(all: readonly Moment[]): number {
  const largest = Math.max(...all.map(({ off }) => Math.abs(off ?? 0)), 0);
  return Math.max(Math.ceil(largest * 100 - 1e-9), 3) / 100;
}
