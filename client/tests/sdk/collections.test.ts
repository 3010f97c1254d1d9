/** Collections and their members as one view. */

import { beforeEach, describe, expect, test, vi } from "vitest";
import type { CollectionChange, CollectionOptions, Diem, DiemOptions } from "../../src/sdk/index.ts";
import { createDiem } from "../../src/sdk/index.ts";
import { Cluster } from "./cluster.ts";
import type { FakeSocket } from "./world.ts";
import { CONFIG, World } from "./world.ts";

const COLLECTION = "application/vnd.diem.collection+json";
const TIME = "2026-01-01T00:00:00.000Z";

let world: World;
let diem: Diem;
/** What the store has: null is deleted. */
let store: Map<string, { version: number; value: unknown }>;
let calls: CollectionChange[];
let problems: string[];
let limit: number;

const isCollection = (name: string): boolean => name.endsWith("/");
const mediaType = (name: string): string => (isCollection(name) ? COLLECTION : "application/json");
const contentOf = (name: string): unknown => {
  const { version, value } = store.get(name) as { version: number; value: unknown };
  return isCollection(name) ? { endpoint: name, version, time: TIME, members: value } : value;
};

function worldOf(storage?: World["storage"]): World {
  const made = new World();
  if (storage) made.storage = storage;
  made.auto = (url) => {
    if (url.endsWith("/config.json")) return { status: 200, body: CONFIG };
    const name = url.slice("http://diem.test/v1/data".length).replace(/\?.*/, "");
    const { version, value } = store.get(name) ?? {};
    if (!version) return { status: 404 };
    if (value === null) return { status: 410, body: { version } };
    return { status: 200, body: contentOf(name), headers: { "Content-Type": mediaType(name), "Diem-Version": `${version}`, "Diem-Time": TIME, ETag: `"${version}-json"` } };
  };
  return made;
}

beforeEach(() => {
  store = new Map();
  calls = [];
  problems = [];
  limit = 1024;
  world = worldOf();
  start();
});

function start(options: DiemOptions = {}): void {
  diem = createDiem({ environment: world, ...options });
}

/** Puts or, with null, deletes; the members of a collection are its names. */
function put(name: string, version: number, value: unknown): void {
  store.set(name, { version, value });
}

function view(prefix = "/g/", options?: CollectionOptions): () => void {
  return diem.watchCollection(prefix, (change) => calls.push(change), ({ code, message }, endpoint) => problems.push(`${endpoint}: ${code || message}`), options);
}

/** What the last call has, as name -> value. */
const shown = (): Record<string, unknown> => Object.fromEntries([...(calls.at(-1)?.members ?? [])].map(([name, { value }]) => [name, value]));
/** The differences of each call since the last time. */
function news(): string[] {
  return calls.splice(0).map(({ added, removed, changed }) => [...added.map((name) => `+${name}`), ...removed.map((name) => `-${name}`), ...changed.map((name) => `*${name}`)].join(" "));
}

let answered: Map<FakeSocket, number>;
beforeEach(() => void (answered = new Map()));

/** The server answers every request that it has not answered. */
async function serve(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) {
    await world.advance();
    const socket = world.last;
    if (!answered.has(socket)) socket.frame({ type: "welcome", server: "websocket-1", mode: "single", limits: { subscriptions: limit }, data: true });
    const from = answered.get(socket) ?? 0;
    answered.set(socket, socket.sent.length);
    for (const { type, id, endpoints } of socket.sent.slice(from)) {
      if (type === "unsubscribe") socket.frame({ type: "unsubscribed", id, endpoints });
      if (type !== "subscribe") continue;
      const asked = Object.entries(endpoints as Record<string, number | null>);
      socket.frame({ type: "subscribed", id, endpoints: Object.fromEntries(asked.map(([name]) => [name, store.get(name)?.version ?? null])) });
      for (const [name, known] of asked) if ((store.get(name)?.version ?? 0) > (known ?? 0)) update(name);
    }
  }
  await world.advance();
}

