/** Numbers and times as the operator page shows them. */

export const NONE = "–";

/** A count with its thousands separated: "12,345". */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : value.toLocaleString("en");
}

/** A rate: one decimal below 10. */
export function rate(value: number | null): string {
  if (value === null) return NONE;
  return value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** Seconds below ten in milliseconds: "12 ms", "34 s". */
export function delay(seconds: number | null): string {
  if (seconds === null) return NONE;
  return seconds < 10 ? `${count(Math.round(seconds * 1000))} ms` : `${count(Math.round(seconds))} s`;
}

/** Cores in use: "0.25", "12". */
export function cores(value: number | null): string {
  return value === null ? NONE : value.toFixed(value < 10 ? 2 : 0);
}

/** A span in its two largest units: "8 s", "3 min", "2 h 5 min", "4 d 3 h". Clocks may differ: never below 0. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return hours % 24 === 0 ? `${hours / 24} d` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** The span from one ISO time to another; "–" without the first. */
export function between(from: string | null | undefined, to: string): string {
  return from ? span(Date.parse(to) - Date.parse(from)) : NONE;
}

/** An ISO time on the clock of this machine, with the date unless it is on the same day as `now`: "02:13:05". */
export function clock(time: string, now: string): string {
  const at = new Date(time);
  const hours = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
  const today = at.toDateString() === new Date(now).toDateString();
  return today ? hours : `${at.getDate()} ${at.toLocaleString("en", { month: "short" })} ${hours}`;
}
