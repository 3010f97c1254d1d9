// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { IMBALANCES, LOADS } from "../../src/page/comparisons.ts";
import { ageText } from "../../src/page/freshness.ts";
import { FlowsView } from "../../src/page/flows.ts";
import { ForecastView } from "../../src/page/forecast.ts";
import { MixView } from "../../src/page/mix.ts";
import { PairTable } from "../../src/page/pairs.ts";
import { agreed, aloud, behind, leftOut } from "../../src/page/units.ts";
import { World, find, openPage, text } from "./desk.ts";

vi.mock("uplot", () => ({ default: { paths: {} } })); // it draws on a canvas, which jsdom does not have
const scenes: { key?: string; data: unknown[] }[] = [];
vi.mock("../../src/page/plot.ts", () => ({
  Plot: class {
    readonly #options: { describe(span: unknown): string };
    constructor(root: HTMLElement, options: { describe(span: unknown): string }) {
      this.#options = options;
      root.addEventListener("test", () => (root.ariaValueText = this.#options.describe(null)));
    }
    show(scene: { data: unknown[] }): void {
      scenes.push(scene);
    }
    tick(): void {}
  },
}));

const NOW = Date.UTC(2026, 0, 1, 3);
const ago = (minutes: number): string => new Date(NOW - minutes * 60_000).toISOString();
let world: World;

beforeEach(() => {
  openPage();
  vi.spyOn(Date, "now").mockReturnValue(NOW);
  world = new World();
});
afterEach(() => vi.restoreAllMocks());

/** What a reader of the chart hears. */
function heard(chart: string): string | null {
  find(chart).dispatchEvent(new Event("test"));
  return find(chart).ariaValueText;
}

async function mix(...kinds: string[]): Promise<MixView> {
  const view = new MixView(world.desk, find(".view.mix"));
  view.select("GR", "Greece", new Map(kinds.map((kind) => [kind, `/generation/GR/${kind}`])));
  view.show(true);
  await Promise.resolve();
  return view;
}

test("the unit is what most parts are in, and of as many the first one's", () => {
  const parts = (...units: string[]) => units.map((unit, index) => ({ name: `p${index}`, unit }));
  expect(agreed(parts("GW", "MW", "MW"))).toEqual({ unit: "MW", odd: [{ name: "p0", unit: "GW" }] });
  expect(agreed(parts("GW", "MW")).unit).toBe("GW");
  expect(agreed([])).toEqual({ unit: "", odd: [] });
  expect(leftOut(agreed([]))).toBe("");
  expect(leftOut(agreed(parts("MW", "MW", "EUR/MWh", "")))).toBe("Left out: p2 (€/MWh), p3 (no unit), not in MW");
  const many = agreed(parts(...Array<string>(6).fill("MW"), ..."abcde"));
  expect(leftOut(many)).toBe("Left out: p6 (a), p7 (b), p8 (c), p9 (d) and 1 more, not in MW");
  expect([behind("EUR/MWh"), behind(""), aloud("MW"), aloud("Hz"), aloud("")]).toEqual([", €/MWh", "", ", in megawatts", ", in Hz", ""]);
});

test("generation says its own unit, to those who hear it too", async () => {
  await mix("gas", "solar");
  world.frame();
  expect([text(".mix .about"), text(".mix-unit")]).toEqual(["Greece, by type", "Power"]);
  for (const kind of ["gas", "solar"]) world.tell(`/generation/GR/${kind}`, [2], { unit: "GW" });
  world.frame();
  expect([text(".mix .about"), text(".mix-unit"), text(".mix-table caption")]).toEqual([
    "Greece, by type, GW", "GW", "Generation by type, in gigawatts, with its share",
  ]);
  expect(heard(".mix .chart")).toMatch(/: Solar 2.0, Gas 2.0, in gigawatts$/);
  expect(find(".mix .left-out").hidden).toBe(true);
});

test("a type of another unit is named, and is neither in the chart nor in the sum", async () => {
  await mix("gas", "hydro", "solar");
  world.tell("/generation/GR/gas", [60]);
  world.tell("/generation/GR/hydro", [40]);
  world.tell("/generation/GR/solar", [5000], { unit: "kWh" });
  world.frame();
  expect([text(".mix .about"), text(".mix-total"), text("[data-testid='renewable']")]).toEqual(["Greece, by type, MW", "100", "40 %"]);
  expect(text("[data-kind='solar'] [data-testid='mix-value']")).toBe("–");
  expect([find(".mix .left-out").hidden, text(".mix .left-out")]).toEqual([false, "Left out: Solar (kWh), not in MW"]);
  expect(scenes.at(-1)?.key).toBe("gas,hydro");
  world.tell("/generation/GR/solar", [], { unit: "", gone: true });
  world.frame();
  expect(find(".mix .left-out").hidden).toBe(true);
});

test("flows say their own unit in every cell; one of another unit is named and counts nowhere", async () => {
  const view = new FlowsView(world.desk, find(".view.flows"));
  view.list([["BG", "GR"], ["BG", "RO"], ["GR", "IT"]]);
  view.show(true);
  await Promise.resolve();
  world.tell("/flows/BG/GR", [0.3], { unit: "GW" });
  world.tell("/flows/BG/RO", [0.1], { unit: "GW" });
  world.tell("/flows/GR/IT", [700], { unit: "MW" });
  world.frame();
  const cell = (from: string, to: string): HTMLElement => find(`[data-from="${from}"][data-to="${to}"]`);
  expect(text(".flows .about")).toBe("From the row to the column, GW: + is sent, − is received");
  expect([cell("BG", "GR"), cell("GR", "BG"), cell("GR", "IT")].map(({ textContent }) => textContent)).toEqual(["+0.30", "−0.30", "–"]);
  expect([cell("BG", "GR").ariaLabel, cell("GR", "IT").ariaLabel]).toEqual(["Bulgaria sends 0.30 GW to Greece", "Greece and Italy: no data"]);
  expect(text("[data-from='GR'][data-testid='position']")).toBe("−0.30");
  expect(text(".flows .left-out")).toBe("Left out: GR to IT (MW), not in GW");
});

test("load and forecast say their unit; a forecast of another one is named, and nothing is compared with it", async () => {
  const view = new ForecastView(world.desk, find(".view.forecast"));
  view.select({ actual: "/load/GR", forecast: "/load/forecast/GR", zone: "GR" }, "Greece");
  view.show(true);
  await Promise.resolve();
  world.tell("/load/GR", [5], { unit: "GW" });
  world.tell("/load/forecast/GR", [4], { unit: "GW" });
  world.frame();
  const shown = (): unknown => [text(".forecast .about")?.split(" with")[0], text(".expected b"), text(".forecast .off b"), text(".forecast .left-out")];
  expect(shown()).toEqual(["Greece, GW,", "4.0", "+25.0 %", ""]);
  expect(heard(".forecast .chart")).toMatch(/: load 5.0 GW, forecast 4.0 GW, off by \+25.0 %$/);
  world.tell("/load/forecast/GR", [4000], { unit: "MW" });
  world.frame();
  expect(shown()).toEqual(["Greece, GW,", "–", "–", "Left out: Forecast (MW), not in GW"]);
});

test("a table says what most rows are in; a row of another unit says its own, and is compared with its like alone", async () => {
  const table = new PairTable(world.desk, find(".view.imbalance"), IMBALANCES, () => undefined);
  table.list(["BG", "GR", "RO"].map((zone) => ({ actual: `/imbalance/${zone}`, zone, forecast: `/dam/prices/${zone}` })), new Set());
  table.show(true);
  await Promise.resolve();
  for (const zone of ["BG", "GR", "RO"]) {
    world.tell(`/imbalance/${zone}`, [90], { unit: zone === "RO" ? "MW" : "EUR/MWh" });
    world.tell(`/dam/prices/${zone}`, [80], { unit: "EUR/MWh" });
  }
  world.frame();
  const row = (zone: string): (string | null)[] =>
    [...find(`[data-endpoint="/imbalance/${zone}"]`).children].slice(0, 4).map(({ textContent }) => textContent);
  expect([text(".imbalance .about"), text(".imbalance caption")]).toEqual([
    "Latest quarter against the day-ahead price, €/MWh", "Latest imbalance price by bidding zone, in euro per megawatt-hour",
  ]);
  expect([row("GR"), row("RO")]).toEqual([["GR Greece", "90.00", "80.00", "+10.00"], ["RO Romania in MW", "90.00", "–", "–"]]);
  expect(text(".imbalance .left-out")).toBe("Left out: day-ahead price of RO (€/MWh)");
});

test("a part that stopped hours ago is in the age of its view, by name, until it is withdrawn", async () => {
  const view = await mix("gas", "hydro", "solar");
  world.tell("/generation/GR/gas", [1], { time: ago(0) });
  world.tell("/generation/GR/hydro", [1], { time: ago(59) }); // its hour is not over: nothing newer is due
  world.tell("/generation/GR/solar", [1], { time: ago(180) });
  world.frame();
  expect(text(".mix .age")).toBe("updated just now; Solar 3 h ago");
  world.tell("/generation/GR/hydro", [1], { time: ago(61) });
  world.frame();
  expect(text(".mix .age")).toBe("updated just now; Solar and 1 more, up to 3 h ago");
  world.tell("/generation/GR/hydro", [1], { time: ago(59), resolution: "PT15M" });
  world.frame();
  expect(text(".mix .age")).toBe("updated just now; Solar and 1 more, up to 3 h ago");
  world.tell("/generation/GR/hydro", [1], { time: ago(0) });
  world.tell("/generation/GR/solar", [], { time: ago(179), gone: true });
  world.frame();
  expect(text(".mix .age")).toBe("updated just now");
  view.select("BG", "Bulgaria", new Map([["gas", "/generation/BG/gas"]]));
  await Promise.resolve();
  world.frame();
  expect(text(".mix .age")).toBe("waiting for data");
});

test("flows and rows that stopped are named; what was forecast long ago is no old news", async () => {
  const flows = new FlowsView(world.desk, find(".view.flows"));
  flows.list([["BG", "GR"], ["BG", "RO"]]);
  flows.show(true);
  const table = new PairTable(world.desk, find(".view.load"), LOADS, () => undefined);
  const rows = ["BG", "GR"].map((zone) => ({ actual: `/load/${zone}`, zone, forecast: `/load/forecast/${zone}` }));
  table.list(rows, new Set());
  table.show(true);
  await Promise.resolve();
  world.tell("/flows/BG/GR", [1], { time: ago(0) });
  world.tell("/flows/BG/RO", [1], { time: ago(120) });
  world.tell("/load/BG", [1], { time: ago(0) });
  world.tell("/load/GR", [1], { time: ago(80) });
  world.tell("/load/forecast/BG", [1], { time: ago(900) });
  world.frame();
  expect([text(".flows .age"), text(".load .age")]).toEqual(["updated just now; BG to RO 2 h ago", "updated just now; GR 1 h ago"]);
  table.list(rows.slice(0, 1), new Set());
  world.frame();
  expect(text(".load .age")).toBe("updated just now");
});

test("in doubt, the age of what has stayed behind is an age too", () => {
  const late = { name: "Solar", at: NOW - 3 * 3_600_000, others: 0 };
  expect(ageText(NOW - 5_000, NOW, true, undefined, late)).toMatch(/^data of \d\d:59:55, 5 s old; Solar 3 h old$/);
});
