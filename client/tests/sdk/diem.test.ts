import { beforeEach, expect, test, vi } from "vitest";
import { ConfigSource, parseConfig } from "../../src/sdk/config.ts";
import type { Dataset } from "../../src/sdk/snapshot.ts";
import type { Diem } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import { CONFIG, World, body, etag } from "./world.ts";

let world: World;
let stored: Map<string, number>;
let up: boolean;
let diem: Diem;

beforeEach(() => {
  world = new World();
  stored = new Map();
  up = true;
  world.auto = (url) => {
    if (url.endsWith("/config.json")) return { status: 200, body: CONFIG };
    if (!up) return { status: 503 };
    const [endpoint = "", named] = url.slice("http://diem.test/v1/data".length).replace(/\?latest=.*/, "").split("?version=");
    const version = stored.get(endpoint);
    return version && (named === undefined || Number(named) === version) ? { status: 200, body: body(endpoint, version), headers: etag(version) } : { status: 404 };
  };
  diem = createDiem({ data: false, environment: world });
});

async function connected(): Promise<void> {
  await world.advance();
  world.last.welcome();
  await world.advance();
}

/** The Data Service accepts a version and the server tells it. */
function change(endpoint: string, version: number): void {
  stored.set(endpoint, version);
  world.last.update(endpoint, version);
}

function view(endpoint: string): { shown: number[]; problems: string[]; stop: () => void } {
  const shown: number[] = [];
  const problems: string[] = [];
  const stop = diem.watch(
    endpoint,
    (dataset: Dataset) => shown.push(dataset.gone ? -dataset.version : dataset.version),
    (problem) => problems.push(problem.message),
  );
  return { shown, problems, stop };
}

test("the page's server is on the page's host, at the configured port", async () => {
  await connected();
  expect(world.last.url).toBe("ws://diem.test:8101/ws");
});

test("two views of an endpoint: one subscription, one fetch per version, both end at the latest", async () => {
  stored.set("/a", 5);
  const views = [view("/a"), view("/a")];
  await connected();
  expect(world.last.sent[0]).toEqual({ type: "subscribe", id: 1, endpoints: { "/a": 5 } });
  for (const version of [6, 7]) {
    change("/a", version);
    await world.advance();
  }
  expect(views.map(({ shown }) => shown)).toEqual([[5, 6, 7], [5, 6, 7]]);
  expect(diem.stats.fetches).toEqual({ "/a": 3 });
  expect(diem.stats.updateFrames).toBe(2);
});

test("a burst costs fewer fetches than versions, and ends at the last", async () => {
  stored.set("/a", 1);
  const { shown } = view("/a");
  await connected();
  for (let version = 2; version <= 100; version += 1) change("/a", version);
  await world.advance(1_000);
  expect(shown.at(-1)).toBe(100);
  expect(diem.stats.fetches["/a"]).toBeLessThanOrEqual(3);
});

test("an update that comes during a fetch is shown too", async () => {
  const auto = world.auto;
  world.auto = (url) => (url.includes("/data/a") ? undefined : auto(url));
  const { shown } = view("/a");
  await connected();
  world.last.update("/a", 6);
  world.request.answer(200, body("/a", 5), etag(5));
  await world.advance();
  expect(shown).toEqual([5]);
  world.request.answer(200, body("/a", 6), etag(6));
  await world.advance();
  expect(shown).toEqual([5, 6]);
});

test("an update whose fetch fails is still shown in the end, without another update", async () => {
  stored.set("/a", 5);
  const { shown } = view("/a");
  await connected();
  up = false;
  change("/a", 6);
  await world.advance(15_000);
  expect(shown).toEqual([5]);
  expect(diem.data.health.value.reachable).toBe(false);
  up = true;
  await world.advance(10_000);
  expect(shown).toEqual([5, 6]);
  expect(diem.data.health.value.reachable).toBe(true);
});

test("what changed while the connection was lost arrives after it, spread over two seconds", async () => {
  stored.set("/a", 5);
  const { shown } = view("/a");
  await connected();
  world.last.end(1006);
  await world.advance(500);
  world.last.welcome();
  expect(world.last.sent).toEqual([{ type: "subscribe", id: 2, endpoints: { "/a": 5 } }]);
  change("/a", 6);
  await world.advance(999);
  expect(shown).toEqual([5]);
  await world.advance(1);
  expect(shown).toEqual([5, 6]);
});

test("status frames of a healthy server do not delay fetches", async () => {
  stored.set("/a", 5);
  view("/a");
  await connected();
  for (const live of [true, false, true, true]) world.last.frame({ type: "status", live, since: "t" });
  change("/a", 6);
  await world.advance();
  expect(diem.data.held("/a")).toBe(6);
});

