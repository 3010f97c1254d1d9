import { beforeEach, expect, test } from "vitest";
import { DataCache } from "../../src/sdk/cache.ts";
import { DataService } from "../../src/sdk/data.ts";
import type { Dataset } from "../../src/sdk/snapshot.ts";
import { World, body, etag } from "./world.ts";

let world: World;
let cache: DataCache;
let data: DataService;
let told: Map<string, number>;
let watched: Set<string>;

beforeEach(() => {
  world = new World();
  told = new Map();
  watched = new Set(["/a", "/b"]);
  restart();
});

/** As after a reload of the page: the same storage, nothing in memory. */
function restart(): void {
  cache = new DataCache(world);
  data = new DataService(world, {
    rest: () => Promise.resolve("http://diem.test/v1"),
    told: (endpoint) => told.get(endpoint) ?? 0,
    isWatched: (endpoint) => watched.has(endpoint),
    cache,
  });
}

/** What a promise has come to, once everything due has run. */
async function outcome(promise: Promise<Dataset>): Promise<number | string> {
  let seen: number | string = "pending";
  promise.then(
    (dataset) => (seen = dataset.version),
    (error: Error) => (seen = error.message),
  );
  await world.advance();
  return seen;
}

async function hold(endpoint: string, version: number): Promise<void> {
  const fetched = data.get(endpoint);
  await world.advance();
  world.request.answer(200, body(endpoint, version), etag(version));
  await fetched;
}

test("however many views ask, one request goes out", async () => {
  const asked = [data.get("/a"), data.get("/a"), data.get("/a")];
  await world.advance();
  asked.push(data.get("/a"));
  expect(world.requests.map(({ url }) => url)).toEqual(["http://diem.test/v1/data/a"]);
  world.request.answer(200, body("/a", 5), etag(5));
  expect((await Promise.all(asked)).map(({ version }) => version)).toEqual([5, 5, 5, 5]);
  expect(data.held("/a")).toBe(5);
  await data.get("/a");
  expect(data.stats.fetches).toEqual({ "/a": 1 });
});

test("what was announced newer is fetched by its version, once", async () => {
  await hold("/a", 5);
  told.set("/a", 6);
  const asked = [data.get("/a"), data.get("/a")];
  await world.advance();
  expect(world.request).toMatchObject({ url: "http://diem.test/v1/data/a?version=6", etag: undefined, cache: "default" });
  world.request.answer(200, body("/a", 6), etag(6));
  await Promise.all(asked);
  expect(data.stats.fetches["/a"]).toBe(2);
});

test("an answer that is older than what was announced meanwhile is shown, and followed by another request at once", async () => {
  const first = data.get("/a");
  await world.advance();
  told.set("/a", 6);
  const second = data.get("/a");
  world.request.answer(200, body("/a", 5), etag(5));
  expect(await outcome(first)).toBe(5);
  expect(world.requests).toHaveLength(2);
  expect(await outcome(second)).toBe("pending");
  world.request.answer(200, body("/a", 6), etag(6));
  expect(await outcome(second)).toBe(6);
});

test("an answer that already is what was announced meanwhile needs no second request", async () => {
  const first = data.get("/a");
  await world.advance();
  told.set("/a", 6);
  const second = data.get("/a");
  world.request.answer(200, body("/a", 6), etag(6));
  expect([await outcome(first), await outcome(second)]).toEqual([6, 6]);
  expect(world.requests).toHaveLength(1);
});

test("a failure between two announcements keeps nobody waiting for ever", async () => {
  const first = data.get("/a");
  await world.advance();
  told.set("/a", 6);
  const second = data.get("/a");
  world.request.fail();
  await world.advance(500);
  world.request.answer(200, body("/a", 6), etag(6));
  expect([await outcome(first), await outcome(second)]).toEqual([6, 6]);
});

test("under a burst faster than the requests, every answer reaches the view and the last one is the newest", async () => {
  const shown: number[] = [];
  const show = ({ version }: Dataset): void => void shown.push(version);
  for (let version = 1; version <= 40; version += 1) {
    told.set("/a", version);
    void data.get("/a").then(show);
    await world.advance();
    if (version % 10 === 0) world.request.answer(200, body("/a", version - 3), etag(version - 3));
    await world.advance();
  }
  world.request.answer(200, body("/a", 40), etag(40));
  await world.advance();
  expect([...new Set(shown)]).toEqual([7, 17, 27, 37, 40]);
  expect(data.stats.fetches["/a"]).toBeLessThan(8);
});

