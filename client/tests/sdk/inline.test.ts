/** Data that comes with updates: what it saves, that the rules for versions hold with it, and how the rest is fetched. */

import { beforeEach, expect, test } from "vitest";
import type { Dataset } from "../../src/sdk/snapshot.ts";
import type { Diem, DiemOptions } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import { Cluster } from "./cluster.ts";
import type { FakeSocket, FakeStore, Request } from "./world.ts";
import { CONFIG, World, body, etag, jwt } from "./world.ts";

let world: World;
let diem: Diem;
/** What servers retain. */
let retained: Map<string, number>;
/** Whether the Data Service answers by itself. */
let up: boolean;

function start(options: DiemOptions = {}): void {
  diem = createDiem({ environment: world, ...options });
}

function worldOf(storage?: World["storage"]): World {
  const made = new World();
  if (storage) made.storage = storage;
  made.auto = (url) => {
    if (url.endsWith("/config.json")) return { status: 200, body: CONFIG };
    if (!up) return undefined;
    const [endpoint = "", named] = url.slice("http://diem.test/v1/data".length).replace(/\?latest=.*/, "").split("?version=");
    const version = retained.get(endpoint);
    return version && (named === undefined || Number(named) === version) ? { status: 200, body: body(endpoint, version), headers: etag(version) } : { status: 404 };
  };
  return made;
}

beforeEach(() => {
  retained = new Map();
  up = true;
  world = worldOf();
  start();
});

/** Opens the connection; `offer`: to a server that has data. */
async function open(offer = true, more: object = {}): Promise<FakeSocket> {
  await world.advance();
  world.last.frame({ type: "welcome", server: "websocket-1", mode: "single", limits: {}, ...(offer && { data: true }), ...more });
  await world.advance();
  return world.last;
}

/** Answers the latest `subscribe` as a server does, with data for those that asked for it unless `plain`. */
async function reply(plain = false): Promise<void> {
  const { id, endpoints, data } = world.last.sent.findLast(({ type }) => type === "subscribe") as {
    id: number; endpoints: Record<string, number | null>; data?: boolean;
  };
  const known = Object.entries(endpoints);
  world.last.frame({ type: "subscribed", id, endpoints: Object.fromEntries(known.map(([name]) => [name, retained.get(name) ?? null])) });
  for (const [name, version] of known) {
    const latest = retained.get(name) ?? 0;
    if (latest > (version ?? 0)) update(name, latest, data === true && !plain);
  }
  await world.advance();
}

function update(endpoint: string, version: number, withData = true): void {
  world.last.update(endpoint, version, withData ? { data: body(endpoint, version) } : {});
}

/** The Data Service has a new version, and the server sends it. */
async function change(endpoint: string, version: number, withData = true): Promise<void> {
  retained.set(endpoint, version);
  update(endpoint, version, withData);
  await world.advance();
}

/** Versions as they are shown: negative when gone, with .5 when unconfirmed. The value of a dataset is its version. */
function view(endpoint = "/a"): number[] {
  const shown: number[] = [];
  diem.watch(endpoint, ({ version, gone, confirmed, points }: Dataset) => {
    if (!gone) expect(points[0]?.value, "data and version belong together").toBe(version);
    shown.push((gone ? -version : version) + (confirmed ? 0 : 0.5));
  });
  return shown;
}

const gets = (): string[] => world.requests.map(({ url }) => url).filter((url) => url.includes("/data"));

