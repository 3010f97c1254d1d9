import { expect, test } from "vitest";
import { duration, interval, percent, power, price, unit, updatedAgo } from "../../src/page/format.ts";
import { ageText, doubt } from "../../src/page/freshness.ts";
import { beneath, columns, durationMs, latest, priceRange, stepAt, steps, summary } from "../../src/page/series.ts";
import { sparkPaths } from "../../src/page/spark.ts";
import { wording } from "../../src/page/status.ts";
import { DataError } from "../../src/sdk/index.ts";
import { flowPairs, generationOf, loadRows, priceZones, wish, zoneName } from "../../src/page/zones.ts";
import type { Diem } from "../../src/sdk/index.ts";

const HOUR = 3_600_000;
const DAY = Date.UTC(2026, 0, 1);
const dataset = (values: (number | null)[], resolution = "PT1H") => ({
  resolution,
  points: values.map((value, index) => ({ time: new Date(DAY + index * HOUR).toISOString(), value })),
});
const entry = (endpoint: string, gone = false) => ({ endpoint, title: "", unit: "", resolution: "", version: 1, gone });

test("a market has series: documents by the same names are none", () => {
  const names = ["/dam/prices/GR", "/load/GR", "/generation/GR/gas", "/flows/GR/BG"];
  const market = (kind: string): unknown[] => {
    const catalogue = names.map((endpoint) => ({ endpoint, gone: false, kind }));
    return [priceZones(catalogue), loadRows(catalogue, null), [...generationOf(catalogue, "GR").keys()], flowPairs(catalogue)].map((found) => (found as unknown[]).length);
  };
  expect([market("series"), market("document")]).toEqual([[1, 1, 1, 1], [0, 0, 0, 0]]);
});

test("ages read as people say them, and never negative", () => {
  expect([-5_000, 999, 3_900, 61_000, 2 * HOUR, 50 * HOUR].map(duration)).toEqual(["just now", "just now", "3 s", "1 min", "2 h", "2 d"]);
  expect(updatedAgo(3_000)).toBe("updated 3 s ago");
  expect(updatedAgo(0)).toBe("updated just now");
});

test("data in doubt is marked with its time of day and its age", () => {
  expect(ageText(DAY, DAY + 3_000, false)).toBe("updated 3 s ago");
  expect(ageText(DAY, DAY + 3_000, true)).toMatch(/^data of \d\d:00:00, 3 s old$/);
  expect(ageText(null, DAY, true)).toBe("");
});

test("numbers: prices with two decimals, power without, signs that are signs", () => {
  expect([price(81.2), price(-3), power(5123.4), power(12.34), power(-250)]).toEqual(["81.20", "−3.00", "5123", "12.3", "−250"]);
  expect([percent(0.0142), percent(-0.2), percent(0.0001)]).toEqual(["+1.4 %", "−20.0 %", "0.0 %"]);
  expect([unit("EUR/MWh"), unit("1"), unit("1/s")]).toEqual(["€/MWh", "", "1/s"]);
});

test("an interval that is not of this hour carries its date", () => {
  expect(interval(DAY, DAY + HOUR, "pointed")).toMatch(/^\d\d:00–\d\d:00$/);
  expect(interval(DAY, DAY + HOUR, "now")).toMatch(/^now, \d\d:00–/);
  expect(interval(DAY, DAY + HOUR, "latest")).toMatch(/^latest, .*\d.* \d\d:00–/);
});

test("resolutions are ISO 8601 durations", () => {
  expect(["PT1H", "PT15M", "P1D", "PT1H30M", "P", "hour", ""].map(durationMs)).toEqual([HOUR, HOUR / 4, 24 * HOUR, 1.5 * HOUR, null, null, null]);
});

test("the value that counts is the one of this hour, else the last there is", () => {
  const all = steps(dataset([1, 2, null, 4, null]));
  expect(stepAt(all, DAY + 1.5 * HOUR)).toMatchObject({ index: 1, current: true, step: { value: 2 } });
  expect(stepAt(all, DAY + 2.5 * HOUR)).toMatchObject({ index: 3, current: false });
  expect(stepAt(all, DAY + 99 * HOUR)).toMatchObject({ index: 3, current: false });
  expect(stepAt([], DAY)).toBeNull();
  expect(latest(all)?.value).toBe(4);
  expect([beneath(all, DAY + 1.25 * HOUR)?.value, beneath(all, DAY - 1)]).toEqual([2, null]);
});