/** Answers requests for `/a` by their query, as they come; returns the queries. */
function answering(answer: (query: string) => { status: number; body?: unknown } | undefined): string[] {
  const queries: string[] = [];
  world.auto = (url) => {
    const query = url.split("/data/a")[1] as string;
    queries.push(query.replace(/0\.\d+$/, "N"));
    return answer(query);
  };
  return queries;
}

test("a cache that answers with an old copy is passed by another address", async () => {
  told.set("/a", 6);
  const queries = answering((query) => ({ status: 200, body: body("/a", query.startsWith("?latest") ? 6 : 5) }));
  expect(await outcome(data.get("/a"))).toBe(6);
  expect(queries).toEqual(["?version=6", "", "?latest=N"]);
});

test("a cache that answers everything with an old copy for ever: callers get the problem, and questions become rare", async () => {
  told.set("/a", 6);
  const queries = answering(() => ({ status: 200, body: body("/a", 5) }));
  const asked = data.get("/a");
  expect(await outcome(asked)).toBe("pending");
  await world.advance(500);
  await expect(asked).rejects.toMatchObject({ code: "stale", message: "an old copy is served: version 5 instead of 6" });
  expect(data.health.value.failing.get("/a")?.code).toBe("stale");
  expect(data.peek("/a")).toMatchObject({ version: 5, confirmed: false });
  await world.advance(300_000);
  expect(queries.length).toBeLessThan(40);
  const waiting = data.get("/a");
  answering(() => ({ status: 200, body: body("/a", 6) }));
  await world.advance(60_000);
  expect(await outcome(waiting)).toBe(6);
  expect(data.health.value).toMatchObject({ reachable: true });
});

test("what was announced, and the store no longer has: callers get the problem, and questions become rare", async () => {
  told.set("/a", 6);
  const queries = answering((query) => (query.startsWith("?version") ? { status: 404 } : { status: 200, body: body("/a", 5) }));
  const asked = data.get("/a");
  await world.advance(500);
  await expect(asked).rejects.toMatchObject({ code: "lost", message: "version 6 is lost: the store has only version 5" });
  expect(data.peek("/a")).toMatchObject({ version: 5, confirmed: false });
  await world.advance(300_000);
  expect(queries.length).toBeLessThan(40);
});

test("what was announced, and does not exist: callers get the problem, and questions become rare", async () => {
  told.set("/a", 6);
  const queries = answering(() => ({ status: 404, body: { code: "not_found", detail: "there is no endpoint /a" } }));
  const asked = data.get("/a");
  await world.advance(500);
  await expect(asked).rejects.toMatchObject({ status: 404, code: "not_found", message: "there is no endpoint /a" });
  await world.advance(300_000);
  expect(queries.length).toBeLessThan(40);
});

test("a version that is announced while an old copy is served is asked for within two seconds", async () => {
  told.set("/a", 6);
  const queries = answering(() => ({ status: 200, body: body("/a", 5) }));
  void data.get("/a").catch(() => undefined);
  world.dice = 0.999999;
  await world.advance(100_000);
  queries.length = 0;
  told.set("/a", 7);
  const asked = data.get("/a");
  answering((query) => ({ status: 200, body: body("/a", query === "?version=7" ? 7 : 5) }));
  await world.advance(2_000);
  expect(await outcome(asked)).toBe(7);
});

test("an answer older than what is held is only applied if it comes past all caches", async () => {
  await hold("/a", 5);
  cache.suspect("/a");
  for (const [latest, result] of [[5, 5], [4, 4]] as const) {
    const queries = answering((query) => ({ status: 200, body: body("/a", query === "" ? 4 : latest) }));
    cache.suspect("/a");
    expect(await outcome(data.get("/a"))).toBe(result);
    expect([queries, data.peek("/a")]).toMatchObject([["", "?latest=N"], { version: result, confirmed: true }]);
  }
});