test("the first paint and every later update need no request", async () => {
  retained.set("/a", 5).set("/b", 7);
  const [a, b] = [view("/a"), view("/b")];
  await open();
  expect(world.last.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": null, "/b": null }, data: true }]);
  await reply();
  for (const version of [6, 7, 8]) await change("/a", version);
  await world.advance(60_000);
  expect([a, b, gets(), diem.stats.fetches]).toEqual([[5, 6, 7, 8], [7], [], {}]);
  expect(await diem.data.get("/a")).toMatchObject({ version: 8, confirmed: true });
});

test("a subscriber finds the data of its update held", async () => {
  const held: (number | undefined)[] = [];
  diem.updates.subscribe("/a", () => held.push(diem.data.peek("/a")?.version));
  await open();
  await reply();
  await change("/a", 6);
  expect([held, gets()]).toEqual([[6], []]);
});

test.each([["the page does not want it", false, true], ["the server does not offer it", true, false]])(
  "no data is asked for when %s: it is fetched at once, or after the reply", async (_why, data, offer) => {
    diem.close();
    start({ data });
    retained.set("/a", 5);
    const shown = view();
    await open(offer);
    expect(world.last.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": data ? null : 5 } }]);
    await reply();
    await change("/a", 6, false);
    expect([shown, gets().length]).toEqual([[5, 6], 2]);
  },
);

test("data that was not asked for is a notification", async () => {
  diem.close();
  start({ data: false });
  retained.set("/a", 5);
  const shown = view();
  await open();
  await change("/a", 6);
  expect([shown, gets().length]).toEqual([[5, 6], 2]);
});

test("an update without its data is fetched", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply(true);
  await change("/a", 6, false);
  await change("/a", 7);
  expect([shown, gets().length]).toEqual([[5, 6, 7], 2]);
});

test.each([
  ["another endpoint's", body("/b", 6)], ["another version's", body("/a", 7)], ["no dataset", "data"], ["no dataset", { endpoint: "/a", version: 6 }],
])("data that is %s is not shown: the update is a notification", async (_what, data) => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  retained.set("/a", 6);
  world.last.update("/a", 6, { data });
  await world.advance();
  expect([shown, gets().length]).toEqual([[5, 6], 1]);
});

test("an older version's data is not held or shown after a newer one", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  for (const [version, held] of [[8, 8], [7, 8], [8, 8], [6, 8], [9, 9]] as const) {
    update("/a", version);
    await world.advance();
    expect(diem.data.held("/a")).toBe(held);
  }
  expect([shown, gets()]).toEqual([[5, 8, 9], []]);
});

test.each([
  ["is void", (request: Request) => request.answer(410, { version: 8 })],
  ["is no failure", (request: Request) => request.answer(503, {}, { "Retry-After": "60" })],
])("data of an announced version shows it at once, and the answer to the fetch %s", async (_what, answer) => {
  const shown = view();
  await open();
  await reply();
  up = false;
  update("/a", 6, false);
  await world.advance();
  const request = world.request;
  await change("/a", 6);
  expect(shown).toEqual([6]);
  await change("/a", 7);
  answer(request);
  await world.advance(20_000);
  expect([shown, gets().length, diem.data.health.value.reachable]).toEqual([[6, 7], 2, true]); // the first was answered with 404
  expect(diem.data.peek("/a")).toMatchObject({ version: 7, gone: false });
});

test("data of a version between the one held and the one announced does not end the fetch", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  up = false;
  update("/a", 8, false);
  await world.advance();
  update("/a", 7);
  await world.advance();
  up = true;
  retained.set("/a", 8);
  world.request.answer(304);
  await world.advance(); // a 304 about version 5: 8 is still missing
  await world.advance(10_000);
  expect([shown.at(-1), diem.data.held("/a")]).toEqual([8, 8]);
});

test("a fetch that fails ends with the data of an update, and the service counts as reachable", async () => {
  const shown = view();
  await open();
  await reply();
  up = false;
  update("/a", 6, false);
  await world.advance();
  world.request.answer(503, {}, { "Retry-After": "60" });
  await world.advance();
  expect(diem.data.health.value.reachable).toBe(false);
  await change("/a", 7);
  expect([shown, diem.data.health.value.reachable]).toEqual([[7], true]);
  const before = gets().length;
  await world.advance(120_000);
  expect(gets().length).toBe(before);
});

test("gone is fetched, and what is created anew comes with its data", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  const { auto } = world;
  world.auto = () => ({ status: 410, body: { version: 6 } });
  world.last.update("/a", 6, { gone: true });
  await world.advance();
  world.auto = auto;
  await change("/a", 7);
  expect([shown, gets().length]).toEqual([[5, -6, 7], 1]);
});