/** The server sends what the store has. */
function update(name: string): void {
  const { version, value } = store.get(name) as { version: number; value: unknown };
  world.last.update(name, version, value === null ? { gone: true } : { data: contentOf(name), media_type: mediaType(name) });
}

/** The store changes, and the server sends it. */
async function change(name: string, version: number, value: unknown): Promise<void> {
  put(name, version, value);
  update(name);
  await serve();
}

/** A collection of two games. */
async function games(options?: CollectionOptions): Promise<() => void> {
  put("/g/", 10, ["/g/a", "/g/b"]);
  put("/g/a", 8, { home: 1 });
  put("/g/b", 9, { home: 2 });
  const stop = view("/g/", options);
  await serve();
  return stop;
}

const gets = (): string[] => world.requests.map(({ url }) => url).filter((url) => url.includes("/data"));

test("members come with their values in one call, and without a request for data", async () => {
  await games();
  expect([shown(), news(), gets(), problems]).toEqual([{ "/g/a": { home: 1 }, "/g/b": { home: 2 } }, ["+/g/a +/g/b"], [], []]);
  expect(world.last.sent.map(({ type, endpoints }) => [type, endpoints])).toEqual([["subscribe", { "/g/": null }], ["subscribe", { "/g/a": null, "/g/b": null }]]);
});

test("a member that changes, one that comes and one that goes", async () => {
  await games();
  news();
  await change("/g/a", 11, { home: 2 });
  put("/g/0", 12, { home: 0 });
  await change("/g/", 12, ["/g/0", "/g/a", "/g/b"]);
  put("/g/b", 13, null);
  await change("/g/", 13, ["/g/0", "/g/a"]);
  expect([[...calls.at(-1)!.members.keys()], news()]).toEqual([["/g/0", "/g/a"], ["*/g/a", "+/g/0", "-/g/b"]]);
  expect(diem.updates.subscriptions).toBe(3);
});

test("all changes of a turn are one call, and a map that the page changes is its own", async () => {
  await games();
  calls.at(-1)!.members.clear();
  news();
  put("/g/a", 11, { home: 3 });
  put("/g/b", 11, { home: 4 });
  update("/g/a");
  update("/g/b");
  await world.advance();
  expect([shown(), news()]).toEqual([{ "/g/a": { home: 3 }, "/g/b": { home: 4 } }, ["*/g/a */g/b"]]);
});

test.each([["its own update", true], ["the update of the collection", false]])("a member that is deleted and made again, when %s is first", async (_what, own) => {
  await games();
  news();
  put("/g/a", 11, null);
  put("/g/", 12, ["/g/b"]);
  for (const name of own ? ["/g/a", "/g/"] : ["/g/"]) {
    update(name);
    await serve();
  }
  expect([shown(), news()]).toEqual([{ "/g/b": { home: 2 } }, ["-/g/a"]]);
  put("/g/a", 13, { home: 0 });
  put("/g/", 14, ["/g/a", "/g/b"]);
  for (const name of own ? ["/g/a", "/g/"] : ["/g/", "/g/a"]) {
    update(name);
    await serve();
  }
  expect([shown(), news()]).toEqual([{ "/g/a": { home: 0 }, "/g/b": { home: 2 } }, ["+/g/a"]]); // not with the value that it had before
});

test("a collection whose last member goes is empty, and comes back", async () => {
  await games();
  news();
  for (const name of ["/g/a", "/g/b"]) put(name, 11, null);
  await change("/g/", 11, null);
  expect([shown(), news()]).toEqual([{}, ["-/g/a -/g/b"]]);
  put("/g/b", 12, { home: 5 });
  await change("/g/", 12, ["/g/b"]);
  expect([shown(), news()]).toEqual([{ "/g/b": { home: 5 } }, ["+/g/b"]]);
});