test("304 confirms what is held", async () => {
  await hold("/a", 5);
  cache.suspect("/a");
  const asked = data.get("/a");
  await world.advance();
  world.request.answer(304);
  expect(await outcome(asked)).toBe(5);
  await data.get("/a");
  expect(world.requests).toHaveLength(2);
});

test("a failed fetch is repeated with growing delays until it succeeds, and the health says so meanwhile", async () => {
  world.dice = 0.999999;
  const asked = data.get("/a");
  const times: number[] = [];
  for (let attempt = 0; attempt < 7; attempt += 1) {
    await world.advance();
    times.push(Math.round(world.request.at));
    if (attempt % 2) world.request.answer(500);
    else world.request.fail();
    await world.advance();
    expect(data.health.value.reachable).toBe(false);
    await world.advance(8_000);
  }
  expect(times.slice(0, 2)).toEqual([0, 500]);
  expect(await outcome(asked)).toBe("pending");
  world.request.answer(200, body("/a", 5), etag(5));
  expect(await outcome(asked)).toBe(5);
  expect(data.health.value).toMatchObject({ reachable: true });
});

test("a request without an answer is given up after ten seconds and repeated", async () => {
  void data.get("/a");
  await world.advance(10_000);
  expect(data.health.value.failing.get("/a")?.message).toBe("no answer in time");
  await world.advance(500);
  expect(world.requests).toHaveLength(2);
});

test("a body has thirty seconds from when its head is there", async () => {
  let aborted = 0;
  world.fetch = (_url, { signal }) => {
    signal.addEventListener("abort", () => (aborted += 1));
    const never = (): Promise<never> => new Promise((_, reject) => signal.addEventListener("abort", () => reject(new TypeError("aborted"))));
    return Promise.resolve({ status: 200, headers: { get: () => null }, text: never, arrayBuffer: never });
  };
  void data.get("/a");
  await world.advance(29_999);
  expect([aborted, data.health.value.failing.size]).toEqual([0, 0]);
  await world.advance(1);
  expect([aborted, data.health.value.failing.get("/a")?.message]).toEqual([1, "no answer in time"]);
});

test("a view that left is not waited for", async () => {
  const asked = data.get("/a");
  await world.advance();
  world.request.fail();
  await world.advance();
  watched.delete("/a");
  await world.advance(500);
  expect(await outcome(asked)).toBe("no usable answer");
  expect(world.timers).toBe(0);
  expect(data.health.value.reachable).toBe(true);
});

test("404 is final, except for a version that was announced", async () => {
  const asked = data.get("/a");
  await world.advance();
  world.request.answer(404);
  expect(await outcome(asked)).toBe("HTTP 404");
  told.set("/a", 6);
  const again = data.get("/a");
  await world.advance();
  world.request.answer(404);
  expect(await outcome(again)).toBe("pending");
  await world.advance(500);
  world.request.answer(200, body("/a", 6), etag(6));
  expect(await outcome(again)).toBe(6);
});

test("410 resolves as gone at the announced version, and a re-creation is fetched like anything new", async () => {
  await hold("/a", 5);
  told.set("/a", 6);
  const asked = data.get("/a");
  await world.advance();
  world.request.answer(410);
  expect(await asked).toMatchObject({ version: 6, gone: true, points: [], unit: "MW" });
  expect(data.held("/a")).toBe(6);
  await data.get("/a");
  told.set("/a", 7);
  const created = data.get("/a");
  await world.advance();
  expect(world.request.etag).toBeUndefined();
  world.request.answer(200, body("/a", 7), etag(7));
  expect(await created).toMatchObject({ version: 7, gone: false });
  expect(world.requests).toHaveLength(3);
});

test("a body that is not the dataset asked for is a failure", async () => {
  void data.get("/a");
  await world.advance();
  world.request.answer(200, body("/b", 5));
  await world.advance();
  expect(data.health.value.reachable).toBe(false);
  expect(data.held("/a")).toBe(0);
});

