// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { EndpointList } from "../../../src/page/data/list.ts";
import { DataView } from "../../../src/page/data/view.ts";
import type { Listed } from "../../../src/page/zones.ts";
import { World, find, openPage, text } from "../desk.ts";

vi.mock("uplot", () => ({ default: { paths: {}, join: (tables: unknown[]) => tables } })); // jsdom has no canvas
const scenes: { key?: string; data: unknown[]; from: number; to: number }[] = [];
vi.mock("../../../src/page/plot.ts", () => ({
  Plot: class {
    show(scene: (typeof scenes)[number]): void {
      scenes.push(scene);
    }
    tick(): void {}
  },
}));

const NOW = Date.UTC(2026, 0, 1, 3);
let world: World;

beforeEach(() => {
  openPage();
  scenes.length = 0;
  vi.spyOn(Date, "now").mockReturnValue(NOW);
  world = new World();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const entry = (endpoint: string, more: Partial<Listed> = {}): Listed => ({ endpoint, gone: false, version: 1, unit: "MW", ...more });
const links = (): (string | undefined)[] => [...document.querySelectorAll<HTMLElement>(".endpoint-links a")].map(({ dataset }) => dataset.endpoint);
const press = (key: string): void => void document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));

test("of ten thousand endpoints fifty are in the document, and words find any of them", () => {
  const picked: string[] = [];
  const list = new EndpointList(find(".view.endpoints"), { href: (name) => `?view=data&endpoint=${name}`, pick: (name) => picked.push(name) });
  const name = (index: number): string => `/s/${String(index).padStart(5, "0")}`;
  list.list(Array.from({ length: 10_000 }, (_, index) => entry(name(index), { title: index === 7_777 ? "Own wind" : "" })));
  expect([links().length, links()[0], text(".found"), text(".endpoints .page-range")]).toEqual([50, name(0), "10,000 endpoints", "1–50 of 10,000"]);
  find(".endpoints .page-next").click();
  expect([links()[0], text(".endpoints .page-range")]).toEqual([name(50), "51–100 of 10,000"]);
  list.select(name(9_999));
  expect([links().length, links().at(-1), find(".endpoints .page-next").ariaDisabled]).toEqual([50, name(9_999), "true"]);
  find(".endpoints .page-next").click();
  expect(text(".endpoints .page-range")).toBe("9,951–10,000 of 10,000");

  const search = find(".search") as HTMLInputElement;
  search.value = "own WIND";
  search.dispatchEvent(new Event("input"));
  expect([links(), text(".found"), find(".endpoints .pager").hidden]).toEqual([[name(7_777)], "1 of 10,000 endpoints", true]);
  search.focus();
  press("ArrowDown");
  expect((document.activeElement as HTMLElement).dataset.endpoint).toBe(name(7_777));
  (document.activeElement as HTMLElement).click();
  expect(picked).toEqual([name(7_777)]);
  press("ArrowUp");
  expect(document.activeElement).toBe(search);
  search.value = "own wind turbine";
  search.dispatchEvent(new Event("input"));
  expect([links(), text(".endpoints .none")]).toEqual([[], "No endpoint matches."]);
  press("Escape");
  expect([search.value, text(".found"), document.activeElement === search]).toEqual(["", "10,000 endpoints", true]);
  find(".endpoint-links a").focus();
  press("Escape");
  expect(document.activeElement).toBe(search);
  list.list([]);
  expect(text(".endpoints .none")).toBe("There are no endpoints.");
});

function open(catalogue: Listed[]): { view: DataView; titles: string[]; unlisted: () => number } {
  const titles: string[] = [];
  let unlisted = 0;
  const view = new DataView(world.desk, find(".view.endpoints"), find(".view.series"), {
    rest: () => Promise.resolve("http://here/v1"),
    href: (name) => name,
    pick: (name) => view.select(name),
    titled: (title) => titles.push(title),
    unlisted: () => (unlisted += 1),
  });
  view.list(catalogue);
  view.show(true);
  return { view, titles, unlisted: () => unlisted };
}

