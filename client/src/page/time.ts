/** A market's clock: times of day, days that begin at its midnight, and the name of its zone. Pure. */

const LANGUAGE = "en-GB"; // the language of the page
const HOUR_MS = 3_600_000;

/** Markets whose delivery day is not Central European; a zone's code begins with the country's. */
const ELSEWHERE: Record<string, string> = {
  CY: "Asia/Nicosia", GB: "Europe/London", GE: "Asia/Tbilisi", IE: "Europe/Dublin", MD: "Europe/Chisinau", TR: "Europe/Istanbul", UA: "Europe/Kyiv",
};

const DAY = new Intl.DateTimeFormat(LANGUAGE, { weekday: "short", day: "numeric", month: "long", timeZone: "UTC" });
const FULL_DAY = new Intl.DateTimeFormat(LANGUAGE, { weekday: "long", day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });

export class MarketTime {
  /** The zone's name in the IANA database. */
  readonly zone: string;
  readonly #formats = new Map<string, Intl.DateTimeFormat>();

  constructor(zone: string) {
    this.zone = zone;
  }

  /** "14:00"; the hour that an autumn clock change repeats has its zone: "02:00 CEST". */
  clock(ms: number): string {
    const text = this.#clock(ms);
    const twice = text === this.#clock(ms - HOUR_MS) || text === this.#clock(ms + HOUR_MS);
    return twice ? `${text} ${this.#part(ms, { timeZoneName: "short" }, "timeZoneName")}` : text;
  }

  /** "14:00:05". */
  clockSeconds(ms: number): string {
    return this.#format(ms, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  }

  /** "Sat 21". */
  weekday(ms: number): string {
    return this.#format(ms, { weekday: "short", day: "numeric" });
  }

  /** "21 Nov". */
  date(ms: number): string {
    return this.#format(ms, { day: "numeric", month: "short" });
  }

  /** "Nov 2026". */
  month(ms: number): string {
    return this.#format(ms, { month: "short", year: "numeric" });
  }

  /** "21 Nov 2026". */
  fullDate(ms: number): string {
    return this.#format(ms, { day: "numeric", month: "short", year: "numeric" });
  }

  /** The day of an instant, "2026-11-21". */
  dayOf(ms: number): string {
    return new Date(ms + this.#offset(ms)).toISOString().slice(0, 10);
  }

  /** When a day begins, Unix milliseconds; NaN if it is not a day. */
  startOf(day: string): number {
    const utc = Date.parse(`${day}T00:00:00Z`);
    if (Number.isNaN(utc)) return utc;
    const guess = utc - this.#offset(utc);
    return utc - this.#offset(guess); // the offset at midnight, should the clock change between midnight and 00:00 UTC
  }

  /** "Sat 21 November", or "Saturday 21 November 2026" in full. */
  dayName(day: string, full = false): string {
    const noon = Date.parse(`${day}T12:00:00Z`);
    if (Number.isNaN(noon)) return day;
    return (full ? FULL_DAY : DAY).format(noon).replaceAll(",", "");
  }

  /** "Europe/Athens (UTC+3)": the zone of the clock times at an instant. */
  label(ms: number): string {
    if (this.zone === "UTC") return "UTC";
    const minutes = Math.round(this.#offset(ms) / 60_000);
    const rest = Math.abs(minutes) % 60;
    const hours = `${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
    return `${this.zone} (UTC${minutes === 0 ? "" : `${minutes > 0 ? "+" : "−"}${hours}`})`;
  }

  #clock(ms: number): string {
    return this.#format(ms, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  }

  /** How far the market's clock is ahead of UTC, milliseconds. */
  #offset(ms: number): number {
    const name = this.#part(ms, { timeZoneName: "longOffset" }, "timeZoneName");
    const [, sign, hours = "0", minutes = "0"] = /GMT([+-])(\d\d):?(\d\d)?/.exec(name) ?? [];
    return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
  }

  #part(ms: number, options: Intl.DateTimeFormatOptions, type: string): string {
    return this.#formatter(options).formatToParts(ms).find((part) => part.type === type)?.value ?? "";
  }

  #format(ms: number, options: Intl.DateTimeFormatOptions): string {
    return this.#formatter(options).format(ms).replaceAll(",", "");
  }

  #formatter(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
    const key = Object.entries(options).join();
    let made = this.#formats.get(key);
    if (made === undefined) this.#formats.set(key, (made = new Intl.DateTimeFormat(LANGUAGE, { ...options, timeZone: this.zone })));
    return made;
  }
}

export const UTC = new MarketTime("UTC");

const MADE = new Map<string, MarketTime>();

/** The clock of a bidding zone ("GR", "IT-SUD"); the viewer's own for null and for codes that name no country. */
export function marketTime(zone: string | null): MarketTime {
  const country = /^([A-Z]{2})(-|$)/.exec(zone ?? "")?.[1];
  const name = country === undefined ? Intl.DateTimeFormat().resolvedOptions().timeZone : (ELSEWHERE[country] ?? "Europe/Brussels");
  let made = MADE.get(name);
  if (made === undefined) MADE.set(name, (made = new MarketTime(name)));
  return made;
}

/** The clock of a zone of the IANA database; null if the browser has none of this name. */
export function timeIn(zone: string): MarketTime | null {
  try {
    const made = MADE.get(zone) ?? new MarketTime(Intl.DateTimeFormat(LANGUAGE, { timeZone: zone }).resolvedOptions().timeZone);
    MADE.set(zone, made);
    return made;
  } catch {
    return null;
  }
}

/** The day that is `by` days after `day`. */
export function shiftDay(day: string, by: number): string {
  return new Date(Date.parse(`${day}T00:00:00Z`) + by * 24 * HOUR_MS).toISOString().slice(0, 10);
}
