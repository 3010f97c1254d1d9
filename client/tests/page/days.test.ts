import { expect, test } from "vitest";
import { readHash, writeHash } from "../../src/page/address.ts";
import { daysOf, defaultDay, neighbours, stepsOf } from "../../src/page/days.ts";
import { dayInterval } from "../../src/page/format.ts";
import type { Step } from "../../src/page/series.ts";
import { MarketTime, marketTime, shiftDay } from "../../src/page/time.ts";

const HOUR = 3_600_000;
const brussels = new MarketTime("Europe/Brussels");
const hourly = (from: number, hours: number, value: number | null = 1): Step[] =>
  Array.from({ length: hours }, (_, index) => ({ start: from + index * HOUR, end: from + (index + 1) * HOUR, value }));

test("a market's day begins at its own midnight, also on the days on which the clock changes", () => {
  expect(brussels.startOf("2026-11-21")).toBe(Date.UTC(2026, 10, 20, 23));
  expect(brussels.startOf("2026-07-01")).toBe(Date.UTC(2026, 5, 30, 22));
  const length = (day: string): number => (brussels.startOf(shiftDay(day, 1)) - brussels.startOf(day)) / HOUR;
  expect(["2026-03-29", "2026-10-25", "2026-10-26"].map(length)).toEqual([23, 25, 24]);
  expect(new MarketTime("America/New_York").startOf("2026-01-01")).toBe(Date.UTC(2026, 0, 1, 5));
  expect(brussels.startOf("today")).toBeNaN();
});

test("the hour that a clock change repeats says which of the two it is", () => {
  const before = Date.UTC(2026, 9, 25, 0);
  expect([0, 1, 2].map((hours) => brussels.clock(before + hours * HOUR))).toEqual(["02:00 CEST", "02:00 CET", "03:00"]);
  expect(brussels.clockSeconds(Date.UTC(2026, 0, 1, 1, 2, 3))).toBe("02:02:03");
});

test("days and zones have names", () => {
  expect(brussels.dayName("2026-11-21")).toBe("Sat 21 November");
  expect(brussels.dayName("2026-11-21", true)).toBe("Saturday 21 November 2026");
  expect(brussels.dayName("someday")).toBe("someday");
  expect(brussels.weekday(Date.UTC(2026, 10, 21))).toBe("Sat 21");
  expect([brussels.label(Date.UTC(2026, 0, 1)), brussels.label(Date.UTC(2026, 6, 1))]).toEqual(["Europe/Brussels (UTC+1)", "Europe/Brussels (UTC+2)"]);
  expect([new MarketTime("UTC").label(0), new MarketTime("Asia/Kolkata").label(0)]).toEqual(["UTC", "Asia/Kolkata (UTC+5:30)"]);
  expect([shiftDay("2026-12-31", 1), shiftDay("2026-03-01", -1)]).toEqual(["2027-01-01", "2026-02-28"]);
});

test("where several days are told apart an interval says its day", () => {
  expect(dayInterval(Date.UTC(2026, 10, 20, 23), Date.UTC(2026, 10, 21), brussels)).toBe("Sat 21, 00:00–01:00");
});

test("zones of the coupled market share its clock; what is no zone has the viewer's", () => {
  expect(["GR", "IT-SUD", "TR", "GB"].map((zone) => marketTime(zone).zone)).toEqual(["Europe/Brussels", "Europe/Brussels", "Europe/Istanbul", "Europe/London"]);
  expect(marketTime("GR")).toBe(marketTime("BG"));
  expect([null, "x", "GRX"].map((zone) => marketTime(zone).zone)).toEqual(Array(3).fill(Intl.DateTimeFormat().resolvedOptions().timeZone));
});

test("the days of a series are those with values; an hour beyond midnight is no further day", () => {
  const start = brussels.startOf("2026-11-21");
  expect(daysOf(hourly(start, 48), brussels)).toEqual(["2026-11-21", "2026-11-22"]);
  expect(daysOf(hourly(start + HOUR, 48), brussels)).toEqual(["2026-11-21", "2026-11-22"]);
  expect(daysOf(hourly(start, 1), brussels)).toEqual(["2026-11-21"]);
  expect(daysOf([...hourly(start, 24), ...hourly(start + 24 * HOUR, 24, null)], brussels)).toEqual(["2026-11-21"]);
  expect(daysOf([], brussels)).toEqual([]);
});

test("without a choice the day is that of the value that counts now", () => {
  const start = brussels.startOf("2026-11-21");
  const steps = hourly(start, 48);
  expect(defaultDay(steps, start + 30 * HOUR, brussels)).toBe("2026-11-22");
  expect(defaultDay(steps, start + 500 * HOUR, brussels)).toBe("2026-11-22");
  expect(defaultDay([], start, brussels)).toBe("2026-11-21");
});

test("previous and next lead to days with data, over holes, and are closed at the ends", () => {
  const days = ["2026-11-18", "2026-11-21", "2026-11-22"];
  expect(neighbours("2026-11-21", days)).toEqual({ previous: { day: "2026-11-18", open: true }, next: { day: "2026-11-22", open: true } });
  expect(neighbours("2026-11-22", days).next).toEqual({ day: "2026-11-23", open: false });
  expect(neighbours("2026-01-01", days)).toEqual({ previous: { day: "2025-12-31", open: false }, next: { day: "2026-11-18", open: true } });
  expect(neighbours("2026-11-21", [])).toMatchObject({ previous: { open: false }, next: { open: false } });
});

test("a day has the hours that begin on it, 25 of them in autumn", () => {
  const all = hourly(Date.UTC(2026, 9, 24), 72);
  expect(stepsOf(all, "2026-10-25", brussels)).toHaveLength(25);
  expect(stepsOf(all, "2026-10-30", brussels)).toEqual([]);
});

test("the hash carries zone and day, and nothing else is believed", () => {
  expect(readHash("#zone=IT-SUD&day=2026-11-21")).toEqual({ zone: "IT-SUD", day: "2026-11-21" });
  expect(readHash("#price")).toEqual({ zone: null, day: null });
  expect(readHash("#zone=%3Cscript%3E&day=2026-02-30")).toEqual({ zone: null, day: null });
  expect(readHash(writeHash({ zone: "GR", day: "2026-11-21" }))).toEqual({ zone: "GR", day: "2026-11-21" });
  expect([writeHash({ zone: "GR", day: null }), writeHash({ zone: null, day: null })]).toEqual(["#zone=GR", ""]);
});
