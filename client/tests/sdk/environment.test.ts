// @vitest-environment jsdom
import { IDBFactory } from "fake-indexeddb";
import { afterEach, expect, test, vi } from "vitest";
import { DataCache } from "../../src/sdk/cache.ts";
import { browserEnvironment } from "../../src/sdk/environment.ts";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  localStorage.clear();
});

test("a browser that forbids storage, and has no IndexedDB, is a browser all the same", async () => {
  const forbid = (): never => {
    throw new DOMException("no", "SecurityError");
  };
  vi.spyOn(window, "localStorage", "get").mockImplementation(forbid);
  vi.spyOn(window, "sessionStorage", "get").mockImplementation(forbid);
  expect(window.indexedDB).toBeUndefined();
  const cache = new DataCache(browserEnvironment());
  await cache.ready;
  expect(cache.get("/load/GR")).toBeNull();
});

test("what is kept of one deployment is no other's", async () => {
  vi.stubGlobal("indexedDB", new IDBFactory());
  const entry = { endpoint: "/load/GR", version: 9, etag: null, used: 1, text: "{}" };
  const kept = async (configUrl?: string): Promise<unknown> => browserEnvironment(configUrl).storage?.load();
  await browserEnvironment("https://other.test/config.json").storage?.save([entry], { entries: 9, chars: 99 });
  expect(await kept()).toEqual([]);
  expect(await kept("/staging/config.json")).toEqual([]);
  expect(await kept("https://other.test/config.json")).toEqual([entry]);
  await browserEnvironment().storage?.save([entry], { entries: 9, chars: 99 });
  expect(await kept("./config.json")).toEqual([entry]);
});
