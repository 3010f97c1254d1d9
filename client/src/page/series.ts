/** Steps of a dataset, the current value, and its low, mean and high. Pure. */

import type { Dataset, Point } from "../sdk/index.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export interface Step {
  /** Unix milliseconds. */
  readonly start: number;
  readonly end: number;
  readonly value: number | null;
}

/** An ISO 8601 duration of days, hours, minutes and seconds in milliseconds; null for anything else. */
export function durationMs(text: string): number | null {
  const found = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/.exec(text);
  if (!found) return null;
  const [days = 0, hours = 0, minutes = 0, seconds = 0] = found.slice(1).map((part) => Number(part ?? 0));
  return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 || null;
}

/** The points as intervals, in order; points whose time cannot be read are left out. */
export function steps(dataset: Pick<Dataset, "points" | "resolution">): Step[] {
  const length = durationMs(dataset.resolution);
  const starts = dataset.points
    .map((point: Point) => ({ start: Date.parse(point.time), value: point.value }))
    .filter(({ start }) => !Number.isNaN(start))
    .sort((a, b) => a.start - b.start);
  return starts.map(({ start, value }, index) => {
    const next = starts[index + 1]?.start ?? start + (length ?? HOUR_MS);
    // The day of a zone on which the clocks are put back has 25 hours.
    const longest = length === DAY_MS ? length + HOUR_MS : (length ?? next - start);
    const end = next <= start + longest ? next : start + (length ?? next - start);
    return { start, end, value };
  });
}

/** The step that contains `now` (`current`), or the last one with a value. */
export function stepAt(all: readonly Step[], now: number): { step: Step; index: number; current: boolean } | null {
  const at = all.findIndex(({ start, end, value }) => start <= now && now < end && value !== null);
  const index = at >= 0 ? at : all.findLastIndex(({ value }) => value !== null);
  const step = all[index];
  return step ? { step, index, current: at >= 0 } : null;
}

/** The step that covers `time`, as in a forecast; null without one. */
export function beneath(all: readonly Step[], time: number): Step | null {
  return all.find(({ start, end }) => start <= time && time < end) ?? null;
}

/** The last step with a value. */
export function latest(all: readonly Step[]): Step | null {
  return all.findLast(({ value }) => value !== null) ?? null;
}

export interface Summary {
  readonly low: Step;
  readonly high: Step;
  readonly mean: number;
}

/** Low, high and the mean weighted by length; null without values. */
export function summary(all: readonly Step[]): Summary | null {
  let low: Step | null = null;
  let high: Step | null = null;
  let sum = 0;
  let length = 0;
  for (const step of all) {
    if (step.value === null) continue;
    if (low === null || step.value < (low.value as number)) low = step;
    if (high === null || step.value > (high.value as number)) high = step;
    sum += step.value * (step.end - step.start);
    length += step.end - step.start;
  }
  return low && high && { low, high, mean: sum / length };
}

/** Columns for a step line, Unix seconds and values; the end of the last interval closes the line. */
export function columns(steps: readonly Step[]): [number[], (number | null)[]] {
  const times: number[] = [];
  const values: (number | null)[] = [];
  steps.forEach(({ start, end, value }, index) => {
    times.push(start / 1_000);
    values.push(value);
    const next = steps[index + 1];
    if (next && next.start <= end) return;
    times.push(end / 1_000); // the end of the interval; a gap before the next one stays a gap
    values.push(value);
    if (next && next.start > end + 1_000) {
      times.push(end / 1_000 + 0.5);
      values.push(null);
    }
  });
  return [times, values];
}

/** From zero, or below it with room, to a little above the highest price. */
export function priceRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 100];
  const room = Math.max((high - Math.min(low, 0)) * 0.08, 1);
  return [low < 0 ? low - room : 0, high + room];
}
