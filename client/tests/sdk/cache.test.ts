import { beforeEach, expect, test } from "vitest";
import { DataCache } from "../../src/sdk/cache.ts";
import { parseDataset } from "../../src/sdk/dataset.ts";
import { FakeStore, World, body } from "./world.ts";

let world: World;
let store: FakeStore;

beforeEach(() => {
  world = new World();
  store = world.storage as FakeStore;
});

const entry = (endpoint: string, version = 1) => {
  const dataset = parseDataset(endpoint, body(endpoint, version));
  if (dataset === null) throw new Error("bad test data");
  return { dataset, etag: `"${version}-json"` };
};
const stored = (endpoint: string, text: string) => ({ endpoint, version: 1, etag: null, used: 0, text });

test("memory keeps what was used last, up to its bound", () => {
  world.storage = null;
  const cache = new DataCache(world, { entries: 2, storedChars: 0 });
  cache.put("/a", entry("/a"));
  cache.put("/b", entry("/b"));
  cache.get("/a");
  cache.put("/c", entry("/c"));
  expect(["/a", "/b", "/c"].map((endpoint) => cache.get(endpoint) !== null)).toEqual([true, false, true]);
  expect(world.timers).toBe(0);
});

test("the next visit starts with what this one saved, in doubt, and bounded", async () => {
  const cache = new DataCache(world, { entries: 10, storedChars: 3 * JSON.stringify(entry("/0").dataset).length });
  for (let n = 0; n < 5; n += 1) {
    cache.put(`/${n}`, entry(`/${n}`));
    await world.advance(1_000);
  }
  const next = new DataCache(world);
  expect(next.get("/4")).toBeNull();
  await next.ready;
  expect(["/1", "/2", "/4"].map((endpoint) => next.get(endpoint)?.dataset.confirmed)).toEqual([undefined, false, false]);
  expect(next.get("/4")).toEqual({ etag: '"1-json"', dataset: { ...entry("/4").dataset, confirmed: false } });
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
  store.kept.set("/a", { ...stored("/a", JSON.stringify(entry("/a").dataset)) });
  const cache = new DataCache(world);
  cache.put("/a", entry("/a", 2));
  await cache.ready;
  expect(cache.get("/a")?.dataset.version).toBe(2);
});

test("a store that fails costs nothing but what it would have kept", async () => {
  const broken = (): Promise<never> => Promise.reject(new Error("broken"));
  world.storage = { load: broken, save: broken };
  const cache = new DataCache(world);
  await cache.ready;
  cache.put("/a", entry("/a"));
  await world.advance(1_000);
  expect(cache.get("/a")?.dataset.version).toBe(1);
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
  answer([stored("/a", JSON.stringify(entry("/a").dataset))] as unknown as []);
  await world.advance();
  expect(cache.get("/a")?.dataset.version).toBe(1);
});

test("what is not a dataset of that name is ignored", async () => {
  for (const junk of ["{", "null", "[]", '{"endpoint":"/other","version":1,"points":[]}', '{"endpoint":"/a"}']) {
    store.kept.set("/a", stored("/a", junk));
    const cache = new DataCache(world);
    await cache.ready;
    expect(cache.get("/a"), junk).toBeNull();
  }
});
