// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { valueWords } from "../../../src/page/data/kinds/collection.ts";
import { webAddress } from "../../../src/page/data/kinds/notice.ts";
import { columnsOf } from "../../../src/page/data/kinds/table.ts";
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

function open(catalogue: Listed[], pick?: (name: string) => void): { view: DataView; titles: string[]; unlisted: () => number } {
  const titles: string[] = [];
  let unlisted = 0;
  const view = new DataView(world.desk, find(".view.endpoints"), find(".view.endpoint"), {
    rest: () => Promise.resolve("http://here/v1"),
    href: (name) => name,
    pick: pick ?? ((name) => view.select(name)),
    titled: (title) => titles.push(title),
    unlisted: () => (unlisted += 1),
  });
  view.list(catalogue);
  view.show(true);
  return { view, titles, unlisted: () => unlisted };
}

const SERIES = "application/vnd.diem.series+json";
const buttons = (name: string): HTMLButtonElement[] => [...document.querySelectorAll<HTMLButtonElement>(`.history button[name=${name}]`)];

/** An answer of the Data Service; that with points is a series. */
function reply(body: unknown, status = 200, type = body !== null && typeof body === "object" && "points" in body ? SERIES : "application/json"): Response {
  return new Response(typeof body === "string" ? body : JSON.stringify(body), { status, headers: { "Content-Type": type } });
}

/** Answers requests by their URL, others with 404. */
function serve(answers: Record<string, unknown>): void {
  vi.stubGlobal("fetch", (url: string) => Promise.resolve(url in answers ? (answers[url] instanceof Response ? answers[url] : reply(answers[url])) : reply({}, 404)));
}

const rows = (): (string | null)[][] =>
  [...document.querySelectorAll(".values tbody tr")].map((row) => [...row.children].slice(0, 2).map(({ textContent }) => textContent));

test("without a wish the endpoint that was written last is shown, and stays, with its own title, unit and values", async () => {
  const { view, titles } = open([entry("/a"), entry("/my/wind", { title: "Offshore wind", area: "GR", quantity: "load_forecast", version: 2 })]);
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/my/wind"]);
  world.tell("/my/wind", [1, 2.5, 3, 4]);
  world.frame();
  expect([text("#endpoint-title"), text(".endpoint-name"), titles.at(-1)]).toEqual(["Offshore wind", "/my/wind", "Offshore wind"]);
  expect(text(".endpoint-facts")).toBe("GR · load forecast · MW · hourly · 4 values");
  expect([text(".endpoint .now-value"), text(".endpoint .now-unit"), text(".endpoint .low b"), text(".endpoint .mean b")]).toEqual(["4.0", "MW", "1.0", "2.6"]);
  expect(rows()[0]?.[1]).toBe("4.0");
  expect(rows()).toHaveLength(4);
  expect(text(".endpoint .timezone")).toBe("Times in Europe/Brussels (UTC+1)");
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
  expect([find(".start").hidden, find(".endpoint .kind.series .stage").parentElement?.hidden, find(".endpoint .foot").hidden]).toEqual([false, true, true]);
  view.select("/soon");
  await Promise.resolve();
  world.frame();
  expect(find(".start").hidden).toBe(true);
  world.tell("/soon", [], { points: [{ time: "2026-01-01T00:00:00Z", value: null }] });
  world.frame();
  expect([unlisted(), text(".endpoint .no-values"), find(".endpoint .chart").hidden, rows()[0]?.[1]]).toEqual([1, "There are no values to chart.", true, "–"]);
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
      { version: 2, time: "2026-01-01T00:00:02Z", gone: false, media_type: SERIES, points: 2, revised: 1 },
      { version: 1, time: "2026-01-01T00:00:01Z", gone: false, media_type: SERIES, points: 2, revised: null },
    ] },
    "http://here/v1/data/a?version=1": { resolution: "PT1H", points: [{ time: "2026-01-01T00:00:00Z", value: 7 }] },
  };
  serve(answers);
  open([entry("/a")]);
  await Promise.resolve();
  world.tell("/a", [1, 2]);
  world.frame();
  const details = find(".history") as HTMLDetailsElement;
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  await vi.waitFor(() => expect(document.querySelectorAll(".history tbody tr")).toHaveLength(2));
  const [current, older] = buttons("compare");
  expect([current?.hidden, older?.hidden, text(".history tbody .change")]).toEqual([true, false, "current"]);
  older?.click();
  await vi.waitFor(() => expect(older?.ariaPressed).toBe("true"));
  world.frame();
  expect(scenes.at(-1)?.key).toBe("compared");
  expect([...document.querySelectorAll(".values tbody .then")].map(({ textContent }) => textContent)).toEqual(["–", "7"]);
  expect(find(".endpoint .keys").hidden).toBe(false);
  expect(text(".values thead .then")).toMatch(/^\d+ \w+ \d{4} \d\d:\d\d:01$/); // in the zone of this machine
  older?.click();
  await vi.waitFor(() => expect(older?.ariaPressed).toBe("false"));
  world.frame();
  expect([scenes.at(-1)?.key, find(".endpoint .keys").hidden]).toEqual(["", true]);
});