test("after a resync only a request confirms: data that comes meanwhile may be older than the resync", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  up = false;
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await change("/a", 6);
  expect(diem.data.peek("/a")).toMatchObject({ version: 6, confirmed: false });
  await world.advance(2_000);
  expect(gets().length).toBe(1);
  world.request.answer(200, body("/a", 6), etag(6));
  await world.advance();
  await change("/a", 7);
  expect([shown, gets().length]).toEqual([[5, 6, 7], 1]);
});

test("a resync before the first reply is fetched at once", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(1_999);
  expect([shown, gets().length]).toEqual([[5], 1]);
});

test("after a reconnect the version that is held is known, and what changed meanwhile comes with its data", async () => {
  retained.set("/a", 5).set("/b", 5);
  const [a, b] = [view("/a"), view("/b")];
  await open();
  await reply();
  await change("/a", 6);
  world.last.end(1006);
  retained.set("/a", 9);
  await world.advance(500);
  await open();
  expect(world.last.sent).toEqual([{ type: "subscribe", id: 2, endpoints: { "/a": 6, "/b": 5 }, data: true }]);
  await reply();
  expect([a, b, gets()]).toEqual([[5, 6, 9], [5], []]);
});

test("an endpoint that is subscribed again starts from what is held", async () => {
  retained.set("/a", 5);
  const stop = diem.watch("/a", () => undefined);
  await open();
  await reply();
  stop();
  await world.advance();
  retained.set("/a", 6);
  const shown = view();
  await world.advance();
  expect(world.last.sent.at(-1)).toEqual({ type: "subscribe", id: 3, endpoints: { "/a": 5 }, data: true });
  await reply();
  expect([shown, gets()]).toEqual([[5, 6], []]);
});