test("when the server becomes live again, waiting fetches are repeated within two seconds", async () => {
  world.dice = 0.999999;
  stored.set("/a", 5);
  const { shown } = view("/a");
  await connected();
  up = false;
  change("/a", 6);
  world.last.frame({ type: "status", live: false, since: "t" });
  await world.advance(15_600);
  up = true;
  world.last.frame({ type: "status", live: true, since: "t" });
  await world.advance(2_000);
  expect(shown).toEqual([5, 6]);
});

test("gone is shown, and so is what is created anew", async () => {
  stored.set("/a", 5);
  const { shown } = view("/a");
  await connected();
  const auto = world.auto;
  world.auto = (url) => (url.includes("/data/a") ? { status: 410 } : auto(url));
  world.last.update("/a", 6, { gone: true });
  await world.advance();
  world.auto = auto;
  change("/a", 7);
  await world.advance();
  expect(shown).toEqual([5, -6, 7]);
});

test("an endpoint that does not exist yet is a problem first and data later", async () => {
  const { shown, problems } = view("/a");
  await connected();
  expect(problems).toEqual(["HTTP 404"]);
  change("/a", 1);
  await world.advance();
  expect(shown).toEqual([1]);
});

/** The errors that nobody caught while `work` was done. */
async function uncaught(work: () => Promise<void>): Promise<string[]> {
  const found: string[] = [];
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => found.push(error.message));
  try {
    await work();
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.removeAllListeners("uncaughtException");
    for (const listener of listeners) process.on("uncaughtException", listener);
  }
  return found;
}

test("a view that fails at a problem still gets the data later", async () => {
  const shown: number[] = [];
  const errors = await uncaught(async () => {
    diem.watch("/a", ({ version }) => shown.push(version), () => {
      throw new Error("of the view");
    });
    await connected();
    change("/a", 1);
    await world.advance();
  });
  expect([shown, errors]).toEqual([[1], ["of the view"]]);
});

test("a listener that fails when the connection opens keeps nobody from being subscribed", async () => {
  stored.set("/a", 5);
  const { shown } = view("/a");
  const errors = await uncaught(async () => {
    diem.updates.connection.observe(({ state }) => {
      if (state === "open") throw new Error("of the listener");
    });
    await connected();
    change("/a", 6);
    await world.advance();
  });
  expect([shown, errors]).toEqual([[5, 6], ["of the listener"]]);
  expect(world.last.sent.length).toBeGreaterThan(0);
});

test("a resync leads to a revalidation, and to a view only if something changed", async () => {
  stored.set("/a", 5);
  const { shown } = view("/a");
  await connected();
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(2_000);
  expect(diem.stats.fetches["/a"]).toBe(2);
  stored.set("/a", 6);
  world.last.frame({ type: "resync", endpoints: ["/a"] });
  await world.advance(2_000);
  expect(shown).toEqual([5, 6]);
});

test("moved: the configuration is read again before the next dial", async () => {
  await connected();
  const auto = world.auto;
  world.auto = (url) => (url.endsWith("config.json") ? { status: 200, body: { ...CONFIG, servers: [{ port: 9, path: "/ws" }] } } : auto(url));
  world.last.frame({ type: "moved", endpoints: [] });
  await world.advance(500);
  expect(world.last.url).toBe("ws://diem.test:9/ws");
});

test("partitioned: what is held goes to the new owner; a further connection spreads no fetches, a lost one does", async () => {
  const owners: Record<string, string> = { "/a": "ws://one.test/ws", "/b": "ws://two.test/ws" };
  const auto = world.auto;
  world.auto = (url, asked) => {
    if (url.endsWith("config.json")) {
      const servers = ["one", "two", "three"].map((name) => ({ url: `ws://${name}.test/ws` }));
      return { status: 200, body: { ...CONFIG, mode: "z-client", servers, metadata: [{ port: 8400, path: "/v1" }] } };
    }
    if (!url.endsWith("/locate")) return auto(url);
    const { endpoints } = asked as { endpoints: string[] };
    return { status: 200, body: { clone: 1, endpoints: Object.fromEntries(endpoints.map((name) => [name, { owner: owners[name] }])) } };
  };
  const answered = async (): Promise<void> => {
    world.last.welcome();
    const { id, endpoints } = world.last.sent[0] as { id: number; endpoints: object };
    world.last.frame({ type: "subscribed", id, endpoints });
    await world.advance();
  };
  diem.close();
  diem = createDiem({ data: false, environment: world });
  stored.set("/a", 5).set("/b", 5);
  const a = view("/a");
  await world.advance();
  await answered();
  const b = view("/b");
  await world.advance();
  await answered();
  expect([world.last.url, b.shown]).toEqual([owners["/b"], [5]]);
  change("/b", 6);
  await world.advance();
  expect(b.shown).toEqual([5, 6]);
  owners["/b"] = "ws://three.test/ws";
  world.last.frame({ type: "moved", endpoints: ["/b"], owner: owners["/b"] });
  await world.advance();
  await answered();
  expect([world.last.url, world.last.sent[0]?.endpoints]).toEqual(["ws://three.test/ws", { "/b": 6 }]);
  world.last.end(1006);
  await world.advance(250);
  await answered();
  change("/b", 7);
  await world.advance(999);
  expect(b.shown).toEqual([5, 6]);
  await world.advance(1);
  expect([a.shown, b.shown]).toEqual([[5], [5, 6, 7]]);
  expect(diem.updates.connection.value.state).toBe("open");
});

