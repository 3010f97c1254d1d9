/** Notices: the data is elsewhere, and the page's function loads it, at the times of fetches. */

import { beforeEach, expect, test } from "vitest";
import type { Diem, DiemOptions, LoadFunction } from "../../src/sdk/index.ts";
import { DataError, createDiem } from "../../src/sdk/index.ts";
import { NOTICE } from "../../src/sdk/snapshot.ts";
import type { FakeStore } from "./world.ts";
import { CONFIG, World } from "./world.ts";

const TIME = "2026-01-01T00:00:00.000Z";

let world: World;
let diem: Diem;
/** The version of /orders/42 in the store; negative: deleted at this one. */
let version: number;
/** Calls of the page's function, as "url version". */
let calls: string[];
let load: LoadFunction;
let signals: AbortSignal[];

const notice = (at = version): object => ({ endpoint: "/orders/42", version: at, time: TIME, url: "/api/orders/42" });

beforeEach(() => {
  world = new World();
  version = 5;
  calls = [];
  signals = [];
  load = (_url, { version: at }) => Promise.resolve({ total: at });
  world.auto = (url) => {
    if (url.endsWith("/config.json")) return { status: 200, body: CONFIG };
    const headers = { "Content-Type": NOTICE, "Diem-Version": `${version}`, "Diem-Time": TIME, ETag: `"${version}-json"` };
    return version < 0 ? { status: 410, body: { version: -version } } : { status: 200, body: notice(), headers };
  };
});

function start(options: DiemOptions = {}): void {
  const called: LoadFunction = (url, { endpoint, version: at, signal }) => {
    calls.push(`${url} ${at}`);
    signals.push(signal);
    return load(url, { endpoint, version: at, signal });
  };
  diem = createDiem({ environment: world, load: called, ...options });
}

/** The versions that a view is given, with the values. */
function view(): [number, unknown][] {
  const shown: [number, unknown][] = [];
  diem.watch<unknown>("/orders/42", (snapshot) => shown.push([snapshot.gone ? -snapshot.version : snapshot.version, snapshot.value]), () => undefined);
  return shown;
}

async function connect(welcome: object = {}): Promise<void> {
  await world.advance();
  world.last.welcome({ data: true, ...welcome });
  await world.advance();
  const { id, endpoints } = world.last.sent.at(-1) as { id: number; endpoints: Record<string, number | null> };
  world.last.frame({ type: "subscribed", id, endpoints: { "/orders/42": Math.abs(version) } });
  if (Math.abs(version) > (endpoints["/orders/42"] ?? 0)) await change(version);
}

/** The server sends this version, with the notice or without. */
async function change(to: number, inline = true): Promise<void> {
  version = to;
  world.last.update("/orders/42", Math.abs(to), to < 0 ? { gone: true } : inline ? { data: notice(), media_type: NOTICE } : {});
  await world.advance();
}

const gets = (): string[] => world.requests.map(({ url }) => url).filter((url) => url.includes("/data")).map((url) => url.slice("http://diem.test/v1/data".length));

test("one call for each version, however many views there are, and no request for the notice", async () => {
  start();
  const [one, two] = [view(), view()];
  await connect();
  await change(6);
  expect([one, two]).toEqual(Array(2).fill([[5, { total: 5 }], [6, { total: 6 }]]));
  expect([calls, gets()]).toEqual([["/api/orders/42 5", "/api/orders/42 6"], []]);
  expect(await diem.data.get<unknown>("/orders/42")).toMatchObject({ version: 6, mediaType: NOTICE, value: { total: 6 }, confirmed: true });
  expect(calls.length).toBe(2);
  diem.close();
  expect(world.timers).toBe(0);
});

test("without such a function the value is the URL", async () => {
  diem = createDiem({ environment: world });
  const shown = view();
  await connect();
  await change(6, false);
  expect([shown, gets()]).toEqual([[[5, { url: "/api/orders/42" }], [6, { url: "/api/orders/42" }]], ["/orders/42?version=6"]]);
});

test("a notice that does not come with the update is fetched, and then its data", async () => {
  start({ data: false });
  const shown = view();
  await connect();
  await change(6, false);
  expect([shown, calls, gets()]).toEqual([[[5, { total: 5 }], [6, { total: 6 }]], ["/api/orders/42 5", "/api/orders/42 6"], ["/orders/42", "/orders/42?version=6"]]);
});