test("a collection that does not exist yet is empty, and a problem", async () => {
  view();
  await serve();
  expect([calls, problems]).toMatchObject([[{ members: new Map(), collections: [], added: [] }], ["/g/: HTTP 404"]]);
  put("/g/a", 1, "new");
  await change("/g/", 2, ["/g/a"]);
  expect(shown()).toEqual({ "/g/a": "new" });
});

test("a member without a value is waited for a second, once", async () => {
  put("/g/", 10, ["/g/a", "/g/b"]);
  put("/g/a", 8, 1);
  put("/g/b", 0, 2);
  const { auto } = world;
  world.auto = (url) => (url.includes("/data/g/b") ? undefined : auto(url)); // no answer
  view();
  await serve();
  expect(calls).toEqual([]);
  await world.advance(1_000);
  expect(news()).toEqual(["+/g/a"]);
  await change("/g/b", 11, 2);
  await change("/g/a", 12, 3);
  expect([shown(), news()]).toEqual([{ "/g/a": 3, "/g/b": 2 }, ["+/g/b", "*/g/a"]]);
});

test("a member that goes before it has a value is waited for no longer", async () => {
  put("/g/", 10, ["/g/a", "/g/b"]);
  put("/g/a", 8, 1);
  put("/g/b", 0, 2);
  const { auto } = world;
  world.auto = (url) => (url.includes("/data/g/b") ? undefined : auto(url)); // no answer
  view();
  await serve();
  await change("/g/", 11, ["/g/a"]);
  expect([news(), world.time]).toEqual([["+/g/a"], 0]);
});

test("what changed while the connection was lost: members that came, went, changed and were made again", async () => {
  await games();
  news();
  world.last.end(1006);
  put("/g/a", 21, "again");
  put("/g/b", 22, null);
  put("/g/c", 23, "new");
  put("/g/", 24, ["/g/a", "/g/c"]);
  await world.advance(500);
  await serve();
  await world.advance(2_000); // what is deleted is fetched, at a random moment after a reconnect
  expect(shown()).toEqual({ "/g/a": "again", "/g/c": "new" });
  expect(news().join(" ").split(" ").sort()).toEqual(["*/g/a", "+/g/c", "-/g/b"]);
});

test("a resync of the collection and of a member", async () => {
  await games();
  news();
  put("/g/c", 20, "new");
  put("/g/", 21, ["/g/a", "/g/c"]);
  put("/g/b", 21, null);
  put("/g/a", 22, "changed");
  world.last.frame({ type: "resync", endpoints: ["/g/", "/g/a"] });
  for (let second = 0; second < 3; second += 1) {
    await world.advance(1_000);
    await serve();
  }
  expect(shown()).toEqual({ "/g/a": "changed", "/g/c": "new" });
});

test("collections in it are named alone", async () => {
  put("/g/", 10, ["/g/a", "/g/sub/"]);
  put("/g/a", 9, 1);
  put("/g/sub/", 9, ["/g/sub/x"]);
  view();
  await serve();
  expect([shown(), calls.at(-1)?.collections, diem.updates.subscriptions]).toEqual([{ "/g/a": 1 }, ["/g/sub/"], 2]);
  news();
  put("/g/", 11, ["/g/a"]);
  await change("/g/", 11, ["/g/a"]);
  expect(calls).toMatchObject([{ collections: [], added: [], removed: [], changed: [] }]);
});

test("with their members where the page asks for them, at any depth", async () => {
  put("/g/", 10, ["/g/a", "/g/sub/", "/g/z"]);
  put("/g/sub/", 10, ["/g/sub/deep/", "/g/sub/x"]);
  put("/g/sub/deep/", 10, ["/g/sub/deep/y"]);
  for (const name of ["/g/a", "/g/z", "/g/sub/x", "/g/sub/deep/y"]) put(name, 9, name);
  const stop = view("/g/", { deep: true });
  await serve();
  expect([Object.keys(shown()), calls.at(-1)?.collections, calls.length]).toEqual([["/g/a", "/g/sub/deep/y", "/g/sub/x", "/g/z"], ["/g/sub/", "/g/sub/deep/"], 1]);
  news();
  await change("/g/", 11, ["/g/a", "/g/z"]);
  expect([news(), diem.updates.subscriptions]).toEqual(["-/g/sub/deep/y -/g/sub/x", 3].map((each) => (typeof each === "string" ? [each] : each)));
  stop();
  expect(diem.updates.subscriptions).toBe(0);
});