test("a stopped view hears nothing more", async () => {
  stored.set("/a", 5);
  const { shown, stop } = view("/a");
  stop();
  await connected();
  expect(shown).toEqual([]);
  expect(diem.updates.subscriptions).toBe(0);
});

/** As in another tab or after a reload: the same store, nothing in memory, and no server answers. */
async function offline(keep: Record<string, number>): Promise<World> {
  for (const [endpoint, version] of Object.entries(keep)) stored.set(endpoint, version);
  Object.keys(keep).forEach(view);
  await connected();
  await world.advance(1_000);
  diem.close();
  const later = new World();
  later.storage = world.storage;
  diem = createDiem({ data: false, environment: later });
  return later;
}

test("offline start: what was held is shown at once, unconfirmed, and confirmed when a server is there again", async () => {
  const later = await offline({ "/a": 5 });
  const shown: [number, boolean][] = [];
  diem.watch("/a", ({ version, confirmed }) => shown.push([version, confirmed]));
  await diem.data.ready;
  expect([diem.data.peek("/a")?.version, shown]).toEqual([5, [[5, false]]]);
  expect(diem.updates.connection.value.state).toBe("connecting");
  for (const request of later.requests) request.fail();
  await later.advance();
  expect(diem.data.health.value.reachable).toBe(false);
  later.auto = (url) => (url.endsWith("/config.json") ? { status: 200, body: CONFIG } : { status: 304 });
  await later.advance(10_000);
  expect(shown).toEqual([[5, false], [5, true]]);
  expect(later.requests.filter(({ url }) => url.endsWith("/data/a")).map(({ etag }) => etag)).toEqual(['"5-json"']);
});

test("offline start: a view that comes when the cache is read is shown it in the same turn", async () => {
  await offline({ "/a": 5 });
  await diem.data.ready;
  expect(view("/a").shown).toEqual([5]);
});

test("offline start: a store that takes longer than fetches wait for it is shown when it answers", async () => {
  const later = await offline({ "/a": 5 });
  diem.close();
  const kept = (await later.storage?.load()) ?? [];
  later.storage = { load: () => new Promise((resolve) => later.later(1_500, () => resolve(kept))), save: () => Promise.resolve() };
  diem = createDiem({ data: false, environment: later });
  const { shown } = view("/a");
  await later.advance(1_400);
  expect(shown).toEqual([]);
  await later.advance(100);
  expect(shown).toEqual([5]);
});

test("two tabs: the older one's data does not replace what the newer one kept", async () => {
  const later = await offline({ "/a": 5 });
  later.auto = () => ({ status: 200, body: body("/a", 6), headers: etag(6) });
  later.request.answer(200, CONFIG);
  const newer = view("/a");
  await later.advance(2_000);
  expect(newer.shown).toEqual([5, 6]);
  const older = createDiem({ data: false, environment: world }); // its server lags behind
  older.watch("/a", () => undefined);
  await world.advance(2_000);
  expect((await world.storage?.load())?.map(({ version }) => version)).toEqual([6]);
  older.close();
});

test("an API key goes to the Data Service, and nowhere else", async () => {
  diem.close();
  world.requests.length = 0;
  stored.set("/a", 5);
  diem = createDiem({ data: false, environment: world, apiKey: "diem_12345678_secret" });
  view("/a");
  await connected();
  void diem.data.catalogue().catch(() => undefined);
  await world.advance();
  const sent = world.requests.map(({ url, headers }) => [new URL(url).pathname, headers.Authorization]);
  const key = "Bearer diem_12345678_secret";
  expect(sent).toEqual([["/config.json", undefined], ["/v1/data/a", key], ["/v1/endpoints", key]]);
});