test("a prefix without a URL: the page's function knows the endpoint", async () => {
  let asked = "";
  load = (url, { endpoint }) => (asked = `${url}|${endpoint}`);
  start();
  const shown = view();
  await connect();
  world.last.update("/orders/42", 6, { data: { endpoint: "/orders/42", version: 6, time: TIME }, media_type: NOTICE });
  await world.advance();
  expect([asked, shown.at(-1)]).toEqual(["|/orders/42", [6, "|/orders/42"]]);
});

test.each<[string, LoadFunction]>([
  ["rejects", () => Promise.reject(new TypeError("Failed to fetch"))],
  ["throws", () => { throw new TypeError("Failed to fetch"); }],
])("a function that %s is called again with back-off, without another request for the notice", async (_what, failing) => {
  const works = load;
  load = failing;
  start();
  const shown = view();
  const messages: string[] = [];
  diem.data.health.observe(({ failing: found }) => found.forEach(({ message }) => messages.push(message)));
  await connect();
  await world.advance(10_000);
  expect([shown, diem.data.health.value.reachable, new Set(messages)]).toEqual([[], false, new Set(["TypeError: Failed to fetch"])]);
  expect([calls.length > 3, calls.length < 10, gets()]).toEqual([true, true, []]);
  load = works;
  await world.advance(10_000);
  expect([shown, diem.data.health.value.reachable]).toEqual([[[5, { total: 5 }]], true]);
  const before = calls.length;
  await world.advance(30_000);
  expect(calls.length).toBe(before);
});

test("a notice that was fetched is fetched once, however often the function fails", async () => {
  load = () => Promise.reject(new Error("failed"));
  start({ data: false });
  view();
  await connect();
  await change(6, false);
  await world.advance(20_000);
  expect([calls.slice(0, 1), calls.length > 3, new Set(calls.slice(1)), gets()]).toEqual([["/api/orders/42 5"], true, new Set(["/api/orders/42 6"]), ["/orders/42", "/orders/42?version=6"]]);
});

test("a version that is announced without its notice is what is loaded from then on", async () => {
  const works = load;
  load = () => Promise.reject(new Error("failed"));
  start();
  const shown = view();
  await connect();
  await change(6, false);
  load = works;
  await world.advance(10_000);
  expect([shown, calls, gets()]).toEqual([[[6, { total: 6 }]], ["/api/orders/42 5", "/api/orders/42 6"], ["/orders/42?version=6"]]);
});

test("after a resync the notice is fetched: the one before may be outdated", async () => {
  const works = load;
  load = () => Promise.reject(new Error("failed"));
  start();
  const shown = view();
  await connect();
  version = 6;
  world.last.frame({ type: "resync", endpoints: ["/orders/42"] });
  load = works;
  await world.advance(10_000);
  expect([shown, gets()]).toEqual([[[6, { total: 6 }]], ["/orders/42"]]);
});

test("an error of the page's own keeps its status", async () => {
  load = () => Promise.reject(new DataError("no order 42", 404));
  start();
  const problems: unknown[] = [];
  diem.watch<unknown>("/orders/42", () => undefined, (problem) => problems.push(problem));
  await connect();
  await world.advance(2_000);
  expect(problems).toMatchObject([{ message: "no order 42", status: 404 }]);
});

test("a version that is announced during a call is loaded after it", async () => {
  const answers: ((value: unknown) => void)[] = [];
  load = () => new Promise((resolve) => void answers.push(resolve));
  start();
  const shown = view();
  await connect();
  await change(6);
  await change(7);
  expect(calls).toEqual(["/api/orders/42 5"]);
  answers[0]?.("five");
  await world.advance();
  answers[1]?.("seven");
  await world.advance();
  expect([shown, calls, gets()]).toEqual([[[5, "five"], [7, "seven"]], ["/api/orders/42 5", "/api/orders/42 7"], []]);
});

