import { expect, test } from "vitest";
import { columnsOf, deviationBound, loadRange, meanError, moments } from "../../src/page/deviation.ts";
import { flowWords } from "../../src/page/flows.ts";
import { signed, signedPrice } from "../../src/page/format.ts";
import { heat, moveTo, Network } from "../../src/page/network.ts";
import type { Step } from "../../src/page/series.ts";
import { parseSources, stateWords } from "../../src/page/sources.ts";
import { complete, layered, layers, slices, totals } from "../../src/page/stack.ts";
import { flowPairs, generationOf, imbalanceRows, wish } from "../../src/page/zones.ts";

const HOUR = 3_600_000;
const DAY = Date.UTC(2026, 0, 1);
const hourly = (values: (number | null)[], from = DAY, length = HOUR): Step[] =>
  values.map((value, index) => ({ start: from + index * length, end: from + (index + 1) * length, value }));
const entry = (endpoint: string, gone = false) => ({ endpoint, title: "", unit: "", resolution: "", version: 1, gone });

test("types of generation lie on each other in one order, whatever the catalogue's", () => {
  expect(layered(["solar", "gas", "tidal", "nuclear", "hydro"])).toEqual(["tidal", "nuclear", "gas", "hydro", "solar"]);
});

test("each layer is the sum of what is beneath it, the highest first, closed at the end of the last hour", () => {
  const all = slices(new Map([["gas", hourly([1, 2])], ["solar", hourly([10, null])]]));
  expect(layers(all, ["gas", "solar"])).toEqual([
    [0, 3600, 7200].map((seconds) => DAY / 1000 + seconds),
    [11, 2, 2],
    [1, 2, 2],
  ]);
  expect(layers([], ["gas"])).toEqual([[], []]);
});

test("hours of types that do not have the same hours are put in order", () => {
  const all = slices(new Map([["gas", hourly([5], DAY + HOUR)], ["solar", hourly([1, 2])]]));
  expect(all.map(({ values }) => [...values])).toEqual([[["solar", 1]], [["gas", 5], ["solar", 2]]]);
});

test("the renewable share counts what renews itself", () => {
  const [hour] = slices(new Map([["gas", hourly([60])], ["solar", hourly([30])], ["hydro", hourly([10])], ["oil", hourly([null])]]));
  expect(hour && totals(hour)).toEqual({ total: 100, renewable: 0.4 });
  expect(totals({ start: 0, end: 1, values: new Map() })).toEqual({ total: 0, renewable: null });
});

test("what a type takes in is no generation", () => {
  const [hour] = slices(new Map([["gas", hourly([60])], ["solar", hourly([40])], ["hydro", hourly([-80])]]));
  expect(hour && totals(hour)).toEqual({ total: 100, renewable: 0.4 });
});

test("an hour of one type counts in each quarter of another", () => {
  const all = slices(new Map([["gas", hourly([60])], ["solar", hourly([30, 40], DAY, HOUR / 4)]]));
  expect(all.map(({ start, end }) => [start - DAY, end - DAY])).toEqual([[0, HOUR / 4], [HOUR / 4, HOUR]]);
  expect(all.map((slice) => totals(slice).total)).toEqual([90, 100]);
});

test("an hour that not all types have told of yet waits for the others, and not for those that have ended", () => {
  const gas = hourly([60, 60]);
  const told = (solar: (number | null)[], all = gas): number => complete(slices(new Map([["gas", all], ["solar", hourly(solar)]]))).length;
  expect(told([30, 30, 30])).toBe(2);
  expect(told([30, 30], hourly([60, 60, null]))).toBe(2);
  expect(told([30, 30, 30], hourly([60, 60, 60]))).toBe(3);
  expect(told([30, 30, 30, 30])).toBe(4);
  expect(complete([])).toEqual([]);
});

test("an address that asks for a zone that no endpoint can be of asks for nothing", () => {
  for (const zone of ["a b", "Ελλάδα", "GR/x", "..", ""]) expect(wish(`?zone=${encodeURIComponent(zone)}`).zone).toBe(null);
  expect(wish("?zone=IT-SUD").zone).toBe("IT-SUD");
});

test("load and forecast meet on one grid: measured quarters, then the hours ahead", () => {
  const actual = hourly([100, 110, null, 90, null], DAY, HOUR / 4);
  const forecast = hourly([100, 200]);
  const all = moments(actual, forecast);
  expect(all.map(({ actual: value, forecast: beside }) => [value, beside])).toEqual([[100, 100], [110, 100], [null, 100], [90, 100], [null, 200]]);
  expect(all.map(({ off }) => off && Math.round(off * 100))).toEqual([0, 10, null, -10, null]);
  expect(meanError(all)).toBeCloseTo(0.2 / 3);
  expect(meanError([])).toBeNull();
});

test("the hour that is being measured is forecast from where the measurement ends", () => {
  const all = moments(hourly([100], DAY, HOUR / 4), hourly([100, 120]));
  expect(all.map(({ start }) => (start - DAY) / HOUR)).toEqual([0, 0.25, 1]);
  expect(moments([], hourly([1, 2]))).toHaveLength(2);
  expect(moments([], [])).toEqual([]);
});

