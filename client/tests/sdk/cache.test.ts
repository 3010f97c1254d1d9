import { beforeEach, expect, test } from "vitest";
import { DataCache } from "../../src/sdk/cache.ts";
import { parseDataset } from "../../src/sdk/dataset.ts";
import { World, body } from "./world.ts";

let world: World;

beforeEach(() => {
  world = new World();
});

const entry = (endpoint: string, version = 1) => {
  const dataset = parseDataset(endpoint, body(endpoint, version));
  if (dataset === null) throw new Error("bad test data");
  return { dataset, etag: `"${version}-json"`, confirmed: true };
};

test("memory keeps what was used last, up to its bound", () => {
  const cache = new DataCache({ ...world, storage: null } as unknown as World, { entries: 2, storedChars: 0 });
  cache.put("/a", entry("/a"));
  cache.put("/b", entry("/b"));
  cache.get("/a");
  cache.put("/c", entry("/c"));
  expect(["/a", "/b", "/c"].map((endpoint) => cache.get(endpoint) !== null)).toEqual([true, false, true]);
});

test("storage keeps what was saved last, up to its bound, and leaves other keys alone", async () => {
  world.storage.setItem("theme", "x".repeat(500));
  const size = JSON.stringify([world.wall(), '"1-json"', entry("/0").dataset]).length + "diem:/0".length;
  const cache = new DataCache(world, { entries: 10, storedChars: 3 * size });
  for (let n = 0; n < 5; n += 1) {
    cache.put(`/${n}`, entry(`/${n}`));
    await world.advance(1_000);
  }
  expect([...world.storage.map.keys()]).toEqual(["theme", "diem:/2", "diem:/3", "diem:/4"]);
});

test("a burst is written once", async () => {
  const cache = new DataCache(world);
  let writes = 0;
  world.storage.setItem = () => void (writes += 1);
  for (let version = 1; version < 50; version += 1) cache.put("/a", entry("/a", version));
  expect(writes).toBe(0);
  await world.advance(1_000);
  expect(writes).toBe(1);
});

test("a full storage gives its room back and harms nothing", () => {
  const cache = new DataCache(world);
  cache.put("/a", entry("/a"));
  cache.save();
  world.storage.quota = 10;
  cache.put("/b", entry("/b"));
  cache.save();
  expect(world.storage.map.size).toBe(0);
  expect(cache.get("/b")?.dataset.version).toBe(1);
});

test("what somebody else put under our keys is ignored", () => {
  for (const junk of ["{", "null", "[]", '[1,"e",{"endpoint":"/other","version":1,"points":[]}]']) {
    world.storage.setItem("diem:/a", junk);
    expect(new DataCache(world).get("/a"), junk).toBeNull();
  }
});
