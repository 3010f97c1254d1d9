// @vitest-environment jsdom
import { afterEach, expect, test, vi } from "vitest";
import { DataCache } from "../../src/sdk/cache.ts";
import { browserEnvironment } from "../../src/sdk/environment.ts";

afterEach(() => {
  vi.restoreAllMocks();
  localStorage.clear();
});

test("datasets of the time before IndexedDB are removed, and nothing else", () => {
  localStorage.setItem("diem:/load/GR", "[]");
  localStorage.setItem("diem.theme", "dark");
  localStorage.setItem("other", "1");
  browserEnvironment();
  expect(Object.keys(localStorage).sort()).toEqual(["diem.theme", "other"]);
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
