/** Numbers, times and ages as the page shows them. */

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

/** A price: always two decimals, with a true minus sign. */
export function price(value: number): string {
  return value.toFixed(2).replace("-", "−");
}

/** Power in MW: whole numbers from 100 up, one decimal below. */
export function power(value: number): string {
  return value.toFixed(Math.abs(value) >= 100 ? 0 : 1).replace("-", "−");
}

/** "+1.4 %" with a true minus sign; no sign for zero. */
export function percent(ratio: number): string {
  const text = Math.abs(ratio * 100).toFixed(1);
  const sign = text === "0.0" ? "" : ratio > 0 ? "+" : "−";
  return `${sign}${text} %`;
}

/** A unit as people write it. */
export function unit(name: string): string {
  return name.replace("EUR", "€");
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const CLOCK_SECONDS = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });

const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** "14:00" in the viewer's time zone. */
export const clock = (ms: number): string => CLOCK.format(ms);
export const clockSeconds = (ms: number): string => CLOCK_SECONDS.format(ms);
export const weekday = (ms: number): string => WEEKDAY.format(ms);

/** Which interval it is: "now, 14:00–15:00"; "latest, 1 Jan 14:00–15:00" when it is not of this hour; bare for a pointed one. */
export function interval(start: number, end: number, kind: "now" | "latest" | "pointed"): string {
  const hours = `${clock(start)}–${clock(end)}`;
  if (kind === "pointed") return hours;
  return kind === "now" ? `now, ${hours}` : `latest, ${DATE.format(start)} ${hours}`;
}

/** "Europe/Athens (UTC+3)": what the clock times on the page mean. */
export function timeZone(now: Date): string {
  const offset = -now.getTimezoneOffset();
  const hours = Math.floor(Math.abs(offset) / 60);
  const minutes = Math.abs(offset) % 60;
  const shift = offset === 0 ? "" : `${offset > 0 ? "+" : "−"}${hours}${minutes ? `:${String(minutes).padStart(2, "0")}` : ""}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name === "UTC" ? "UTC" : `${name} (UTC${shift})`;
}
