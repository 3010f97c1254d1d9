/** Any series in words and figures: its resolution, its clock, its decimals and the rows of its table. Pure. */

import { durationMs } from "../series.ts";
import type { Step } from "../series.ts";
import type { MarketTime } from "../time.ts";
import { marketTime, timeIn, UTC } from "../time.ts";
import type { Listed } from "../zones.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Decimals that are shown at most. */
const MAX_DIGITS = 6;
/** Values beyond have an exponent. */
const HUGE = 1e15;

const PERIODS: Record<string, string> = { PT1H: "hourly", P1D: "daily", P1W: "weekly", P1M: "monthly", P3M: "quarterly", P1Y: "yearly", irregular: "irregular" };

/** "every 15 min" for PT15M, "hourly", "monthly"; "" for anything else. */
export function every(resolution: string): string {
  const length = durationMs(resolution);
  if (PERIODS[resolution] !== undefined || length === null) return PERIODS[resolution] ?? "";
  if (length % HOUR_MS === 0) return `every ${length / HOUR_MS} h`;
  return length % MINUTE_MS === 0 ? `every ${length / MINUTE_MS} min` : `every ${length / 1_000} s`;
}

/** Whether the points of a resolution begin days. */
const isCalendar = (resolution: string): boolean => /^P\d+[DWMY]$/.test(resolution);

/**
 * The clock of a series: that of its zone, else the market's of its area, else the viewer's own. Days that begin at midnight UTC are of
 * UTC.
 */
export function clockOf({ zone = "", area = "" }: Partial<Listed>, resolution: string, steps: readonly Step[]): MarketTime {
  const time = (zone && timeIn(zone)) || marketTime(area || null);
  const [first] = steps;
  if (!isCalendar(resolution) || first === undefined || time.startOf(time.dayOf(first.start)) === first.start) return time;
  return steps.every(({ start }) => start % DAY_MS === 0) ? UTC : time;
}

/** The decimals that the values need so that all have as many: at most 6. */
export function digitsOf(steps: readonly Step[]): number {
  let most = 0;
  for (const { value } of steps) {
    if (value === null || Number.isInteger(value)) continue;
    const [, decimals = "", exponent = "0"] = /^-?\d+(?:\.(\d+))?(?:e(-?\d+))?$/.exec(String(value)) ?? [];
    most = Math.max(most, decimals.length - Number(exponent));
    if (most >= MAX_DIGITS) return MAX_DIGITS;
  }
  return most;
}

/** A value with so many decimals and a true minus sign; with an exponent if it would be zero, or has very many digits. */
export function figure(value: number, digits: number): string {
  const tiny = value !== 0 && Number(value.toFixed(digits)) === 0;
  const text = tiny || Math.abs(value) >= HUGE ? value.toExponential(2) : value.toFixed(digits);
  return text.replaceAll("-", "−");
}

/** The axis of values: from zero where that is near, else the values with some room. */
export function valueRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  const isNearZero = low >= 0 && low <= high / 2;
  return [isNearZero ? 0 : low - room, high + room];
}

/** A period with its date: "21 Nov 2026 14:00–15:00", "21 Nov 2026" of a day, "Nov 2026" of a month; the instant without periods. */
export function spanWords(step: Step, resolution: string, time: MarketTime): string {
  const from = startWords(step, resolution, time);
  if (resolution === "P1W") return `week of ${from}`;
  if (resolution === "P3M") return `${time.month(step.start)}–${time.month(step.end - 1)}`;
  if (isCalendar(resolution) || durationMs(resolution) === null) return from;
  return `${from}–${hasSeconds(resolution) ? time.clockSeconds(step.end) : time.clock(step.end)}`;
}

/** When a period begins, as in a table: "21 Nov 2026 14:00". */
export function startWords({ start }: Step, resolution: string, time: MarketTime): string {
  if (resolution === "P1M" || resolution === "P3M") return time.month(start);
  const day = time.fullDate(start);
  if (resolution === "P1Y") return day.slice(-4);
  return isCalendar(resolution) ? day : `${day} ${hasSeconds(resolution) ? time.clockSeconds(start) : time.clock(start)}`;
}

/** Whether the points of a resolution may be within a minute. */
const hasSeconds = (resolution: string): boolean => (durationMs(resolution) ?? 0) % MINUTE_MS !== 0 || resolution === "irregular";
