import { beforeEach, expect, test } from "vitest";
import { DataCache } from "../../src/sdk/cache.ts";
import { toText } from "../../src/sdk/mirror.ts";
import { readSnapshot } from "../../src/sdk/snapshot.ts";
import { FakeStore, World, body } from "./world.ts";

let world: World;
let store: FakeStore;

beforeEach(() => {
  world = new World();
  store = world.storage as FakeStore;
});

const entry = (endpoint: string, version = 1) => {
  const snapshot = readSnapshot(endpoint, { version, time: "", data: body(endpoint, version) });
  if (snapshot === null) throw new Error("bad test data");
  return { snapshot, etag: `"${version}-json"` };
};
const stored = (endpoint: string, text: string) => ({ endpoint, version: 1, etag: null, used: 0, text });

test("memory keeps what was used last, up to its bound", () => {
  world.storage = null;
  const cache = new DataCache(world, { entries: 2, chars: 0 });
  cache.put("/a", entry("/a"));
  cache.put("/b", entry("/b"));
  cache.get("/a");
  cache.put("/c", entry("/c"));
  expect(["/a", "/b", "/c"].map((endpoint) => cache.get(endpoint) !== null)).toEqual([true, false, true]);
  expect(world.timers).toBe(0);
});

test("what is held has 64 Mi characters at most: the least recently used goes first, and one that is larger is held alone", () => {
  const cache = new DataCache(world);
  const mebi = 1024 * 1024;
  const names = Array.from({ length: 17 }, (_, n) => `/${n}`);
  const held = (): string[] => names.filter((name) => cache.get(name) !== null);
  for (const name of names.slice(0, 16)) cache.put(name, { ...entry(name), size: 4 * mebi });
  expect(held().length).toBe(16);
  cache.put("/1", { ...entry("/1", 2), size: 4 * mebi }); // in place of itself
  cache.get("/0");
  cache.put("/16", { ...entry("/16"), size: 1 });
  expect(held()).toEqual(names.filter((name) => name !== "/2"));
  cache.put("/0", { ...entry("/0", 2), size: 100 * mebi });
  expect(held()).toEqual(["/0"]);
});

test("the next visit starts with what this one saved, in doubt, and bounded", async () => {
  const cache = new DataCache(world, { entries: 10, chars: 3 * toText(entry("/0").snapshot, Infinity)!.length });
  for (let n = 0; n < 5; n += 1) {
    cache.put(`/${n}`, entry(`/${n}`));
    await world.advance(1_000);
  }
  const next = new DataCache(world);
  expect(next.get("/4")).toBeNull();
  await next.ready;
  expect(["/1", "/2", "/4"].map((endpoint) => next.get(endpoint)?.snapshot.confirmed)).toEqual([undefined, false, false]);
  expect(next.get("/4")).toMatchObject({ etag: '"1-json"', snapshot: { ...entry("/4").snapshot, confirmed: false } });
});

test("a burst is written once", async () => {
  const cache = new DataCache(world);
  await world.advance();
  for (let version = 1; version < 50; version += 1) cache.put("/a", entry("/a", version));
  expect(store.saves).toBe(0);
  await world.advance(1_000);
  expect([store.saves, store.kept.get("/a")?.version]).toEqual([1, 49]);
});

test("what came meanwhile is not replaced by what was left", async () => {
  store.kept.set("/a", { ...stored("/a", JSON.stringify(entry("/a").snapshot)) });
  const cache = new DataCache(world);
  cache.put("/a", entry("/a", 2));
  await cache.ready;
  expect(cache.get("/a")?.snapshot.version).toBe(2);
});

test("a store that fails costs nothing but what it would have kept", async () => {
  const broken = (): Promise<never> => Promise.reject(new Error("broken"));
  world.storage = { load: broken, save: broken };
  const cache = new DataCache(world);
  await cache.ready;
  cache.put("/a", entry("/a"));
  await world.advance(1_000);
  expect(cache.get("/a")?.snapshot.version).toBe(1);
});

test("a store that does not answer is waited for a second; what it brings later still counts", async () => {
  let answer: (entries: []) => void = () => undefined;
  let isReady = false;
  world.storage = { load: () => new Promise((resolve) => void (answer = resolve)), save: () => Promise.resolve() };
  const cache = new DataCache(world);
  void cache.ready.then(() => void (isReady = true));
  await world.advance(999);
  expect(isReady).toBe(false);
  await world.advance(1);
  expect(isReady).toBe(true);
  answer([stored("/a", JSON.stringify(entry("/a").snapshot))] as unknown as []);
  await world.advance();
  expect(cache.get("/a")?.snapshot.version).toBe(1);
});

test("what is not a dataset of that name is ignored", async () => {
  for (const junk of ["{", "null", "[]", '{"endpoint":"/other","version":1,"points":[]}', '{"endpoint":"/a"}']) {
    store.kept.set("/a", stored("/a", junk));
    const cache = new DataCache(world);
    await cache.ready;
    expect(cache.get("/a"), junk).toBeNull();
  }
});