test.each([
  ["does not know the endpoint", () => reply()],
  ["refuses it", () => world.last.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/a": { code: "limit", message: "" } } })],
  ["does not reply for two seconds", () => world.advance(2_000)],
  ["is lost", () => world.last.end(1006)],
  ["has sent the client away", () => world.last.end(4504)],
])("data is fetched when the server %s", async (_what, event) => {
  const shown = view();
  await open();
  expect(gets()).toEqual([]);
  const { auto } = world;
  world.auto = (url) => (url.endsWith("/data/a") ? { status: 200, body: body("/a", 5), headers: etag(5) } : auto(url));
  await event();
  await world.advance();
  expect([shown, gets().length]).toEqual([[5], 1]);
});

/** The next visit: with what this one has stored. */
async function revisit(): Promise<void> {
  view();
  await open();
  await reply();
  await world.advance(1_000);
  diem.close();
  world = worldOf(world.storage);
  start();
  await diem.data.ready;
}

test("what an earlier visit held is confirmed by a server that has the same version", async () => {
  retained.set("/a", 5);
  await revisit();
  const shown = view();
  await open();
  await reply();
  await world.advance(10_000);
  expect([shown, gets()]).toEqual([[5.5, 5], []]);
});

test("a server that is not live confirms nothing", async () => {
  retained.set("/a", 5);
  await revisit();
  const shown = view();
  await open();
  world.last.frame({ type: "status", live: false, since: "t" });
  await reply();
  expect([shown, gets().length]).toEqual([[5.5, 5], 1]);
});

test("a server that is behind confirms nothing", async () => {
  retained.set("/a", 5);
  await revisit();
  const shown = view();
  await open();
  retained.set("/a", 4);
  up = false;
  await reply();
  expect([shown, gets().length]).toEqual([[5.5], 1]);
});

/** The problems of a view. */
function problems(endpoint = "/a"): string[] {
  const found: string[] = [];
  diem.watch(endpoint, () => undefined, (problem) => found.push(problem.code));
  return found;
}

/** Time passes, in which the server sends its status. */
async function pass(ms: number, live = true): Promise<void> {
  for (let passed = 0; passed < ms; passed += 20_000) {
    world.last.frame({ type: "status", live, since: "t" });
    await world.advance(20_000);
  }
}

/** The connection is lost, and there is another one. */
async function reconnect(...frames: object[]): Promise<void> {
  world.last.end(1006);
  await world.advance(500);
  await open();
  for (const frame of frames) world.last.frame(frame);
  await reply();
}

test.each([["an older version", 7], ["nothing", 0]])("a server that retains %s of what is held: a request decides, and shows what there is as what was put back", async (_what, version) => {
  retained.set("/a", 9);
  const [shown, codes] = [view(), problems()];
  await open();
  await reply();
  retained.set("/a", version);
  world.auto = ((auto) => (url) => (url.includes("/data/a") ? { status: 200, body: body("/a", version || 3) } : auto(url)))(world.auto);
  await reconnect();
  await world.advance(4_000);
  expect([shown, codes, diem.data.peek("/a")]).toMatchObject([[9, version || 3], ["lost"], { confirmed: true }]);
  expect(gets().map((url) => url.replace(/0\.\d+$/, "N").slice(-10))).toEqual(["/v1/data/a", "a?latest=N"]);
  await change("/a", 8); // what is written after that is newer than what was put back, whatever was held before
  await pass(60_000);
  expect([shown, gets().length]).toEqual([[9, version || 3, 8], 2]);
});

test("a dataset of an earlier visit that exists no longer is replaced by what there is", async () => {
  retained.set("/a", 9);
  await revisit();
  retained.set("/a", 7);
  const shown = view();
  await open();
  await reply();
  await world.advance(10_000);
  expect([shown, diem.data.peek("/a")]).toMatchObject([[9.5, 7], { confirmed: true }]);
});

test("a server that is behind for a moment costs no request", async () => {
  retained.set("/a", 9);
  const [shown, codes] = [view(), problems()];
  await open();
  await reply();
  retained.set("/a", 7);
  await reconnect();
  await world.advance(1_000);
  for (const version of [8, 9]) await change("/a", version);
  await pass(60_000);
  expect([shown, codes, gets()]).toEqual([[9], [], []]);
});

test("a server that stays behind does not take back what the Data Service has", async () => {
  retained.set("/a", 9);
  const [shown, codes] = [view(), problems()];
  await open();
  await reply();
  retained.set("/a", 7);
  const replied = reconnect();
  await world.advance(500);
  await replied;
  retained.set("/a", 9);
  await pass(60_000);
  expect([shown, codes, gets(), diem.data.peek("/a")]).toMatchObject([[9], [], [expect.stringMatching(/a$/)], { version: 9, confirmed: true }]);
});

const NOT_LIVE = { type: "status", live: false, since: "t" };

test.each([["it", NOT_LIVE], ["the endpoint", { ...NOT_LIVE, endpoints: ["/a"] }]])("a server confirms nothing while %s is not live, and what it had then when that is live again", async (_what, status) => {
  retained.set("/a", 5);
  await revisit();
  const shown = view();
  await open();
  up = false;
  world.last.frame(status);
  await reply();
  expect([shown, gets().length], "it is fetched").toEqual([[5.5], 1]);
  world.last.frame({ ...status, live: true });
  await world.advance();
  expect(shown).toEqual([5.5, 5]);
});

test("what a server lacked while it was not live is verified when it is live again, unless it has it by then", async () => {
  retained.set("/a", 9).set("/b", 9);
  const [a, b] = [view("/a"), view("/b")];
  await open();
  await reply();
  retained.set("/a", 7).set("/b", 7);
  await reconnect(NOT_LIVE);
  await pass(60_000, false);
  expect(gets()).toEqual([]);
  update("/b", 9);
  world.last.frame({ ...NOT_LIVE, live: true });
  await world.advance(4_000);
  expect([a, b, gets().length]).toEqual([[9, 7], [9], 2]);
});

test("data that comes while a request past all caches is pending is not replaced by its answer", async () => {
  retained.set("/a", 5);
  const [shown, codes] = [view(), problems()];
  await open();
  await reply();
  up = false;
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(2_000);
  world.request.answer(200, body("/a", 4), etag(4));
  await world.advance();
  await change("/a", 6);
  world.request.answer(200, body("/a", 4), etag(4));
  await world.advance();
  expect([gets().length, shown, codes, diem.data.held("/a")]).toEqual([2, [5, 6], [], 6]);
});

test("a resync right after the reply: the version that was replied is not called confirmed before a request has said so", async () => {
  retained.set("/a", 5);
  await revisit();
  const shown = view();
  await open();
  up = false;
  const { id } = world.last.sent.findLast(({ type }) => type === "subscribe") as { id: number };
  world.last.frame({ type: "subscribed", id, endpoints: { "/a": 5 } });
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(2_000);
  expect([diem.data.peek("/a"), gets().length]).toMatchObject([{ version: 5, confirmed: false }, 1]);
  world.request.answer(200, body("/a", 8), etag(8));
  await world.advance();
  expect([shown.at(-1), diem.data.peek("/a")]).toMatchObject([8, { version: 8, confirmed: true }]);
});

test("a resync before the first reply: data that the reply brings does not end the request", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  up = false;
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await reply();
  await world.advance(2_000);
  expect(gets().length).toBe(1);
  world.request.answer(200, body("/a", 8), etag(8));
  await world.advance();
  expect(shown).toEqual([8]);
});

