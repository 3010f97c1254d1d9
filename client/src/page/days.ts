/** The days of a series, and which of them is shown. Pure. */

import type { Step } from "./series.ts";
import { stepAt } from "./series.ts";
import type { MarketTime } from "./time.ts";
import { shiftDay } from "./time.ts";

/** Data of a day must cover at least this much of it: the rest of an hour after midnight is not a day. */
const MIN_MS = 2 * 3_600_000;

/** Days that have values, in order. A series that ends shortly after midnight does not add another day. */
export function daysOf(steps: readonly Step[], time: MarketTime): string[] {
  const covered = new Map<string, number>();
  for (const { start, end, value } of steps) {
    if (value === null) continue;
    const day = time.dayOf(start);
    covered.set(day, (covered.get(day) ?? 0) + end - start);
  }
  const days = [...covered.keys()].sort();
  const long = days.filter((day) => (covered.get(day) ?? 0) > MIN_MS);
  return long.length > 0 ? long : days;
}

/** The day to show by default: that of the current value; today without data. */
export function defaultDay(steps: readonly Step[], now: number, time: MarketTime): string {
  const today = time.dayOf(now);
  const days = daysOf(steps, time);
  if (days.includes(today)) return today;
  const found = stepAt(steps, now)?.step;
  const day = found ? time.dayOf(found.start) : today;
  return days.includes(day) ? day : (days.at(-1) ?? today);
}

export interface DayStep {
  /** The day that the button leads to. */
  readonly day: string;
  /** True if the data has it. */
  readonly open: boolean;
}

/** Where previous and next lead from `day`: to the nearest day with data on that side, else one day on, closed. */
export function neighbours(day: string, days: readonly string[]): { previous: DayStep; next: DayStep } {
  const before = days.findLast((other) => other < day);
  const after = days.find((other) => other > day);
  return {
    previous: { day: before ?? shiftDay(day, -1), open: before !== undefined },
    next: { day: after ?? shiftDay(day, 1), open: after !== undefined },
  };
}

/** The steps that begin on `day`. */
export function stepsOf(steps: readonly Step[], day: string, time: MarketTime): Step[] {
  const from = time.startOf(day);
  const to = time.startOf(shiftDay(day, 1));
  return steps.filter(({ start }) => from <= start && start < to);
}