const rows = (): (string | null)[][] =>
  [...document.querySelectorAll(".values tbody tr")].map((row) => [...row.children].slice(0, 2).map(({ textContent }) => textContent));

test("without a wish the endpoint that was written last is shown, and stays, with its own title, unit and values", async () => {
  const { view, titles } = open([entry("/a"), entry("/my/wind", { title: "Offshore wind", area: "GR", quantity: "load_forecast", version: 2 })]);
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/my/wind"]);
  world.tell("/my/wind", [1, 2.5, 3, 4]);
  world.frame();
  expect([text("#series-title"), text(".series-name"), titles.at(-1)]).toEqual(["Offshore wind", "/my/wind", "Offshore wind"]);
  expect(text(".series-facts")).toBe("GR · load forecast · MW · hourly · 4 values");
  expect([text(".series .now-value"), text(".series .now-unit"), text(".series .low b"), text(".series .mean b")]).toEqual(["4.0", "MW", "1.0", "2.6"]);
  expect(rows()[0]?.[1]).toBe("4.0");
  expect(rows()).toHaveLength(4);
  expect(text(".series .timezone")).toBe("Times in Europe/Brussels (UTC+1)");
  expect(text(".sdk code")).toContain('"/my/wind"');
  view.list([entry("/a", { version: 9 }), entry("/my/wind", { version: 2 })]);
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/my/wind"]);
});

test("a list of an earlier visit does not decide which endpoint is shown", async () => {
  const { view } = open([{ endpoint: "/a", gone: false }, { endpoint: "/b", gone: false }]);
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/a"]);
  view.list([entry("/a"), entry("/b", { version: 3 })]);
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/b"]);
});

test("no endpoint at all, one that is not there yet, and a series without values are explained", async () => {
  const { view, unlisted } = open([]);
  world.frame();
  expect([find(".start").hidden, find(".series .stage").hidden, find(".series .foot").hidden]).toEqual([false, true, true]);
  view.select("/soon");
  await Promise.resolve();
  world.frame();
  expect(find(".start").hidden).toBe(true);
  world.tell("/soon", [], { points: [{ time: "2026-01-01T00:00:00Z", value: null }] });
  world.frame();
  expect([unlisted(), text(".series .empty"), find(".series .chart").hidden, rows()[0]?.[1]]).toEqual([1, "There are no values to chart.", true, "–"]);
  expect(scenes).toEqual([]);
});

test("long tables turn pages, the newest values first", async () => {
  open([entry("/a")]);
  await Promise.resolve();
  const points = Array.from({ length: 60 }, (_, hour) => ({ time: new Date(NOW + hour * 3_600_000).toISOString(), value: hour }));
  world.tell("/a", [], { points });
  world.frame();
  expect([rows().length, rows()[0]?.[1], text(".values .page-range")]).toEqual([24, "59", "1–24 of 60"]);
  find(".values .page-next").click();
  find(".values .page-next").click();
  world.frame();
  expect([rows().length, rows().at(-1)?.[1], text(".values .page-range")]).toEqual([12, "0", "49–60 of 60"]);
  expect(scenes.at(-1)).toMatchObject({ from: NOW, to: NOW + 60 * 3_600_000 });
});

