import { expect, test } from "vitest";
import { amountWords, changeWords, parseVersions } from "../../../src/page/data/history.ts";
import type { Kind } from "../../../src/page/data/media.ts";
import { snippet } from "../../../src/page/data/snippet.ts";
import { clockOf, digitsOf, every, figure, spanWords, startWords, valueRange } from "../../../src/page/data/values.ts";
import type { Step } from "../../../src/page/series.ts";
import { axisTime } from "../../../src/page/strokes.ts";
import { MarketTime } from "../../../src/page/time.ts";

const HOUR = 3_600_000;
const DAY = Date.UTC(2026, 0, 1);
const steps = (values: (number | null)[], length = HOUR, from = DAY): Step[] =>
  values.map((value, index) => ({ start: from + index * length, end: from + (index + 1) * length, value }));

test("resolutions in words", () => {
  expect(["PT15M", "PT1H", "PT6H", "P1D", "PT30S", "soon"].map(every)).toEqual(["every 15 min", "hourly", "every 6 h", "daily", "every 30 s", ""]);
  expect(["P1W", "P1M", "P3M", "P1Y", "irregular"].map(every)).toEqual(["weekly", "monthly", "quarterly", "yearly", "irregular"]);
});

test("values have the decimals of the data, all the same number", () => {
  expect([digitsOf(steps([1, 2.5, 3.25, null])), digitsOf(steps([1, null])), digitsOf(steps([1e-7])), digitsOf([])]).toEqual([2, 0, 6, 0]);
  expect([figure(2.5, 2), figure(-3, 0), figure(0, 1), figure(1e-9, 6), figure(2e15, 0)]).toEqual(["2.50", "−3", "0.0", "1.00e−9", "2.00e+15"]);
});

test("the axis starts at zero only where that is near", () => {
  expect(valueRange(10, 100)).toEqual([0, 107.2]);
  expect(valueRange(49.9, 50.1)[0]).toBeCloseTo(49.884);
  expect(valueRange(-10, 10)).toEqual([-11.6, 11.6]);
  expect([valueRange(5, 5), valueRange(0, 0), valueRange(null, null)]).toEqual([[4.5, 5.5], [0, 1], [0, 1]]);
});

test("the clock is that of the series, or of its area; days that begin at midnight UTC are not shifted by a viewer's clock", () => {
  const clock = (...of: Parameters<typeof clockOf>): string => clockOf(...of).zone;
  expect(clock({ area: "GR" }, "PT1H", steps([1]))).toBe("Europe/Brussels");
  expect(clock({ area: "GR" }, "P1D", steps([1, 2], 24 * HOUR))).toBe("UTC");
  expect(clock({ area: "GR" }, "P1D", steps([1, 2], 24 * HOUR, DAY - HOUR))).toBe("Europe/Brussels");
  expect(clock({ area: "GR", zone: "Europe/Athens" }, "P1M", steps([1], 24 * HOUR, DAY - 2 * HOUR))).toBe("Europe/Athens");
  expect(clock({ area: "GR", zone: "Middle/Earth" }, "PT1H", steps([1]))).toBe("Europe/Brussels");
});

test("a period has its date, and of those of the calendar that is all; an instant has its second", () => {
  const time = new MarketTime("UTC");
  const words = (resolution: string, length = HOUR): string[] => {
    const [step] = steps([1], length) as [Step];
    return [spanWords(step, resolution, time), startWords(step, resolution, time)];
  };
  expect(words("PT1H")).toEqual(["1 Jan 2026 00:00–01:00", "1 Jan 2026 00:00"]);
  expect(words("PT5S", 5_000)).toEqual(["1 Jan 2026 00:00:00–00:00:05", "1 Jan 2026 00:00:00"]);
  expect(words("irregular")).toEqual(["1 Jan 2026 00:00:00", "1 Jan 2026 00:00:00"]);
  expect([words("P1D"), words("P1W")]).toEqual([["1 Jan 2026", "1 Jan 2026"], ["week of 1 Jan 2026", "1 Jan 2026"]]);
  expect([words("P1M"), words("P3M", 90 * 24 * HOUR), words("P1Y")]).toEqual([["Jan 2026", "Jan 2026"], ["Jan 2026–Mar 2026", "Jan 2026"], ["2026", "2026"]]);
});

test("a long axis has dates, a very long one months, and a short one seconds", () => {
  const time = new MarketTime("UTC");
  const days = (count: number): string => axisTime(DAY, time, count * 24 * HOUR);
  expect([days(1), days(9), days(10), days(301)]).toEqual(["Thu 1", "Thu 1", "1 Jan", "Jan 2026"]);
  expect([axisTime(DAY + 5_000, time, 60_000), axisTime(DAY + HOUR, time, HOUR)]).toEqual(["00:00:05", "01:00"]);
});

test("the versions of an endpoint, their size and what each has changed; what is none is left out", () => {
  const versions = parseVersions({
    versions: [
      { version: 3, time: "2026-01-01T00:00:02Z", gone: false, points: 24, revised: 1 },
      { version: 2, time: "2026-01-01T00:00:01Z", gone: true, points: 0, revised: 0 },
      { version: 1, time: "2026-01-01T00:00:00Z", gone: false, points: 24, revised: null },
      { version: "4", time: "2026-01-01T00:00:00Z" },
      { version: 4, time: "then" },
      null,
    ],
  });
  expect(versions.map(({ version, at }) => [version, at - DAY])).toEqual([[3, 2_000], [2, 1_000], [1, 0]]);
  expect(versions.map((version, index) => changeWords(version, index === 2))).toEqual(["1 value revised", "deleted", "oldest version kept"]);
  const [document, notice] = parseVersions({
    versions: [
      { version: 5, time: "2026-01-01T00:00:00Z", gone: false, media_type: "application/json", bytes: 1_536, revised: null },
      { version: 4, time: "2026-01-01T00:00:00Z", gone: false, media_type: "application/vnd.diem.notice+json", revised: null },
    ],
  });
  expect([changeWords(document!, false), amountWords(document!), amountWords(notice!)]).toEqual(["", "1.5 KiB", ""]);
  expect([changeWords({ ...document!, revised: 0 }, false), ...versions.map(amountWords)]).toEqual(["no values revised", "24 values", "0 values", "24 values"]);
  expect([parseVersions(null), parseVersions({ versions: {} })]).toEqual([[], []]);
});

test("the code has ten lines, and the name as a string", () => {
  const code = snippet("/diem.js", '/my/"series"');
  expect(code.trimEnd().split("\n")).toHaveLength(11);
  expect(code).toContain('"/my/\\"series\\""');
});

test("the code fits the kind", () => {
  const code = (kind: Kind, mediaType = ""): string => snippet("/diem.js", "/x", kind, mediaType);
  expect(code("document")).toContain("({ value, version }) =>");
  expect(code("bytes", "text/html;charset=utf-8")).toContain("console.log(version, value)");
  expect(code("bytes", "image/png")).toContain('document.querySelector("img").src = URL.createObjectURL(blob)');
  expect(code("bytes", "image/svg+xml")).not.toContain("img");
  expect(code("notice")).toContain("load: async (url) => (await fetch(url)).json()");
  expect(code("collection")).toContain("diem.watchCollection(");
});