test("members beyond the server's limit are reported, and take the place of those that go", async () => {
  limit = 2;
  await games();
  expect(problems).toEqual(["/g/b: limit"]);
  expect(diem.updates.isLive("/g/b")).toBe(false);
  put("/g/a", 11, null);
  await change("/g/", 11, ["/g/b"]);
  await change("/g/b", 12, { home: 7 });
  expect([shown(), diem.updates.isLive("/g/b")]).toEqual([{ "/g/b": { home: 7 } }, true]);
});

test("a view watches a thousand members; the others are reported, and take the place of those that go", async () => {
  const names = Array.from({ length: 1_003 }, (_, n) => `/g/${n + 1_000}`);
  for (const name of names) put(name, 9, 0);
  put("/g/", 10, names);
  limit = 5_000;
  view();
  await serve();
  await world.advance(30_000); // the client's own rate of messages
  await serve();
  await world.advance(30_000);
  expect([calls.at(-1)?.members.size, diem.updates.subscriptions, problems]).toEqual([1_000, 1_001, ["/g/: limit"]]);
  news();
  await change("/g/", 11, names.slice(2));
  await world.advance(10_000);
  await serve();
  expect([calls.at(-1)?.members.size, [...calls.at(-1)!.members.keys()].at(-1), problems]).toEqual([1_000, "/g/2001", ["/g/: limit", "/g/: limit"]]);
  await change("/g/", 12, [...names.slice(2, -1), "/g/9999"]);
  expect(problems.length).toBe(2);
});

test("rights: a refused collection is a problem, and nothing else", async () => {
  view();
  await world.advance();
  world.last.welcome();
  await world.advance();
  world.last.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/g/": { code: "forbidden", message: "" } } });
  const { auto } = world;
  world.auto = (url) => (url.includes("/data") ? { status: 403, body: { code: "forbidden" } } : auto(url));
  await world.advance(2_000);
  expect([calls, problems]).toEqual([[], ["/g/: forbidden", "/g/: forbidden"]]);
});

test("one who reports no problems warns once", async () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  put("/g/", 10, ["/g/a", "/g/b"]);
  diem.watchCollection("/g/", (change) => calls.push(change));
  await serve();
  await world.advance(2_000);
  expect(warn.mock.calls).toEqual([["DIEM: /g/a: HTTP 404"]]);
  warn.mockRestore();
});

test.each(["/g", "g/", "", "/g//", "/"])("%s is no collection", (name) => {
  expect(() => view(name)).toThrow(TypeError);
});

describe("closing", () => {
  test("ends all subscriptions and calls nothing any more", async () => {
    const stop = await games();
    news();
    put("/g/a", 11, 5);
    update("/g/a");
    stop();
    stop();
    await serve();
    expect([calls, diem.updates.subscriptions, world.last.sent.at(-1)]).toMatchObject([[], 0, { type: "unsubscribe", endpoints: ["/g/", "/g/a", "/g/b"] }]);
  });

  test("between a change and its call", async () => {
    const stop = await games();
    news();
    diem.watch<unknown>("/g/a", ({ version }) => version === 11 && stop());
    await world.advance();
    await change("/g/a", 11, 5);
    expect([calls, diem.updates.subscriptions]).toEqual([[], 1]);
  });

  test("before anything was loaded subscribes to nothing", async () => {
    view()();
    await serve();
    expect([calls, diem.updates.subscriptions]).toEqual([[], 0]);
  });

  test("from within a call", async () => {
    put("/g/", 10, ["/g/a"]);
    put("/g/a", 9, 1);
    const stop: () => void = diem.watchCollection("/g/", (change) => {
      calls.push(change);
      stop();
    });
    await serve();
    await change("/g/a", 11, 2);
    expect([calls.length, diem.updates.subscriptions]).toEqual([1, 0]);
  });

  test("leaves what other views watch", async () => {
    const values: unknown[] = [];
    diem.watch<unknown>("/g/a", ({ value }) => values.push(value));
    (await games())();
    await serve();
    await change("/g/a", 11, { home: 9 });
    expect([values, diem.updates.subscriptions]).toEqual([[{ home: 1 }, { home: 9 }], 1]);
  });
});

