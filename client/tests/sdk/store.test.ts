import { IDBFactory, IDBObjectStore } from "fake-indexeddb";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Store, Stored } from "../../src/sdk/store.ts";
import { IndexedStore } from "../../src/sdk/store.ts";
import { CONTRACT } from "./store.contract.js";
import { FakeStore } from "./world.ts";

const MANY = { entries: 100, chars: 10_000 };
const entry = (endpoint: string, used: number, version = 1, text = "x".repeat(10)): Stored => ({ endpoint, version, etag: null, used, text });
const names = async (store: Store): Promise<string[]> => (await store.load()).map(({ endpoint }) => endpoint);

afterEach(() => vi.restoreAllMocks());

/** Two tabs of one origin. */
const ORIGINS: [string, () => [Store, Store]][] = [
  ["IndexedDB", () => {
    const factory = new IDBFactory();
    return [new IndexedStore(factory), new IndexedStore(factory)];
  }],
  ["the store of the tests", () => {
    const store = new FakeStore();
    return [store, store];
  }],
];

describe.each(ORIGINS)("%s", (_, tabs) => {
  test.each(Object.entries(CONTRACT))("%s", async (_, { run, expected }) => {
    expect(await run(tabs)).toEqual(expected);
  });
});

describe("IndexedDB in trouble", () => {
  test("a quota that is used up: the room is given back, and later datasets fit", async () => {
    const store = new IndexedStore(new IDBFactory());
    await store.save([entry("/a", 1), entry("/b", 2)], MANY);
    const put = vi.spyOn(IDBObjectStore.prototype, "put").mockImplementation(() => {
      throw new DOMException("full", "QuotaExceededError");
    });
    await store.save([entry("/c", 3)], MANY);
    put.mockRestore();
    expect(await store.load()).toEqual([]);
    await store.save([entry("/d", 4)], MANY);
    expect(await names(store)).toEqual(["/d"]);
  });

  test.each<[string, () => IDBFactory]>([
    ["forbidden", () => ({ open: () => { throw new DOMException("no", "SecurityError"); } }) as unknown as IDBFactory],
    ["absent", () => undefined as unknown as IDBFactory],
    ["broken", () => failing("onerror")],
    ["blocked", () => failing("onblocked")],
  ])("%s: everything rejects", async (_, factory) => {
    const store = new IndexedStore(factory());
    await expect(store.load()).rejects.toBeDefined();
    await expect(store.save([entry("/a", 1)], MANY)).rejects.toBeDefined();
  });

  test("of another make: everything rejects", async () => {
    const factory = new IDBFactory();
    await new Promise((resolve) => (factory.open("diem", 2).onsuccess = resolve)); // without the table
    await expect(new IndexedStore(factory).load()).rejects.toThrow();
  });

  test("what the version before kept is given up: it did not tell whose it is", async () => {
    const factory = new IDBFactory();
    await new Promise<void>((resolve) => {
      const old = factory.open("diem", 1);
      old.onupgradeneeded = () => {
        const table = old.result.createObjectStore("datasets", { keyPath: "endpoint" });
        table.createIndex("used", ["used", "text.length"]);
        table.put(entry("/secret", 1));
      };
      old.onsuccess = () => {
        old.result.close();
        resolve();
      };
    });
    const store = new IndexedStore(factory);
    expect(await store.load()).toEqual([]);
    await store.save([entry("/a", 1)], MANY);
    expect(await names(store)).toEqual(["/a"]);
  });

  test("a newer SDK in another tab is not held up", async () => {
    const factory = new IDBFactory();
    const store = new IndexedStore(factory);
    await store.save([entry("/a", 1)], MANY);
    const upgrade = factory.open("diem", 3);
    const outcome = await new Promise((resolve) => {
      upgrade.onblocked = () => resolve("blocked");
      upgrade.onsuccess = () => resolve("upgraded");
    });
    expect(outcome).toBe("upgraded");
    await expect(store.save([entry("/b", 2)], MANY)).rejects.toThrow();
  });
});

/** A factory whose requests end with this event. */
function failing(event: "onerror" | "onblocked"): IDBFactory {
  return {
    open: () => {
      const request: Record<string, unknown> = { error: new DOMException("no", "UnknownError") };
      queueMicrotask(() => (request[event] as () => void)());
      return request;
    },
  } as unknown as IDBFactory;
}