test("calls are spread over the window that the server asks for, and what changes within it is loaded once", async () => {
  start();
  const shown = view();
  await connect({ fetch_window_ms: 4_000 });
  expect(shown).toEqual([[5, { total: 5 }]]); // where nothing is displayed nobody waits
  await change(6);
  await world.advance(1_000);
  await change(7);
  await world.advance(999);
  expect(calls.length).toBe(1);
  await world.advance(1);
  expect([shown.at(-1), calls]).toEqual([[7, { total: 7 }], ["/api/orders/42 5", "/api/orders/42 7"]]);
});

test("a call that takes more than half a minute is aborted, and repeated", async () => {
  const works = load;
  load = () => new Promise(() => undefined);
  start();
  const shown = view();
  await connect();
  await world.advance(29_999);
  expect([calls.length, signals[0]?.aborted]).toEqual([1, false]);
  load = works;
  await world.advance(1);
  expect([signals[0]?.aborted, diem.data.health.value.failing.get("/orders/42")?.message]).toEqual([true, "no data in time"]);
  await world.advance(1_000);
  expect(shown).toEqual([[5, { total: 5 }]]);
});

test("after a reconnect and after a resync the same version is not loaded again", async () => {
  start();
  const shown = view();
  await connect();
  world.last.end(1006);
  await world.advance(500);
  await connect();
  expect(world.last.sent.at(-1)).toMatchObject({ endpoints: { "/orders/42": 5 } });
  world.last.frame({ type: "resync", endpoints: ["/orders/42"] });
  await world.advance(2_000);
  expect([shown.length, calls.length, gets(), diem.data.peek("/orders/42")?.confirmed]).toEqual([1, 1, ["/orders/42"], true]);
});

test("what changed while the connection was lost is loaded", async () => {
  start();
  const shown = view();
  await connect();
  world.last.end(1006);
  version = 9;
  await world.advance(500);
  await connect();
  await world.advance(2_000);
  expect([shown.at(-1), calls.length, gets()]).toEqual([[9, { total: 9 }], 2, []]);
});

test("deleted, and made again", async () => {
  start();
  const shown = view();
  await connect();
  await change(-6);
  await change(7);
  expect([shown, calls]).toEqual([[[5, { total: 5 }], [-6, null], [7, { total: 7 }]], ["/api/orders/42 5", "/api/orders/42 7"]]);
});

test("what the page has loaded with its own rights is not stored on the device", async () => {
  start();
  view();
  await connect();
  await world.advance(2_000);
  diem.close();
  expect((world.storage as FakeStore).kept.size).toBe(0);
});

test("nobody calls after signing out", async () => {
  load = () => Promise.reject(new Error("failed"));
  start();
  view();
  await connect();
  const before = calls.length;
  await diem.clear();
  await world.advance(60_000);
  expect([calls.length, world.timers]).toEqual([before, 0]);
});

test("notices that nobody loads are forgotten beyond a number: the notice is fetched then", async () => {
  start();
  await world.advance();
  diem.updates.subscribe("/orders/42", () => undefined);
  for (let n = 0; n < 1_024; n += 1) diem.updates.subscribe(`/other/${n}`, () => undefined);
  await connect();
  const others = (from: number, to: number): void => {
    for (let n = from; n < to; n += 1) world.last.update(`/other/${n}`, 5, { data: { endpoint: `/other/${n}`, version: 5, time: TIME }, media_type: NOTICE });
  };
  others(0, 1_023);
  await change(6); // the latest now
  others(1_023, 1_024);
  expect([await diem.data.get<unknown>("/orders/42"), gets()]).toMatchObject([{ value: { total: 6 } }, []]);
  const { auto } = world;
  world.auto = (url) => (url.includes("/other/0") ? { status: 200, body: { endpoint: "/other/0", version: 5, time: TIME }, headers: { "Content-Type": NOTICE, "Diem-Version": "5" } } : auto(url));
  expect([await diem.data.get<unknown>("/other/0"), gets()]).toMatchObject([{ value: { total: 5 } }, ["/other/0?version=5"]]);
});

test("another endpoint's notice, or another version's, is none", async () => {
  start();
  view();
  await connect();
  world.last.update("/orders/42", 6, { data: { ...notice(7) }, media_type: NOTICE });
  version = 6;
  await world.advance();
  expect([calls.at(-1), gets()]).toEqual(["/api/orders/42 6", ["/orders/42?version=6"]]);
});