test("of two quick comparisons only the last counts, and its problem; a list that is not there is explained", async () => {
  const answers = new Map<string, (answer: unknown) => void>();
  vi.stubGlobal("fetch", (url: string) => new Promise((resolve) => answers.set(url.replace("http://here/v1/", ""), resolve)));
  const answer = async (path: string, status: number, body: unknown = null): Promise<void> => {
    await vi.waitFor(() => expect(answers.has(path)).toBe(true));
    answers.get(path)?.(reply(body, status));
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
  const times = [3, 2, 1].map((version) => ({ version, time: `2026-01-01T00:00:0${version}Z`, gone: false, media_type: SERIES, points: 1, revised: 1 }));
  await answer("history/a", 200, { versions: times });
  await vi.waitFor(() => expect(document.querySelectorAll(".history tbody tr")).toHaveLength(3));
  const [, second, first] = buttons("compare");
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

const JSON_TYPE = "application/json";
let picked: string[];
let blobs: { blob: Blob; url: string }[];

/** Opens the page at an endpoint. */
async function openAt(endpoint: string, catalogue: Listed[] = []): Promise<DataView> {
  picked = [];
  blobs = [];
  vi.stubGlobal("fetch", () => Promise.resolve(reply({}, 404)));
  URL.createObjectURL = (blob: Blob) => {
    blobs.push({ blob, url: `blob:${blobs.length}` });
    return `blob:${blobs.length - 1}`;
  };
  URL.revokeObjectURL = (url) => void blobs.splice(0, blobs.length, ...blobs.filter((each) => each.url !== url));
  const { view } = open(catalogue, (name) => void picked.push(name));
  view.select(endpoint);
  await Promise.resolve();
  return view;
}

async function send(endpoint: string, mediaType: string, value: unknown, particular: object = {}): Promise<void> {
  world.send(endpoint, mediaType, value, particular);
  world.frame();
  await Promise.resolve(); // members are watched
}

/** What a reader of the tree gets, by row; what is cut off from it is in brackets. */
const tree = (): string[] => [...document.querySelectorAll('.tree [role="treeitem"]')].map(heard);
function heard(row: Element): string {
  const parts = [...row.children].filter((part) => !(part as HTMLElement).hidden && part.ariaHidden !== "true").map(({ textContent }) => textContent);
  return `${row.getAttribute("aria-level")} ${parts.join("")}`;
}
const focused = (): string | undefined => (document.activeElement as HTMLElement).dataset.id;
const shownKinds = (): string[] => [...document.querySelectorAll<HTMLElement>(".view.endpoint > .kind")].filter(({ hidden }) => !hidden).map(({ className }) => className);

test("a document is a tree, and an update marks what it has changed until the next one", async () => {
  await openAt("/score", [{ endpoint: "/score", gone: false, kind: "document", mediaType: JSON_TYPE, version: 1 }]);
  await send("/score", JSON_TYPE, { home: 1, away: 0, events: [{ minute: 3 }] });
  expect(shownKinds()).toEqual(["kind document"]);
  expect([text(".endpoint-facts"), find(".differences").hidden, find(".price-figure").hidden]).toEqual(["JSON", true, true]);
  expect(tree()).toEqual(["1 home: 1", "1 away: 0", "1 events: 1 item", "2 0: 1 field", "3 minute: 3"]);

  await send("/score", JSON_TYPE, { home: 2, events: [{ minute: 3 }, { minute: 9 }] });
  expect(text(".differences span")).toBe("With the last update: 1 changed, 1 added, 1 removed");
  expect(tree()).toEqual([
    "1 changed: home: was 1 now 2", "1 removed: away: 0", "1 events: 2 items", "2 0: 1 field", "3 minute: 3", "2 added: 1: 1 field", "3 minute: 9",
  ]);
  expect([...document.querySelectorAll(".tree .sign")].map(({ textContent }) => textContent).join("")).toBe("≠−+");

  await send("/score", JSON_TYPE, { home: 2, events: [{ minute: 3 }, { minute: 10 }] });
  expect(tree()).toEqual(["1 home: 2", "1 events: 2 items", "2 0: 1 field", "3 minute: 3", "2 1: 1 field", "3 changed: minute: was 9 now 10"]);
});

test("a list of objects is a table, too, with what an update has changed", async () => {
  await openAt("/bids");
  const cells = (): string[] => [...document.querySelectorAll(".objects tr")].map((row) => [...row.children].map(({ textContent }) => textContent).join("|"));
  await send("/bids", JSON_TYPE, [{ price: 5.5, by: "ada" }, { price: 5, amount: [1, 2] }]);
  expect([find(".objects").hidden, cells()]).toEqual([false, ["#|price|by|amount", "0|5.5|ada|", "1|5||[1, 2]"]]);
  await send("/bids", JSON_TYPE, [{ price: 6, by: "ada" }, { price: 5, amount: [1, 3], by: "" }, { price: 4 }]);
  expect(cells()).toEqual(["#|price|by|amount", "0|changed: 6|ada|", "1|5|added: |changed: [1, 3]", "added: 2|4||"]);
  await send("/bids", JSON_TYPE, Array.from({ length: 45 }, (_, index) => ({ n: index })));
  expect([cells().length, text(".objects .page-range"), cells().at(-1)]).toEqual([21, "1–20 of 45", "added: 19|19"]);
  find(".objects .page-next").click();
  expect(cells().slice(0, 2)).toEqual(["#|n", "added: 20|20"]);
  await send("/bids", JSON_TYPE, [{ n: 1 }, 2]);
  expect([find(".objects").hidden, tree().length > 0]).toEqual([true, true]);
});

test("what is no list of objects with few fields is no table", () => {
  const wide = Object.fromEntries(Array.from({ length: 11 }, (_, index) => [index, 0]));
  expect([1, null, {}, [], [{}], [[1]], [null], [{ a: 1 }, 2], [wide]].map(columnsOf)).toEqual(Array(9).fill([]));
  expect(columnsOf([{ a: 1, b: 2 }, { c: 3, a: 4 }])).toEqual(["a", "b", "c"]);
});

test("what was deleted stays, with its marks", async () => {
  await openAt("/score");
  await send("/score", JSON_TYPE, 1);
  await send("/score", JSON_TYPE, 2);
  await send("/score", JSON_TYPE, null, { gone: true });
  expect([tree(), text(".note")]).toEqual([["1 changed: was 1 now 2"], "Deleted"]);
  await send("/score", JSON_TYPE, null);
  expect([tree(), text(".note")]).toEqual([["1 changed: was 2 now null"], ""]);
});

test("an endpoint that was deleted before is explained", async () => {
  await openAt("/score");
  await send("/score", "", null, { gone: true, points: [] });
  expect([text(".endpoint .empty"), shownKinds()]).toEqual(["Deleted", []]);
});

test("the arrow keys move in the tree, open and close; Tab has one stop, which stays at its value", async () => {
  await openAt("/score");
  await send("/score", JSON_TYPE, { a: { b: [1, 2] }, c: 3 });
  const stops = (): (string | undefined)[] => [...document.querySelectorAll<HTMLElement>('.tree [tabindex="0"]')].map(({ dataset }) => dataset.id);
  expect(stops()).toEqual(["/a"]);
  find('.tree [tabindex="0"]').focus();
  press("ArrowRight");
  press("ArrowRight");
  press("ArrowRight");
  expect([focused(), stops()]).toEqual(["/a/b/0", ["/a/b/0"]]);
  press("ArrowLeft");
  press("ArrowLeft");
  expect([focused(), tree()]).toEqual(["/a/b", ["1 a: 1 field", "2 b: [1, 2]", "1 c: 3"]]);
  press("Enter");
  press("End");
  expect(focused()).toBe("/c");
  press("ArrowDown");
  expect(focused()).toBe("/c");
  await send("/score", JSON_TYPE, { z: 0, a: { b: [1, 2] }, c: 4 });
  expect([focused(), stops()]).toEqual(["/c", ["/c"]]);
  await send("/score", JSON_TYPE, { z: 0, a: 1 });
  expect(focused()).toBe("/c~removed"); // the row that is where it was
  press("Home");
  expect(focused()).toBe("/z");
});

test("differences in closed branches are counted, and shown by a button", async () => {
  await openAt("/score");
  const many = Array.from({ length: 200 }, (_, index) => ({ index, deep: { value: 0 } }));
  await send("/score", JSON_TYPE, { many });
  expect([tree().length, find(".show-differences").hidden]).toEqual([1, true]);
  await send("/score", JSON_TYPE, { many: many.with(150, { index: 150, deep: { value: 1 } }) });
  expect(tree()[0]).toMatch(/^1 many: \[\{"index": 0.*…1 difference$/);
  find(".show-differences").click();
  expect(focused()).toBe("/many/150/deep/value");
  expect(heard(document.activeElement as Element)).toBe("4 changed: value: was 0 now 1");
  expect(find(".show-differences").hidden).toBe(true);
  expect(tree().filter((row) => row.endsWith("more"))).toEqual(["2 50 more", "2 49 more"]);
  find('[data-kind="more"]').click();
  expect(tree().filter((row) => row.endsWith("more"))).toEqual([]);
});

test("text is text, whatever it is, and marks its lines", async () => {
  await openAt("/page");
  await send("/page", "text/html", "<script>window.owned = 1</script>\nHi");
  expect([shownKinds(), text(".text"), document.querySelector(".text")?.childElementCount]).toEqual([["kind bytes"], "<script>window.owned = 1</script>\nHi", 0]);
  expect([text(".endpoint-facts"), find(".download").hidden, blobs]).toEqual(["text/html · 36 B", false, []]);
  await send("/page", "text/html", "<b>Hello</b>\nHi");
  expect([...document.querySelectorAll(".text .line")].map(({ textContent }) => textContent)).toEqual(["removed: <script>window.owned = 1</script>\n", "added: <b>Hello</b>\n", "Hi\n"]);
  expect(text(".differences span")).toBe("With the last update: 1 line added, 1 line removed");
  await send("/page", "image/svg+xml", new TextEncoder().encode("<svg onload='owned()'/>"));
  expect([find("figure").hidden, text(".text del + ins")]).toEqual([true, "added: <svg onload='owned()'/>\n"]);
});

test("of a long text the beginning is shown, and more when it is asked for", async () => {
  await openAt("/log");
  await send("/log", "text/plain", "x".repeat(30_000));
  expect([text(".text")?.length, text(".more"), find(".more").hidden]).toEqual([20_000, "Show 10,000 more characters", false]);
  find(".more").click();
  expect([text(".text")?.length, find(".more").hidden]).toEqual([30_000, true]);
  await send("/log", "text/plain", "y".repeat(3_000_000));
  expect([text(".text")?.length, text(".more"), text(".differences span")]).toEqual([2_000_000, "1,000,000 more characters are in the download", "With the last update: too long to compare"]);
});

test("images are shown as what their type says, others can be saved, without their type", async () => {
  await openAt("/logo");
  await send("/logo", "image/png", Uint8Array.of(1, 2));
  expect([find("figure").hidden, find("figure img").getAttribute("src"), blobs.map(({ blob }) => [blob.type, blob.size])]).toEqual([false, "blob:0", [["image/png", 2]]]);
  await send("/logo", "application/pdf", Uint8Array.of(1));
  expect([find("figure").hidden, text(".file")]).toEqual([true, "There is no view for this type: 1 B to download."]);
  const clicked: HTMLAnchorElement[] = [];
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    clicked.push(this);
  });
  find(".download").click();
  expect(clicked.map(({ download }) => download)).toEqual(["logo.pdf"]);
  expect(blobs.at(-1)?.blob.type).toBe("application/octet-stream");
});

test("a notice leads to its data, by addresses of the web alone", async () => {
  await openAt("/orders/42");
  const link = (): string | null => find(".kind.notice a").getAttribute("href");
  await send("/orders/42", "application/vnd.diem.notice+json", { url: "https://shop.example/orders/42" });
  expect([shownKinds(), link(), text(".notice-version")]).toEqual([["kind notice"], "https://shop.example/orders/42", "1"]);
  await send("/orders/42", "application/vnd.diem.notice+json", { url: "javascript:alert(1)" });
  expect([link(), text(".kind.notice a")]).toEqual([null, "javascript:alert(1)"]);
  await send("/orders/42", "application/vnd.diem.notice+json", {});
  expect([link(), text(".kind.notice a")]).toEqual([null, "No URL is configured ([[prefix]] url in diem.toml)"]);
  expect([webAddress("/api/x"), webAddress("data:text/html,x"), webAddress("http://["), webAddress("")]).toEqual([`${location.origin}/api/x`, null, null, null]);
});

test("a collection shows what its members are now, and who came and went", async () => {
  await openAt("/game/42/", [{ endpoint: "/game/42/clock", gone: false, kind: "document", mediaType: JSON_TYPE, version: 1 }]);
  const members = (...names: string[]): Promise<void> => send("/game/42/", "application/vnd.diem.collection+json", { members: names.map((name) => `/game/42/${name}`) });
  await members("clock", "odds/", "score");
  expect([...world.takers.keys()]).toEqual(["/game/42/", "/game/42/clock", "/game/42/score"]);
  expect([text(".endpoint-facts"), find(".history").hidden, text(".parent")]).toEqual(["collection · 3 members", true, "Member of /game/"]);
  await send("/game/42/score", JSON_TYPE, { home: 2 });
  const rows = (): (string | null)[][] => [...document.querySelectorAll(".collection tbody tr")].map((row) => [...row.children].map(({ textContent }) => textContent));
  expect(rows()).toEqual([["clock", "JSON", "", ""], ["odds/", "collection", "", ""], ["score", "JSON", '{"home": 2}', "2 h"]]);

  await members("clock", "lineup", "score");
  expect(text(".differences span")).toBe("With the last update: 1 added, 1 removed");
  expect(rows().map(([name]) => name)).toEqual(["clock", "+added: lineup", "−removed: odds/", "score"]);
  find('.collection a[data-endpoint="/game/42/score"]').click();
  find(".parent a").click();
  expect(picked).toEqual(["/game/42/score", "/game/"]);
});

test("of a large collection only the members that are shown are watched", async () => {
  const view = await openAt("/all/");
  await send("/all/", "application/vnd.diem.collection+json", { members: Array.from({ length: 1_000 }, (_, index) => `/all/${String(index).padStart(4, "0")}`) });
  expect(world.takers.size).toBe(25);
  find(".kind.collection .page-next").click();
  await Promise.resolve();
  expect([world.takers.size, world.takers.has("/all/0024"), world.takers.has("/all/0023")]).toEqual([25, true, false]);
  view.select("/other");
  await Promise.resolve();
  expect([...world.takers.keys()]).toEqual(["/other"]);
});

test("values in a few words", () => {
  const words = (mediaType: string, value: unknown, gone = false): string =>
    valueWords({ endpoint: "/x", version: 1, time: "", mediaType, value, gone, confirmed: true });
  expect(words("application/vnd.diem.series+json", { unit: "EUR/MWh", resolution: "PT1H", points: [{ time: "2026-01-01T00:00:00Z", value: 1.5 }] })).toBe("1.5 €/MWh");
  expect(words("application/vnd.diem.series+json", { unit: "MW", resolution: "PT1H", points: [] })).toBe("no values");
  expect([words(JSON_TYPE, [1, "a"]), words("text/plain", "a\nb"), words("image/png", Uint8Array.of(1)), words("application/vnd.diem.notice+json", { url: "/u" }), words(JSON_TYPE, 1, true)]).toEqual(
    ['[1, "a"]', "a\nb", "1 B", "/u", "deleted"],
  );
});

test("old versions are viewed, and any two are compared", async () => {
  const at = (second: number): string => `2026-01-01T00:00:0${second}Z`;
  const answers: Record<string, unknown> = {
    "http://here/v1/history/score": { versions: [3, 2, 1].map((version) => ({ version, time: at(version), gone: false, media_type: JSON_TYPE, bytes: 10, revised: null })) },
    "http://here/v1/data/score?version=2": { home: 1 },
    "http://here/v1/data/score?version=1": { home: 0 },
  };
  await openAt("/score");
  serve(answers);
  await send("/score", JSON_TYPE, { home: 3 }, { version: 3 });
  const details = find(".history") as HTMLDetailsElement;
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  await vi.waitFor(() => expect(document.querySelectorAll(".history tbody tr")).toHaveLength(3));
  const button = (name: string, version: number): HTMLButtonElement => find(`.history button[name=${name}][value="${version}"]`) as HTMLButtonElement;
  const press = async (name: string, version: number, pressed: boolean): Promise<void> => {
    button(name, version).click();
    await vi.waitFor(() => expect(button(name, version).ariaPressed).toBe(String(pressed)));
    world.frame();
  };
  await press("compare", 1, true);
  expect([tree(), text(".differences span")]).toEqual([["1 changed: home: was 0 now 3"], expect.stringMatching(/^Compared with the version of .*:01: 1 changed$/)]);
  await press("view", 2, true);
  expect([tree(), find(".old-version").hidden, text(".old-version span")]).toEqual([["1 changed: home: was 0 now 1"], false, expect.stringMatching(/:02, not the current one\.$/)]);
  await send("/score", JSON_TYPE, { home: 4 }, { version: 4 });
  expect(tree()).toEqual(["1 changed: home: was 0 now 1"]); // the old version stays
  await press("compare", 1, false);
  expect([tree(), find(".differences").hidden]).toEqual([["1 home: 1"], true]);
  find(".leave").click();
  await vi.waitFor(() => expect(button("view", 2).ariaPressed).toBe("false"));
  world.frame();
  expect([tree(), find(".old-version").hidden]).toEqual([["1 changed: home: was 3 now 4"], true]);
});
