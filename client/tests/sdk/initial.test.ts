/** On a server that renders pages: nothing is requested but what `readEndpoints` reads. */

import { hydrate, readEndpoints } from "../../src/sdk/initial.ts";
import { afterEach, expect, test, vi } from "vitest";
import { createDiem } from "../../src/sdk/diem.ts";
import { CONFIG, body, etag } from "./world.ts";

const URL_ = "http://diem.test/config.json";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("without a document nothing happens, and what is initial is known", async () => {
  const used = ["fetch", "setTimeout", "WebSocket"].map((name) => {
    const spy = vi.fn();
    vi.stubGlobal(name, spy);
    return spy;
  });
  expect(globalThis.document).toBeUndefined();
  const diem = hydrate(createDiem(), [{ endpoint: "/vans/7", version: 3, time: "", mediaType: "application/json", data: 30 }]);
  const shown: unknown[] = [];
  diem.watch<number>("/vans/7", ({ value, confirmed }) => shown.push([value, confirmed]));
  await Promise.resolve();
  expect([shown, diem.updates.connection.value.state]).toEqual([[[30, false]], "connecting"]);
  expect(used.flatMap((spy) => spy.mock.calls)).toEqual([]);
});

test("what can be read is there, and what cannot is a warning", async () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const requested: string[] = [];
  vi.stubGlobal("fetch", (url: string, { headers }: { headers: Record<string, string> }) => {
    const path = new URL(url).pathname;
    requested.push(`${path} ${headers.Authorization ?? ""}`.trim());
    if (path === "/config.json") return Promise.resolve(Response.json(CONFIG));
    if (path === "/v1/data/load/GR") return Promise.resolve(Response.json(body("/load/GR", 5), { headers: etag(5) }));
    return Promise.resolve(Response.json({ detail: "there is no endpoint /load/XX" }, { status: 404 }));
  });
  const initial = JSON.parse(JSON.stringify(await readEndpoints(URL_, ["/load/GR", "/load/XX"], { apiKey: "key" })));
  expect(initial).toMatchObject([{ endpoint: "/load/GR", version: 5 }]);
  expect(requested.sort()).toEqual(["/config.json", "/v1/data/load/GR Bearer key", "/v1/data/load/XX Bearer key"]);
  expect(warn.mock.calls).toEqual([["DIEM: /load/XX: there is no endpoint /load/XX"]]);
  expect(hydrate(createDiem(), initial).data.peek("/load/GR")).toMatchObject({ version: 5, unit: "MW", confirmed: false });
  await expect(readEndpoints(URL_, ["load"])).rejects.toThrow("not an endpoint name: load");
});

test("a service that does not answer delays the page no longer than it may", async () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  vi.stubGlobal("fetch", (_: string, { signal }: RequestInit) => new Promise((_resolve, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason));
  }));
  expect(await readEndpoints(URL_, ["/load/GR"], { timeoutMs: 1 })).toEqual([]);
  expect(warn).toHaveBeenCalledOnce();
});