test("what one key fetched is there for that key alone, and the key itself is nowhere", async () => {
  const keys = ["diem_one", "diem_two", undefined];
  for (const [index, key] of keys.entries()) {
    const cache = new DataCache(world, undefined, key);
    await cache.ready;
    cache.put("/a", entry("/a", index + 1));
    await world.advance(1_000);
  }
  for (const [index, key] of keys.entries()) {
    const cache = new DataCache(world, undefined, key);
    await cache.ready;
    expect(cache.get("/a")?.snapshot.version).toBe(index + 1);
  }
  const other = new DataCache(world, undefined, "diem_three");
  await other.ready;
  expect(other.get("/a")).toBeNull();
  expect(JSON.stringify([...store.kept])).not.toContain("diem_");
});

test("all keys together keep what one may: what was used longest ago goes", async () => {
  for (const key of ["diem_one", "diem_two", "diem_three"]) {
    new DataCache(world, { entries: 2, chars: 100_000 }, key).put("/a", entry("/a"));
    await world.advance(1_000);
  }
  expect(store.kept.size).toBe(2);
  const first = new DataCache(world, undefined, "diem_one");
  await first.ready;
  expect(first.get("/a")).toBeNull();
});

test.each<[string, World["digest"] | undefined]>([
  ["has no digest", undefined],
  ["knows none on this page", () => Promise.resolve(null)],
  ["fails at it", () => Promise.reject(new Error("no"))],
])("a host that %s: what a key fetched is held in memory only", async (_, digest) => {
  store.kept.set("/a", stored("/a", JSON.stringify(entry("/a").snapshot)));
  (world as { digest?: unknown }).digest = digest;
  const cache = new DataCache(world, undefined, "diem_one");
  await cache.ready;
  expect(cache.get("/a")).toBeNull();
  cache.put("/b", entry("/b"));
  await world.advance(1_000);
  expect([cache.get("/b")?.snapshot.version, [...store.kept.keys()]]).toEqual([1, ["/a"]]);
});

test("what is cleared is gone, here and from the store, of every key; nothing comes back", async () => {
  new DataCache(world, undefined, "diem_one").put("/a", entry("/a"));
  await world.advance(1_000);
  const cache = new DataCache(world);
  await cache.ready;
  cache.put("/b", entry("/b"));
  cache.save();
  const cleared = cache.clear();
  cache.put("/c", entry("/c"));
  cache.save();
  await cleared;
  await world.advance(2_000);
  expect([cache.get("/a"), cache.get("/b"), cache.get("/c"), store.kept.size, world.timers]).toEqual([null, null, null, 0, 0]);
});

test("what is being read while it is cleared does not come back", async () => {
  store.kept.set("/a", stored("/a", JSON.stringify(entry("/a").snapshot)));
  const cache = new DataCache(world);
  await cache.clear();
  await cache.ready;
  expect(cache.get("/a")).toBeNull();
});

test("a store that cannot be emptied says so", async () => {
  world.storage = { load: () => Promise.resolve([]), save: () => Promise.reject(new Error("broken")) };
  const cache = new DataCache(world);
  await expect(cache.clear()).rejects.toThrow("broken");
});

test("a clock that was set back costs nothing: what is used now is used last", async () => {
  const bounds = { entries: 2, chars: 100_000 };
  const before = new DataCache(world, bounds);
  before.put("/a", entry("/a"));
  await world.advance(1_000);
  before.put("/b", entry("/b"));
  await world.advance(1_000);
  world.wall = () => 1_600_000_000_000 + world.time; // three years earlier
  const cache = new DataCache(world, bounds);
  await cache.ready;
  cache.put("/c", entry("/c"));
  await world.advance(1_000);
  expect([...store.kept.keys()].sort()).toEqual(["/b", "/c"]);
  before.put("/d", entry("/d")); // the tab that was there before
  await world.advance(1_000);
  expect([...store.kept.keys()].sort()).toEqual(["/c", "/d"]);
});

test("a store that never ends its write is not handed another, and memory does not grow with it", async () => {
  const saves: (() => void)[] = [];
  world.storage = { load: () => Promise.resolve([]), save: () => new Promise((resolve) => void saves.push(resolve)) };
  const cache = new DataCache(world);
  for (let version = 1; version <= 60; version += 1) {
    cache.put("/a", entry("/a", version));
    await world.advance(1_000);
  }
  expect(saves).toHaveLength(1);
  cache.save(); // the page is left: it is handed over all the same
  await world.advance();
  expect(saves).toHaveLength(2);
  for (const end of saves) end();
  cache.put("/a", entry("/a", 61));
  await world.advance(1_000);
  expect(saves).toHaveLength(3);
});