test("announced without data, while an old copy is served for ever: a view gets the problem, and what there is as unconfirmed", async () => {
  const [shown, codes] = [view(), problems()];
  await open();
  await reply();
  world.auto = ((auto) => (url) => (url.includes("/data/a") ? { status: 200, body: body("/a", 5) } : auto(url)))(world.auto);
  update("/a", 6, false);
  await pass(300_000);
  expect([shown, codes.slice(-1), gets().length < 45]).toEqual([[5.5], ["stale"], true]);
  await change("/a", 7);
  expect([shown, diem.data.health.value.reachable]).toEqual([[5.5, 7], true]);
});

test("offline start: what was held is shown, and confirmed by the first server that answers", async () => {
  retained.set("/a", 5);
  await revisit();
  up = false;
  const shown = view();
  await world.advance();
  world.last.end(1006); // no connection: it is fetched, which fails
  await world.advance();
  for (const request of world.requests) request.fail();
  await world.advance(500);
  expect([shown, diem.data.health.value.reachable]).toEqual([[5.5], false]);
  await open();
  await reply();
  expect([shown, diem.data.health.value.reachable]).toEqual([[5.5, 5], true]);
});

test("updates may precede the reply to the subscription, and come twice", async () => {
  const shown = view();
  await open();
  update("/a", 6);
  retained.set("/a", 6);
  await reply();
  await reply();
  expect([shown, gets()]).toEqual([[6], []]);
});

test("a version of the day after tomorrow is fetched, whatever comes with it", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  update("/a", world.wall() + 90_000_000);
  await world.advance(2_000);
  await change("/a", 6);
  expect([shown, gets().length]).toEqual([[5, 6], 1]);
});

test("data of a token's rights is not stored on the device, unless all of it is fetched", async () => {
  for (const [data, saved] of [[true, false], [false, true]] as const) {
    diem.close();
    world = worldOf();
    start({ data, token: () => jwt({ iat: world.wall() / 1000, exp: world.wall() / 1000 + 600 }) });
    retained.set("/a", 5);
    const shown = view();
    await open();
    world.last.authenticated();
    await world.advance();
    await reply();
    await world.advance(5_000);
    expect([shown, (world.storage as FakeStore).saves > 0]).toEqual([[5], saved]);
  }
});

test("after signing out nothing is requested, what waited for data included", async () => {
  const problems: string[] = [];
  diem.watch("/a", () => undefined, ({ message }) => problems.push(message));
  await open();
  await diem.clear();
  await world.advance(10_000);
  expect([gets(), problems]).toEqual([[], ["Error: signed out"]]);
});

