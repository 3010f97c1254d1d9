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

/** Periods of the calendar that differ in length: their months. */
const MONTHS: Record<string, number> = { P1M: 1, P3M: 3, P1Y: 12 };

/**
 * When the period that begins at `start` ends; null for a series without periods. It begins at midnight of a zone, which need not be known:
 * half a day later the date of UTC is that of the zone. The end is right but for a change of the clocks.
 */
export function periodEnd(start: number, resolution: string): number | null {
  const months = MONTHS[resolution];
  if (months === undefined) return (durationMs(resolution.replace("P1W", "P7D")) ?? NaN) + start || null;
  const day = new Date(start + DAY_MS / 2).setUTCHours(0, 0, 0, 0);
  return start + new Date(day).setUTCMonth(new Date(day).getUTCMonth() + months) - day;
}

/**
 * The points as intervals, in order; points whose time cannot be read are left out. Without periods an interval lasts until the next point,
 * the last one as long as they do on average.
 */
export function steps(dataset: Pick<Dataset, "points" | "resolution">): Step[] {
  const starts = dataset.points
    .map((point: Point) => ({ start: Date.parse(point.time), value: point.value }))
    .filter(({ start }) => !Number.isNaN(start))
    .sort((a, b) => a.start - b.start);
  const mean = starts.length > 1 ? ((starts.at(-1)?.start ?? 0) - (starts[0]?.start ?? 0)) / (starts.length - 1) : HOUR_MS;
  return starts.map(({ start, value }, index) => {
    const end = periodEnd(start, dataset.resolution);
    const next = starts[index + 1]?.start ?? end ?? start + mean;
    // A period of the calendar is an hour longer in the autumn of a zone, when the clocks are put back.
    const slack = end !== null && end - start >= DAY_MS ? HOUR_MS : 0;
    return { start, end: end === null || next <= end + slack ? next : end, value };
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