test("signing out: nothing is held, on the device either, nothing is asked any more, and who is next starts afresh", async () => {
  diem.close();
  diem = createDiem({ data: false, environment: world, apiKey: "diem_one" });
  stored.set("/a", 5);
  const { shown } = view("/a");
  await connected();
  await world.advance(1_000);
  up = false;
  change("/a", 6);
  await world.advance(1_000);
  await diem.clear();
  const asked = world.requests.length;
  await world.advance(60_000);
  expect([diem.data.peek("/a"), await world.storage?.load(), world.requests.length - asked, world.timers]).toEqual([null, [], 0, 0]);
  expect([shown, diem.updates.connection.value.state]).toEqual([[5], "closed"]);
});

test("a key's data is not shown to the next key's page, or to one without", async () => {
  const later = await offline({ "/a": 5 });
  for (const apiKey of ["diem_one", "diem_two", undefined]) {
    diem.close();
    later.requests.length = 0;
    diem = createDiem({ data: false, environment: later, ...(apiKey && { apiKey }) });
    await diem.data.ready;
    expect(diem.data.peek("/a")?.version).toBe(apiKey === undefined ? 5 : undefined);
  }
});

test("close() disconnects and leaves no timer", async () => {
  await connected();
  diem.close();
  await world.advance(120_000);
  expect(world.timers).toBe(0);
  expect(diem.updates.connection.value.state).toBe("closed");
});

test("configuration: several servers, another one after a failure, read again after three", async () => {
  const servers = [{ url: "wss://one/ws" }, { url: "wss://two/ws" }];
  world.auto = () => ({ status: 200, body: { ...CONFIG, servers } });
  const before = world.requests.length;
  const source = new ConfigSource(world, "/config.json");
  world.dice = 0;
  expect(await source.server(0)).toBe("wss://one/ws");
  expect(await source.server(1)).toBe("wss://two/ws");
  expect(await source.server(2)).toBe("wss://one/ws");
  expect(world.requests.length - before).toBe(1);
  await source.server(3);
  expect(world.requests.length - before).toBe(2);
  world.auto = () => ({ status: 500 });
  expect(await source.server(6)).toBe("wss://one/ws");
});

test("configuration: relative to where it came from, refused without servers", () => {
  const source = new URL("https://grid.test:8443/app/config.json");
  expect(parseConfig(CONFIG, source)).toEqual({
    mode: "single", rest: "https://grid.test:8443/v1", servers: ["wss://grid.test:8101/ws"],
  });
  const below = { ...CONFIG, servers: [{ href: "ws", url: "wss://other.test/ws" }], rest: "v1" };
  expect(parseConfig(below, source)).toMatchObject({ rest: "https://grid.test:8443/app/v1", servers: ["wss://grid.test:8443/app/ws"] });
  for (const bad of [null, {}, { ...CONFIG, servers: [] }, { ...CONFIG, rest: 1 }]) {
    expect(() => parseConfig(bad, source)).toThrow("no servers");
  }
});

/** The events that a browser page hears of itself. */
function browserEvents(): { say(event: string): void; restore(): void; heard(): number } {
  const target = new EventTarget();
  let count = 0;
  vi.stubGlobal("addEventListener", (name: string, run: () => void) => {
    count += 1;
    target.addEventListener(name, run);
  });
  vi.stubGlobal("removeEventListener", (name: string, run: () => void) => {
    count -= 1;
    target.removeEventListener(name, run);
  });
  return { say: (name) => void target.dispatchEvent(new Event(name)), restore: () => vi.unstubAllGlobals(), heard: () => count };
}

test("a page that comes back out of the browser's cache, or of sleep, does not stay live on a dead connection", async () => {
  diem.close();
  const events = browserEvents();
  let slept = 0;
  world.wall = () => 1_700_000_000_000 + world.time + slept;
  for (const event of ["pageshow", "visibilitychange", "online", "focus"]) {
    diem = createDiem({ data: false, environment: world });
    await connected();
    const dials = world.sockets.length;
    events.say(event);
    await world.advance(1_000);
    expect([event, diem.updates.connection.value.state, world.sockets.length - dials]).toEqual([event, "open", 0]);
    slept += 7_200_000;
    events.say(event);
    expect([event, diem.updates.live.value.live]).toEqual([event, false]);
    await world.advance(1_000);
    expect([event, world.sockets.length - dials]).toEqual([event, 1]);
    diem.close();
    expect([event, events.heard()]).toEqual([event, 0]);
  }
  events.restore();
});

test("a page that the server has sent away does not come back because somebody looks at it, or the network is back", async () => {
  diem.close();
  const events = browserEvents();
  diem = createDiem({ data: false, environment: world });
  await connected();
  world.last.end(4504, "too many connections");
  const dials = world.sockets.length;
  for (const event of ["pageshow", "visibilitychange", "online", "focus"]) events.say(event);
  await world.advance(60_000);
  expect([diem.updates.connection.value.state, world.sockets.length - dials]).toEqual(["closed", 0]);
  diem.close();
  events.restore();
});
