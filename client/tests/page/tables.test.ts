// @vitest-environment jsdom
import { beforeEach, expect, test, vi } from "vitest";
import { LOADS } from "../../src/page/comparisons.ts";
import { FlowsView } from "../../src/page/flows.ts";
import { PairTable } from "../../src/page/pairs.ts";
import { SourcesView } from "../../src/page/sources.ts";
import { World, find, openPage, text } from "./desk.ts";

let world: World;

beforeEach(() => {
  openPage();
  world = new World();
});

test("a row is written once a frame, with the last of all updates", async () => {
  const table = new PairTable(world.desk, find(".view.load"), LOADS, () => undefined);
  table.list([{ actual: "/load/GR", zone: "GR", forecast: "/load/forecast/GR" }], new Set(["GR"]));
  table.show(true);
  await Promise.resolve();
  world.frame();
  const cell = '[data-testid="load-value"]';
  const seen = vi.fn();
  for (let value = 5001; value <= 5050; value += 1) {
    world.say("/load/GR", value);
    seen(text(cell));
  }
  expect(new Set(seen.mock.calls.flat())).toEqual(new Set(["–"]));
  world.say("/load/forecast/GR", 5000);
  world.frame();
  expect([text(cell), text(".view.load .forecast.num:not(th)"), text(".view.load td.off")]).toEqual(["5050", "5000", "+1.0 %"]);
  expect(find("[data-endpoint='/load/GR']").dataset.version).toBe("50");
});

test("a view that is scrolled away lets its endpoints go, and shows the newest when it is back", async () => {
  const table = new PairTable(world.desk, find(".view.load"), LOADS, () => undefined);
  table.list([{ actual: "/load/GR", zone: "GR", forecast: null }], new Set());
  table.show(true);
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/load/GR"]);
  table.show(false);
  await Promise.resolve();
  expect(world.takers.size).toBe(0);
  table.show(true);
  await Promise.resolve();
  world.say("/load/GR", 7);
  world.frame();
  expect(text('[data-testid="load-value"]')).toBe("7.0");
});

test("the matrix has one stop for Tab, moves by arrow keys, and says each flow in words", async () => {
  const view = new FlowsView(world.desk, find(".view.flows"));
  view.list([["BG", "GR"], ["GR", "BG"], ["BG", "RO"], ["RO", "BG"]]);
  view.show(true);
  await Promise.resolve();
  world.say("/flows/BG/GR", 300);
  world.say("/flows/RO/BG", 100);
  world.frame();
  const cell = (from: string, to: string): HTMLElement => find(`[data-from="${from}"][data-to="${to}"]`);
  expect([cell("BG", "GR"), cell("GR", "BG"), cell("RO", "BG")].map((found) => found.textContent)).toEqual(["+300", "−300", "+100"]);
  expect([cell("GR", "BG").dataset.way, cell("GR", "BG").dataset.heat, cell("RO", "BG").dataset.heat]).toEqual(["in", "5", "2"]);
  expect(document.querySelectorAll("[data-from][tabindex='0']")).toHaveLength(1);
  cell("BG", "GR").focus();
  document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  expect(document.activeElement).toBe(cell("BG", "RO"));
  expect(document.activeElement?.ariaLabel ?? document.activeElement?.getAttribute("aria-label")).toBe("Bulgaria receives 100 MW from Romania");
  expect(text(".matrix-foot .pointed")).toBe("Bulgaria receives 100 MW from Romania");
  document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
  expect(document.activeElement?.textContent).toBe("+200");
  expect(document.querySelectorAll("[data-from][tabindex='0']")).toHaveLength(1);
});

const answer = (status: number, body: unknown): unknown => ({ ok: status === 200, status, json: () => Promise.resolve(body) });
const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
  world.frame();
};

test("a flow that was told ahead of time counts from its hour on, and without another update", async () => {
  vi.spyOn(Date, "now").mockReturnValue(Date.UTC(2026, 0, 1, 0, 59));
  const view = new FlowsView(world.desk, find(".view.flows"));
  view.list([["GR", "BG"]]);
  view.show(true);
  await Promise.resolve();
  world.say("/flows/GR/BG", 100, -200);
  world.frame();
  expect(text('[data-testid="flow"][data-from="GR"]')).toBe("+100");
  vi.spyOn(Date, "now").mockReturnValue(Date.UTC(2026, 0, 1, 1));
  view.tick();
  expect(text('[data-testid="flow"][data-from="GR"]')).toBe("−200");
  vi.restoreAllMocks();
});

test("the sources are shown, failing ones with their error; where the service does not tell there is no such view", async () => {
  const entry = { name: "prices", type: "http", ok: false, error: "line 2", last_success: null, failures: 3, endpoints: 1 };
  vi.stubGlobal("fetch", () => Promise.resolve(answer(200, { sources: [entry] })));
  const view = new SourcesView(world.desk, find(".view.sources"), () => Promise.resolve("/v1"));
  view.show(true);
  await settle();
  expect(find(".view.sources").hidden).toBe(false);
  expect([text(".sources .about"), text(".sources .state"), text(".sources .age-cell")]).toEqual(["1 of 1 not working", "Failing: line 2", "never"]);

  vi.stubGlobal("fetch", () => Promise.resolve(answer(404, {})));
  new SourcesView(world.desk, find(".view.sources"), () => Promise.resolve("/v1"));
  await settle();
  expect(find(".view.sources").hidden).toBe(true);
});