test("offline: the members of the last visit, unconfirmed; what has changed since when a server is there again", async () => {
  await games();
  await world.advance(1_000);
  diem.close();
  news();
  world = worldOf(world.storage);
  start();
  view();
  await world.advance();
  expect([shown(), [...calls.at(-1)!.members.values()].map(({ confirmed }) => confirmed)]).toEqual([{ "/g/a": { home: 1 }, "/g/b": { home: 2 } }, [false, false]]);
  news();
  put("/g/b", 20, null);
  put("/g/", 20, ["/g/a"]);
  await serve();
  expect([shown(), calls.at(-1)?.members.get("/g/a")?.confirmed]).toEqual([{ "/g/a": { home: 1 } }, true]);
});

/** Cut the connection, and serve the page through the next 6.5 s. */
async function reconnect(): Promise<void> {
  world.last.end(1006);
  await world.advance(500);
  await serve();
  for (let second = 0; second < 6; second += 1) {
    await world.advance(1_000);
    await serve();
  }
}

test("a store that was put back: the members that there are again have their values", async () => {
  await games();
  put("/g/a", 11, null);
  await change("/g/", 12, ["/g/b"]);
  expect(shown()).toEqual({ "/g/b": { home: 2 } });
  put("/g/", 10, ["/g/a", "/g/b"]); // as it was before
  put("/g/a", 8, { home: 1 });
  await reconnect();
  expect([shown(), problems]).toEqual([{ "/g/a": { home: 1 }, "/g/b": { home: 2 } }, ["/g/: lost"]]);
});

test("a member that was made again, and then put back to what it was before that", async () => {
  await games();
  put("/g/a", 11, null);
  await change("/g/", 12, ["/g/b"]);
  put("/g/a", 13, { home: 0 });
  await change("/g/", 14, ["/g/a", "/g/b"]);
  put("/g/a", 8, { home: 1 });
  await reconnect();
  expect([shown(), problems]).toEqual([{ "/g/a": { home: 1 }, "/g/b": { home: 2 } }, ["/g/a: lost"]]);
});

test("mode z-client: the collection and its members are at different servers", async () => {
  diem.close();
  const cluster = new Cluster();
  world = cluster.world;
  for (const [name, owner] of [["/g/", "a"], ["/g/a", "b"], ["/g/b", "c"]] as const) cluster.owners.set(name, owner);
  start();
  view();
  await cluster.serve("a");
  const send = async (server: string, name: string): Promise<void> => {
    const { version } = store.get(name)!;
    cluster.at(server)!.update(name, version, { data: contentOf(name), media_type: mediaType(name) });
    await world.advance();
  };
  put("/g/", 10, ["/g/a", "/g/b"]);
  await send("a", "/g/");
  await cluster.serve("b");
  await cluster.serve("c");
  put("/g/a", 8, 1);
  put("/g/b", 9, 2);
  await send("b", "/g/a");
  await send("c", "/g/b");
  expect(shown()).toEqual({ "/g/a": 1, "/g/b": 2 });
  put("/g/", 12, ["/g/b"]);
  await send("a", "/g/");
  put("/g/b", 13, 3);
  await send("c", "/g/b");
  expect([shown(), cluster.sent("b")]).toEqual([{ "/g/b": 3 }, ["+/g/a", "-/g/a"]]);
});