test("without a subscription every call revalidates, and fails when it fails", async () => {
  watched.clear();
  await hold("/c", 5);
  const second = data.get("/c");
  await world.advance();
  expect(world.request.etag).toBe('"5-json"');
  world.request.answer(304);
  expect(await outcome(second)).toBe(5);
  const third = data.get("/c");
  await world.advance();
  world.request.answer(500);
  expect(await outcome(third)).toBe("HTTP 500");
});

test("resync: what is held is in doubt, the next get revalidates within two seconds, and an answer under way does not settle it", async () => {
  await hold("/a", 5);
  data.suspect(["/a"]);
  const asked = data.get("/a");
  await world.advance();
  expect(world.requests).toHaveLength(1);
  await world.advance(1_000);
  expect(world.requests).toHaveLength(2);
  data.suspect(["/a"]);
  world.request.answer(304);
  await asked;
  await world.advance(1_000);
  expect(world.requests).toHaveLength(3);
  world.request.answer(304);
  await world.advance(5_000);
  expect(world.requests).toHaveLength(3);
});

test("fetches go out at once, except for two seconds after a reconnect", async () => {
  world.dice = [0.1, 0.9];
  data.spread();
  void data.get("/a");
  void data.get("/b");
  await world.advance(2_000);
  expect(world.requests.map(({ at }) => at)).toEqual([200, 1800]);
  void data.get("/c");
  await world.advance();
  expect(world.request.at).toBe(2_000);
});

test.each([429, 503])("%i: nobody asks before Retry-After, then spread over two seconds", async (status) => {
  void data.get("/a");
  await world.advance();
  world.dice = [0, 0.25, 0.75];
  world.request.answer(status, {}, { "Retry-After": "30" });
  await world.advance();
  void data.get("/b");
  await world.advance(33_000);
  expect(world.requests.slice(1).map(({ at }) => at)).toEqual([30_500, 31_500]);
});

test("when things look better, a long delay becomes a short one", async () => {
  world.dice = 0.999999;
  void data.get("/a");
  for (let attempt = 0; attempt < 6; attempt += 1) {
    await world.advance();
    world.request.fail();
    await world.advance(attempt < 5 ? 8_000 : 0);
  }
  const before = world.requests.length;
  world.dice = 0.5;
  data.expedite();
  data.expedite();
  await world.advance(1_000);
  expect(world.requests).toHaveLength(before + 1);
});

test("after a reload what was held is there at once, and is revalidated by its ETag", async () => {
  await hold("/a", 5);
  await world.advance(1_000);
  restart();
  await data.ready;
  expect(data.peek("/a")).toMatchObject({ version: 5, points: [{ value: 5 }] });
  expect(data.held("/a")).toBe(5);
  const asked = data.get("/a");
  await world.advance();
  expect(world.request.etag).toBe('"5-json"');
  world.request.answer(304);
  expect(await outcome(asked)).toBe(5);
});

test("the catalogue lists what is well-formed", async () => {
  const asked = data.catalogue();
  await world.advance();
  expect(world.request.url).toBe("http://diem.test/v1/endpoints");
  world.request.answer(200, { endpoints: [{ endpoint: "/a", title: "A", unit: "MW", resolution: "PT1H", area: "GR", version: 5 }, { endpoint: "/b", kind: "document", media_type: "application/json" }, { no: 1 }] });
  const rest = { title: "A", kind: "series", mediaType: "", unit: "MW", resolution: "PT1H", area: "GR", quantity: "", zone: "", version: 5, gone: false };
  expect(await asked).toEqual([{ endpoint: "/a", ...rest }, expect.objectContaining({ endpoint: "/b", kind: "document", mediaType: "application/json", unit: "" })]);
});

test("a catalogue in parts is read to its end, and one that goes round in circles is not read for ever", async () => {
  const entry = (endpoint: string) => ({ endpoint, version: 1 });
  for (const last of [undefined, "/a"]) {
    const asked = data.catalogue();
    await world.advance();
    world.request.answer(200, { endpoints: [entry("/a"), entry("/b b")], next: "/b b" });
    await world.advance();
    expect(world.request.url).toBe("http://diem.test/v1/endpoints?after=%2Fb%20b");
    world.request.answer(200, { endpoints: [entry("/c")], next: last });
    expect((await asked).map(({ endpoint }) => endpoint)).toEqual(["/a", "/b b", "/c"]);
  }
});