test("an earlier version is laid behind the current one, in chart and table", async () => {
  const answers: Record<string, unknown> = {
    "http://here/v1/history/a": { versions: [
      { version: 2, time: "2026-01-01T00:00:02Z", gone: false, points: 2, revised: 1 },
      { version: 1, time: "2026-01-01T00:00:01Z", gone: false, points: 2, revised: null },
    ] },
    "http://here/v1/data/a?version=1": { resolution: "PT1H", points: [{ time: "2026-01-01T00:00:00Z", value: 7 }] },
  };
  vi.stubGlobal("fetch", (url: string) => Promise.resolve({ ok: url in answers, status: url in answers ? 200 : 404, json: () => Promise.resolve(answers[url]) }));
  open([entry("/a")]);
  await Promise.resolve();
  world.tell("/a", [1, 2]);
  world.frame();
  const details = find(".history") as HTMLDetailsElement;
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  await vi.waitFor(() => expect(document.querySelectorAll(".history tbody tr")).toHaveLength(2));
  const [current, older] = [...document.querySelectorAll<HTMLButtonElement>(".history button")];
  expect([current?.hidden, older?.hidden, text(".history tbody .change")]).toEqual([true, false, "current"]);
  older?.click();
  await vi.waitFor(() => expect(older?.ariaPressed).toBe("true"));
  world.frame();
  expect(scenes.at(-1)?.key).toBe("compared");
  expect([...document.querySelectorAll(".values tbody .then")].map(({ textContent }) => textContent)).toEqual(["–", "7"]);
  expect(find(".series .keys").hidden).toBe(false);
  expect(text(".values thead .then")).toMatch(/^\d+ \w+ \d{4} \d\d:\d\d:01$/); // in the zone of this machine
  older?.click();
  await vi.waitFor(() => expect(older?.ariaPressed).toBe("false"));
  world.frame();
  expect([scenes.at(-1)?.key, find(".series .keys").hidden]).toEqual(["", true]);
});

test("of two quick comparisons only the last counts, and its problem; a list that is not there is explained", async () => {
  const answers = new Map<string, (answer: unknown) => void>();
  vi.stubGlobal("fetch", (url: string) => new Promise((resolve) => answers.set(url.replace("http://here/v1/", ""), resolve)));
  const answer = async (path: string, status: number, body: unknown = null): Promise<void> => {
    await vi.waitFor(() => expect(answers.has(path)).toBe(true));
    answers.get(path)?.({ ok: status === 200, status, json: () => Promise.resolve(body) });
  };
  const { view } = open([entry("/a"), entry("/b")]);
  await Promise.resolve();
  view.select("/a");
  await Promise.resolve();
  world.tell("/a", [1, 2]);
  world.frame();
  const details = find(".history") as HTMLDetailsElement;
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  const times = [3, 2, 1].map((version) => ({ version, time: `2026-01-01T00:00:0${version}Z`, gone: false, points: 1, revised: 1 }));
  await answer("history/a", 200, { versions: times });
  await vi.waitFor(() => expect(document.querySelectorAll(".history tbody tr")).toHaveLength(3));
  const [, second, first] = [...document.querySelectorAll<HTMLButtonElement>(".history button")];
  second?.click();
  first?.click();
  await answer("data/a?version=1", 200, { resolution: "PT1H", points: [{ time: "2026-01-01T00:00:00Z", value: 7 }] });
  await vi.waitFor(() => expect(first?.ariaPressed).toBe("true"));
  await answer("data/a?version=2", 404);
  await new Promise((resolve) => setTimeout(resolve)); // the dropped answer has been handled
  expect([first?.ariaPressed, second?.ariaPressed, text(".history-problem")]).toEqual(["true", "false", ""]);
  second?.click();
  answers.delete("data/a?version=2");
  await answer("data/a?version=2", 404);
  await vi.waitFor(() => expect(text(".history-problem")).toBe("This version is no longer kept."));
  view.select("/b");
  await Promise.resolve();
  world.tell("/b", [1]);
  world.frame();
  await answer("history/b", 404);
  await vi.waitFor(() => expect(text(".history-problem")).toBe("No versions of this endpoint are kept."));
});

test("code that could only be selected says so until another endpoint is shown", async () => {
  const { view } = open([entry("/a"), entry("/b")]);
  vi.useFakeTimers();
  find(".copy").click();
  await vi.advanceTimersByTimeAsync(60_000);
  vi.useRealTimers();
  expect(text(".copied")).toBe("Selected: copy it with Ctrl+C or ⌘C");
  view.select("/b");
  expect(text(".copied")).toBe("");
});
