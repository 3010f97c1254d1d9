/** Numbers, times and ages as the page shows them. */

import type { MarketTime } from "./time.ts";
import { marketTime } from "./time.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** "just now", "3 s", "12 min", "5 h", "2 d". A negative age (clocks differ) is "just now". */
export function duration(ms: number): string {
  if (ms < SECOND) return "just now";
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** "updated 3 s ago". */
export function updatedAgo(ms: number): string {
  return ms < SECOND ? "updated just now" : `updated ${duration(ms)} ago`;
}

const grouped = new Intl.NumberFormat("en-GB");

/** A whole number with its thousands separated: "10,000". */
export function count(number: number): string {
  return grouped.format(number);
}

/** A price: always two decimals, with a true minus sign. */
export function price(value: number): string {
  return value.toFixed(2).replace("-", "−");
}

/** Power or energy: whole numbers from 100 up, one decimal below. */
export function power(value: number): string {
  return value.toFixed(Math.abs(value) >= 100 ? 0 : 1).replace("-", "−");
}

/** "+1.4 %" with a true minus sign; no sign for zero. */
export function percent(ratio: number): string {
  const text = Math.abs(ratio * 100).toFixed(1);
  const sign = text === "0.0" ? "" : ratio > 0 ? "+" : "−";
  return `${sign}${text} %`;
}

/** A unit in common notation; "" of a number without a unit, which is "1" (UCUM). */
export function unit(name: string): string {
  return name === "1" ? "" : name.replace("EUR", "€");
}

/** An interval: "now, 14:00–15:00"; "latest, 1 Jan 14:00–15:00" when it is not of this hour; only the times at the cursor. */
export function interval(start: number, end: number, kind: "now" | "latest" | "pointed", time: MarketTime = marketTime(null)): string {
  const hours = `${time.clock(start)}–${time.clock(end)}`;
  if (kind === "pointed") return hours;
  return kind === "now" ? `now, ${hours}` : `latest, ${time.date(start)} ${hours}`;
}

/** An interval with its day, where there are several days: "Sat 21, 14:00–15:00". */
export function dayInterval(start: number, end: number, time: MarketTime): string {
  return `${time.weekday(start)}, ${interval(start, end, "pointed", time)}`;
}

/** A flow with its sign, with `digits` decimals (default 0): "+412", "−96", "0". */
export function signed(value: number, digits = 0): string {
  const text = Math.abs(value).toFixed(digits);
  return `${Number(text) === 0 ? "" : value > 0 ? "+" : "−"}${text}`;
}

/** A difference of prices: "+12.50", "−3.00". */
export function signedPrice(value: number): string {
  return value > 0 ? `+${price(value)}` : price(value);
}