test("a line of load is as long as its intervals, and over and under are apart", () => {
  const [times, forecast, actual, over, under] = columnsOf(moments(hourly([90, 110]), hourly([100, 100, 100])));
  expect(times.map((at) => (at - DAY / 1000) / 3600)).toEqual([0, 1, 2, 3]);
  expect([forecast, actual]).toEqual([[100, 100, 100, 100], [90, 110, 110, null]]);
  expect([over, under].map((column) => column?.map((off) => off && Math.round(off * 100)))).toEqual([[null, 10, null, null], [-10, null, null, null]]);
  expect(columnsOf(moments(hourly([90]), []))[2]).toEqual([90, 90]);
});

test("the load's axis leaves room for the deviation, whose axis is symmetric", () => {
  const all = moments(hourly([100, 200]), hourly([100, 190]));
  expect(loadRange(all)).toEqual([50, 208]);
  expect(deviationBound(all)).toBe(0.06);
  expect([loadRange([]), deviationBound([])]).toEqual([[0, 100], 0.03]);
});

test("a flow is what goes there less what comes back, and the same from the other side with the other sign", () => {
  const network = new Network([["GR", "BG"], ["BG", "GR"], ["BG", "RO"]]);
  expect(network.zones).toEqual(["BG", "GR", "RO"]);
  network.set("GR", "BG", 0);
  network.set("BG", "GR", 300);
  network.set("BG", "RO", 120);
  expect([network.net("GR", "BG"), network.net("BG", "GR"), network.net("RO", "BG")]).toEqual([-300, 300, -120]);
  expect([network.position("BG"), network.position("GR"), network.strongest]).toEqual([420, -300, 300]);
  expect([network.isBorder("RO", "BG"), network.isBorder("GR", "RO"), network.net("GR", "RO")]).toEqual([true, false, null]);
});

test("colours are as strong as the flow beside the strongest, and never absent for one that is there", () => {
  expect([0, 1, -100, 250, -500, 900].map((value) => heat(value, 500))).toEqual([0, 1, 1, 3, 5, 5]);
  expect(heat(5, 0)).toBe(0);
});

test("arrow keys move from border to border, over what is none, and stay at the edge", () => {
  const open = (row: number, column: number): boolean => (row + column) % 2 === 1;
  const move = (key: string, from: [number, number], toEnd = false) => moveTo(key, toEnd, from, [4, 4], open);
  expect([move("ArrowRight", [0, 1]), move("ArrowRight", [0, 3]), move("ArrowDown", [0, 1]), move("ArrowLeft", [0, 3])]).toEqual([[0, 3], [0, 3], [2, 1], [0, 1]]);
  expect([move("ArrowUp", [0, 1]), move("Home", [1, 2]), move("End", [1, 0])]).toEqual([[0, 1], [1, 0], [1, 2]]);
  expect([move("Home", [2, 3], true), move("End", [1, 0], true), move("a", [0, 1])]).toEqual([[0, 1], [3, 2], null]);
});

test("flows in words and in figures", () => {
  expect(flowWords("GR", "BG", 412, "MW")).toBe("Greece sends 412 MW to Bulgaria");
  expect(flowWords("GR", "BG", -96, "MW")).toBe("Greece receives 96 MW from Bulgaria");
  expect([flowWords("GR", null, -500, "MW"), flowWords("GR", "BG", null, "MW")]).toEqual(["Greece imports 500 MW net", "Greece and Bulgaria: no data"]);
  expect(flowWords("GR", "BG", 0.412, "GW", 2)).toBe("Greece sends 0.41 GW to Bulgaria");
  expect([412, -250, 0, -0, 0.01].map((value) => signed(value))).toEqual(["+412", "−250", "0", "0", "0"]);
  expect([signed(-0.414, 2), signed(0.001, 2)]).toEqual(["−0.41", "0.00"]);
  expect([12.5, -3, 0].map(signedPrice)).toEqual(["+12.50", "−3.00", "0.00"]);
});

test("what there is to show comes from the catalogue", () => {
  const catalogue = ["/generation/GR/solar", "/generation/GR/gas", "/generation/BG/gas", "/flows/GR/BG", "/flows/GR/GR", "/imbalance/GR", "/imbalance/BG", "/dam/prices/GR"].map((name) => entry(name));
  expect([...generationOf([...catalogue, entry("/generation/GR/oil", true)], "GR")]).toEqual([["solar", "/generation/GR/solar"], ["gas", "/generation/GR/gas"]]);
  expect(generationOf(catalogue, null).size).toBe(0);
  expect(flowPairs(catalogue)).toEqual([["GR", "BG"]]);
  expect(imbalanceRows(catalogue)).toEqual([
    { actual: "/imbalance/BG", zone: "BG", forecast: null },
    { actual: "/imbalance/GR", zone: "GR", forecast: "/dam/prices/GR" },
  ]);
});

test("sources as the Data Service tells them; what is not one is left out", () => {
  const body = {
    sources: [
      { name: "market", type: "simulation", ok: true, error: null, last_success: "2026-01-01T00:00:00Z", failures: 0, endpoints: 190 },
      { name: "prices", type: "http", ok: false, error: "line 2: many", last_success: null, failures: 3, endpoints: ["/a"] },
      { type: "http" },
      null,
    ],
  };
  const sources = parseSources(body);
  expect(sources.map(({ name, lastSuccess, endpoints }) => [name, lastSuccess, endpoints])).toEqual([["market", DAY, 190], ["prices", null, 1]]);
  expect(sources.map(stateWords)).toEqual(["Working", "Failing: line 2: many"]);
  expect(parseSources({ sources: "none" })).toEqual([]);
  expect(parseSources([null])).toEqual([]);
  expect(parseSources({ sources: [{ name: "x" }] }).map(stateWords)).toEqual(["Nothing yet"]);
});