test("periods of the calendar end where the next one begins, in any zone; without periods a value lasts until the next", () => {
  const ends = (resolution: string, ...times: string[]): string[] =>
    steps({ resolution, points: times.map((time) => ({ time, value: 1 })) }).map(({ end }) => new Date(end).toISOString().slice(0, 16));
  expect(ends("P1M", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")).toEqual(["2026-02-01T00:00", "2026-03-01T00:00"]);
  expect(ends("P1M", "2026-05-31T21:00:00Z")).toEqual(["2026-06-30T21:00"]); // June of Athens
  expect(ends("P1M", "2026-02-01T05:00:00Z", "2026-04-01T04:00:00Z")).toEqual(["2026-03-01T05:00", "2026-05-01T04:00"]); // of New York, with a gap
  expect([ends("P1Y", "2028-01-01T00:00:00Z"), ends("P3M", "2026-10-01T00:00:00Z"), ends("P1W", "2026-01-05T00:00:00Z")]).toEqual([["2029-01-01T00:00"], ["2027-01-01T00:00"], ["2026-01-12T00:00"]]);
  expect(ends("irregular", "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:40:00Z")).toEqual(["2026-01-01T00:10", "2026-01-01T00:40", "2026-01-01T01:00"]);
  expect(ends("irregular", "2026-01-01T00:00:00Z")).toEqual(["2026-01-01T01:00"]);
});

test("a day has 25 hours where the clocks are put back, and a day that is missing is a hole", () => {
  const starts = ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-28T23:00:00Z"];
  const points = starts.map((time, value) => ({ time, value }));
  expect(steps({ points, resolution: "P1D" }).map(({ start, end }) => (end - start) / HOUR)).toEqual([25, 24, 24]);
});

test("points without a readable time are left out, the rest is put in order", () => {
  const points = [{ time: "2026-01-01T01:00:00Z", value: 2 }, { time: "later", value: 9 }, { time: "2026-01-01T00:00:00Z", value: 1 }];
  expect(steps({ points, resolution: "PT1H" }).map(({ value }) => value)).toEqual([1, 2]);
});

test("low, high and the mean weighted by length", () => {
  expect(summary(steps(dataset([5, 1, null, 6])))).toMatchObject({ low: { value: 1 }, high: { value: 6 }, mean: 4 });
  expect(summary(steps(dataset([null])))).toBeNull();
});

test("the line ends where its last interval ends, and a hole stays a hole", () => {
  const [times, values] = columns(steps(dataset([1, 2])));
  expect(times.map((time) => time - DAY / 1000)).toEqual([0, 3600, 7200]);
  expect(values).toEqual([1, 2, 2]);
  const holed = { resolution: "PT1H", points: [0, 5].map((hour) => ({ time: new Date(DAY + hour * HOUR).toISOString(), value: 1 })) };
  expect(columns(steps(holed))[1]).toEqual([1, 1, null, 1, 1]);
});

test("the price axis starts at zero, or below it for negative prices", () => {
  expect(priceRange(20, 100)).toEqual([0, 108]);
  expect(priceRange(-50, 50)[0]).toBeLessThan(-50);
  expect(priceRange(null, null)).toEqual([0, 100]);
});

test("a spark ends in a dot at the latest value and lifts the pen at gaps", () => {
  const paths = sparkPaths(steps(dataset([1, 2, null, 3, null])), []);
  expect(paths.actual.match(/M/g)).toHaveLength(2);
  expect(paths.dot).toEqual({ x: 85, y: 3 });
  expect(sparkPaths([], [])).toEqual({ actual: "", forecast: "", dot: null });
});

test("zones and rows come from the catalogue, without what is gone", () => {
  const catalogue = ["/dam/prices/RO", "/dam/prices/GR", "/load/RO", "/load/GR", "/load/forecast/GR", "/flows/GR/BG"].map((name) => entry(name));
  expect(priceZones([...catalogue, entry("/dam/prices/XX", true)])).toEqual(["GR", "RO"]);
  expect(loadRows(catalogue, null)).toEqual([
    { actual: "/load/GR", zone: "GR", forecast: "/load/forecast/GR" },
    { actual: "/load/RO", zone: "RO", forecast: null },
  ]);
  expect(loadRows([], ["/x/y"])).toEqual([{ actual: "/x/y", zone: null, forecast: null }]);
  expect(loadRows(Array.from({ length: 99 }, (_, n) => entry(`/load/Z${n}`)), null)).toHaveLength(60);
});

test("zone codes have names", () => {
  expect(["GR", "IT-SUD", "ZZZ", "x"].map(zoneName)).toEqual(["Greece", "Italy South", "ZZZ", "x"]);
});

test("the address says what to show; what is no endpoint is ignored", () => {
  expect(wish("?zone=BG&price=/p&load=/a,b,/c,/a")).toEqual({ zone: "BG", price: "/p", load: ["/a", "/c"], data: true });
  expect(wish("?price=javascript:1&load=&data=off")).toEqual({ zone: null, price: null, load: null, data: false });
});

test("the header says live only when it is", () => {
  expect(wording("open", true, true)).toBe("Live");
  expect(wording("open", false, true)).toBe("Source not live");
  expect(wording("open", true, false)).toBe("Data Service unreachable");
  expect(["connecting", "reconnecting", "closed"].map((state) => wording(state, true, true))).toEqual(["Connecting", "Reconnecting", "Disconnected"]);
});

test("a view doubts its own endpoints only, whichever connection is missing", () => {
  const diem = (state: string, stale: string[], failing: string[] = [], error = new DataError("no usable answer")): Diem =>
    ({
      updates: { connection: { value: { state } }, isLive: (endpoint: string) => !stale.includes(endpoint) },
      data: { health: { value: { failing: new Map(failing.map((endpoint) => [endpoint, error])) } } },
    }) as unknown as Diem;
  expect(doubt(diem("open", []), ["/a"])).toBe("");
  expect(doubt(diem("reconnecting", ["/b"]), ["/a"])).toBe("");
  expect(doubt(diem("reconnecting", ["/b"]), ["/a", "/b"])).toBe("Reconnecting");
  expect(doubt(diem("closed", ["/a"]), ["/a"])).toBe("Disconnected");
  expect(doubt(diem("connecting", []), [])).toBe("Connecting");
  expect(doubt(diem("open", ["/a"]), ["/a"])).toBe("Source not live");
  expect(doubt(diem("reconnecting", ["/b"], ["/a"]), ["/a"])).toBe("Data Service unreachable");
  const causes = [["stale", 0], ["lost", 0], ["not_found", 404], ["busy", 503]] as const;
  expect(causes.map(([code, status]) => doubt(diem("open", [], ["/a"], new DataError("", status, null, code)), ["/a"]))).toEqual([
    "An old copy is served", "A newer version is lost: the store was put back", "Not in the catalogue", "Data Service unreachable",
  ]);
});