test("an endpoint that moves: both owners send data, and nothing older is shown", async () => {
  diem.close();
  const cluster = new Cluster();
  ({ world } = cluster);
  cluster.owners.set("/a", "a");
  start();
  const shown = view();
  const at = async (server: string, versions: number[]): Promise<void> => {
    const socket = cluster.at(server) as FakeSocket;
    for (const version of versions) socket.update("/a", version, { data: body("/a", version) });
    await world.advance();
  };
  const offered = async (server: string): Promise<FakeSocket> => {
    await world.advance();
    const socket = cluster.at(server) as FakeSocket;
    socket.frame({ type: "welcome", server, mode: "z-client", limits: {}, data: true });
    await world.advance();
    return socket;
  };
  const first = await offered("a");
  expect(first.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": null }, data: true }]);
  first.frame({ type: "subscribed", id: 1, endpoints: { "/a": 5 } });
  await at("a", [5, 6]);
  first.frame({ type: "moved", endpoints: ["/a"], owner: "ws://b.diem.test/ws" });
  const second = await offered("b");
  expect(second.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": 6 }, data: true }]);
  await at("a", [7]);
  second.frame({ type: "subscribed", id: 1, endpoints: { "/a": 8 } });
  await at("b", [8]);
  await at("a", [7, 8]);
  await at("b", [9]);
  expect([shown, gets()]).toEqual([[5, 6, 7, 8, 9], []]);
});

test("what was announced is fetched by its version, which a cache may answer; without data it is revalidated", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply(true);
  await change("/a", 6, false);
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(2_000);
  expect(world.requests.slice(1).map(({ url, etag: known, cache }) => [url.slice("http://diem.test/v1".length), known, cache])).toEqual([
    ["/data/a?version=5", undefined, "default"], ["/data/a?version=6", undefined, "default"], ["/data/a", '"6-json"', "no-store"],
  ]);
  expect(shown).toEqual([5, 6]);
});

test("with a key, the browser's cache has no part in it", async () => {
  diem.close();
  start({ apiKey: "diem_one" });
  retained.set("/a", 5);
  view();
  await open();
  await reply(true);
  expect(world.request).toMatchObject({ url: "http://diem.test/v1/data/a?version=5", cache: "no-store" });
});

test("a version that is not kept any more is no failure: the latest is fetched at once", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open();
  await reply();
  retained.set("/a", 9);
  update("/a", 6, false);
  await world.advance();
  expect([shown, gets().map((url) => url.slice(-10)), diem.data.health.value.reachable]).toEqual([[5, 9], ["?version=6", "/v1/data/a"], true]);
});

test("a resync that comes while the first fetch is delayed: the version that was announced before counts for nothing", async () => {
  view();
  await open();
  await reply();
  up = false;
  update("/a", 6, false);
  await world.advance();
  world.request.answer(503);
  await world.advance();
  const before = world.requests.length;
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(10_000);
  expect(world.requests[before]?.url).toBe("http://diem.test/v1/data/a");
});

test.each([[8_000, 4_000], [60_000, 5_000], [undefined, 0], ["x", 0]])(
  "with a window of %j ms fetches start after %d ms at the middle of the dice, and fetch what is the latest then", async (fetch_window_ms, delay) => {
    retained.set("/a", 5);
    const shown = view();
    await open(true, { fetch_window_ms });
    await reply(true);
    expect(shown, "where nothing is displayed nobody waits").toEqual([5]);
    await change("/a", 6, false);
    await world.advance(delay / 2);
    await change("/a", 7, false);
    if (delay > 0) {
      await world.advance(delay / 2 - 1);
      expect(shown).toEqual([5]);
      await world.advance(1);
    }
    expect([shown.at(-1), gets().at(-1)]).toEqual([7, "http://diem.test/v1/data/a?version=7"]);
  },
);

test("data that comes within the window ends the fetch", async () => {
  retained.set("/a", 5);
  const shown = view();
  await open(true, { fetch_window_ms: 8_000 });
  await reply();
  await change("/a", 6, false);
  await world.advance(2_000);
  await change("/a", 6);
  await world.advance(20_000);
  expect([shown, gets()]).toEqual([[5, 6], []]);
});
