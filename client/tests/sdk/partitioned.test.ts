import { beforeEach, expect, test, vi } from "vitest";
import { ConfigSource } from "../../src/sdk/config.ts";
import { UpdatesService } from "../../src/sdk/updates.ts";
import type { Change } from "../../src/sdk/subscribers.ts";
import { Cluster, url } from "./cluster.ts";
import type { World } from "./world.ts";

let cluster: Cluster;
let world: World;
let updates: UpdatesService;
let held: Map<string, number>;

beforeEach(() => {
  cluster = new Cluster();
  world = cluster.world;
  held = new Map();
  const config = new ConfigSource(world, "/config.json");
  updates = new UpdatesService(world, {
    server: (failures) => config.server(failures),
    metadata: (failures) => config.metadata(failures),
    held: (endpoint) => held.get(endpoint) ?? 0,
  });
  for (const server of ["a", "b", "c"]) cluster.owners.set(`/${server}`, server);
});

const status = (): string => updates.connection.value.state;

function listen(endpoint: string): { heard: Change[]; stop: () => void } {
  const heard: Change[] = [];
  return { heard, stop: updates.subscribe(endpoint, (change) => heard.push(change)) };
}

/** Connected, with every endpoint at its owner. */
async function settled(...endpoints: string[]): Promise<void> {
  for (const endpoint of endpoints) listen(endpoint);
  updates.connect();
  await world.advance();
  for (const server of new Set(cluster.connected)) await cluster.serve(server);
  expect(status()).toBe("open");
}

test("three owners: one request to locate, one connection each, open when all are", async () => {
  const [a, b] = [listen("/a"), listen("/b")];
  listen("/c");
  expect(status()).toBe("closed");
  updates.connect();
  await world.advance();
  expect(cluster.asked).toEqual([{ endpoints: ["/a", "/b", "/c"] }]);
  expect(cluster.connected).toEqual(["a", "b", "c"]);
  await cluster.serve("a");
  await cluster.serve("c");
  expect([status(), updates.isLive("/a"), updates.isLive("/b")]).toEqual(["connecting", true, false]);
  await cluster.serve("b");
  expect(updates.connection.value).toMatchObject({ state: "open", server: "a, b, c", mode: "z-client", reason: "" });
  expect(updates.live.value).toMatchObject({ live: true, affected: new Set() });
  cluster.at("b")?.update("/b", 7);
  expect([a.heard, b.heard.length]).toEqual([[], 1]);
  expect(updates.told("/b")).toBe(7);
});

test("without subscriptions there is no connection, and nothing is open or live", async () => {
  updates.connect();
  await world.advance(10_000);
  expect([status(), world.sockets.length, cluster.asked.length]).toEqual(["connecting", 0, 0]);
  expect(updates.live.value.live).toBe(false);
});

test.each(["before", "after"])("nothing is live before an owner's welcome, nor open before its answer: wanted %s connect()", async (when) => {
  const said: string[] = [];
  const say = (): void => void said.push(`${status()} ${updates.live.value.live}`);
  updates.connection.observe(say);
  updates.live.observe(say);
  if (when === "before") listen("/a");
  updates.connect();
  await world.advance();
  if (when === "after") listen("/a");
  await world.advance(1_000);
  expect(cluster.connected).toEqual(["a"]);
  expect(new Set(said)).toEqual(new Set(["closed false", "connecting false"]));
  cluster.at("a")?.welcome();
  await world.advance();
  expect([status(), updates.live.value.live]).toEqual(["connecting", false]);
  await cluster.serve("a");
  cluster.at("a")?.frame({ type: "subscribed", id: 1, endpoints: { "/a": null } });
  await world.advance();
  expect([status(), updates.live.value.live]).toEqual(["open", true]);
});

test("what is wanted later is connecting until its server has answered, and takes nothing from the rest", async () => {
  await settled("/a");
  listen("/b");
  await world.advance();
  expect([status(), updates.isLive("/a"), updates.isLive("/b")]).toEqual(["connecting", true, false]);
  await cluster.serve("b");
  expect([status(), updates.isLive("/b")]).toEqual(["open", true]);
});

test("the clone that the first answer chose is kept", async () => {
  await settled("/a");
  listen("/b");
  await world.advance();
  updates.close();
  updates.connect();
  await world.advance();
  expect(cluster.asked.map(({ clone }) => clone)).toEqual([undefined, 2, 2]);
});

test("250 endpoints: one request to locate, and at most 100 names in a message to their owners", async () => {
  for (let n = 0; n < 250; n += 1) {
    cluster.owners.set(`/e/${n}`, n < 220 ? "a" : "b");
    listen(`/e/${n}`);
  }
  updates.connect();
  await cluster.serve("a");
  await cluster.serve("b");
  expect(cluster.asked.map(({ endpoints }) => endpoints.length)).toEqual([250]);
  const sizes = (server: string): number[] => (cluster.at(server)?.sent ?? []).map(({ endpoints }) => Object.keys(endpoints as object).length);
  expect([sizes("a"), sizes("b"), status()]).toEqual([[100, 100, 20], [30], "open"]);
});

test("moved with an owner: subscribed there with what is held before it is left here, and nobody is asked", async () => {
  await settled("/a", "/b");
  held.set("/a", 4);
  cluster.at("a")?.frame({ type: "moved", endpoints: ["/a"], owner: url("c") });
  await world.advance();
  expect(cluster.sent("a")).toEqual(["+/a"]);
  await cluster.serve("c");
  expect(cluster.at("c")?.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": 4 } }]);
  expect(cluster.sent("a")).toEqual(["+/a", "-/a"]);
  expect([cluster.asked.length, updates.isLive("/a")]).toEqual([1, true]);
});

test("updates of both servers in a move are heard once", async () => {
  await settled("/a");
  const { heard } = listen("/a");
  cluster.at("a")?.frame({ type: "moved", endpoints: ["/a"], owner: url("b") });
  await world.advance();
  cluster.at("a")?.update("/a", 5);
  await cluster.serve("b");
  cluster.at("b")?.update("/a", 5);
  cluster.at("b")?.update("/a", 6);
  expect(heard.map((change) => change.type === "update" && change.version)).toEqual([5, 6]);
});

test("moved without an owner: the metadata service is asked", async () => {
  await settled("/a");
  cluster.owners.set("/a", "b");
  cluster.at("a")?.frame({ type: "moved", endpoints: ["/a"] });
  await cluster.serve("b");
  expect(cluster.asked[1]).toEqual({ endpoints: ["/a"], clone: 2 });
  expect([cluster.sent("b"), updates.isLive("/a")]).toEqual([["+/a"], true]);
});

test("a connection that nothing needs any more is closed after five seconds, unless something comes back", async () => {
  await settled("/a", "/b");
  const { stop } = listen("/c");
  await cluster.serve("c");
  stop();
  await world.advance(4_000);
  const again = listen("/c");
  await world.advance(4_000);
  expect(cluster.connected).toEqual(["a", "b", "c"]);
  again.stop();
  await world.advance(5_000);
  expect([cluster.connected, status()]).toEqual([["a", "b"], "open"]);
});

test("servers that send it to each other: three hops, then delays, and the rest works on", async () => {
  world.dice = 0.999999;
  listen("/a");
  listen("/c");
  updates.connect();
  await cluster.serve("c");
  const refuse = { a: { "/a": "b" }, b: { "/a": "a" } };
  await cluster.serve("a", refuse.a);
  await cluster.serve("b", refuse.b);
  await cluster.serve("a", refuse.a);
  await cluster.serve("b", refuse.b);
  expect([cluster.sent("a"), cluster.sent("b")]).toEqual([["+/a", "+/a"], ["+/a", "+/a"]]);
  expect(updates.connection.value).toMatchObject({ state: "reconnecting", reason: "no server has some of the endpoints now" });
  expect([updates.isLive("/a"), updates.isLive("/c")]).toEqual([false, true]);
  expect(Math.round((updates.connection.value.retryAt as number) - world.time)).toBe(500);
  await world.advance(499);
  expect(cluster.asked).toHaveLength(1);
  await world.advance(1);
  expect(cluster.asked).toHaveLength(2);
  await cluster.serve("a");
  expect([status(), updates.isLive("/a")]).toEqual(["open", true]);
});

test("an owner that dies: its endpoints alone are stale, and go where they are located before anything is dialled", async () => {
  await settled("/a", "/b");
  const { heard } = listen("/a");
  cluster.owners.set("/a", "b");
  cluster.at("a")?.end(1006);
  await world.advance();
  expect([status(), updates.isLive("/a"), updates.isLive("/b"), updates.live.value.live]).toEqual(["reconnecting", false, true, true]);
  await world.advance(500);
  await cluster.serve("b");
  expect([status(), updates.isLive("/a")]).toEqual(["open", true]);
  cluster.at("b")?.update("/a", 5);
  expect(heard).toHaveLength(1);
  await cluster.pass(60_000);
  expect(world.sockets.map((socket) => socket.url[5])).toEqual(["a", "b"]);
});

test("an owner that is silent for 32 s is given up, and its endpoints are located anew", async () => {
  await settled("/a");
  cluster.owners.set("/a", "b");
  await world.advance(32_499);
  expect([status(), cluster.asked.length]).toEqual(["open", 1]);
  await world.advance(1);
  expect(updates.connection.value).toMatchObject({ state: "reconnecting", reason: "silence" });
  await world.advance(500);
  await cluster.serve("b");
  expect([status(), updates.isLive("/a"), cluster.asked.length]).toEqual(["open", true, 2]);
});

/** Milliseconds until the next dial. */
const delay = (): number => Math.round((updates.connection.value.retryAt as number) - world.time);

test("a server that is named while it waits is dialled within half a second, its failures forgotten, once per answer", async () => {
  await settled("/a");
  world.dice = 0.999999;
  for (const expected of [500, 500, 1_000, 2_000]) {
    cluster.at("a")?.end(1006);
    await world.advance();
    expect(delay()).toBe(expected);
    if (expected < 2_000) await world.advance(expected);
  }
  const asked = cluster.asked.length;
  const dialled = world.sockets.length;
  for (const name of ["/d", "/e"]) cluster.owners.set(name, "a");
  listen("/d");
  listen("/e");
  await world.advance();
  expect([cluster.asked.length - asked, delay()]).toEqual([1, 500]);
  await world.advance(500);
  expect([cluster.asked.length - asked, world.sockets.length - dialled]).toEqual([1, 1]);
  cluster.at("a")?.end(1006);
  await world.advance();
  expect(delay()).toBe(500);
});

test("a server that is named is dialled no later than it would have been", async () => {
  await settled("/a");
  world.dice = 0.999999;
  cluster.at("a")?.end(1006);
  await world.advance(400);
  cluster.owners.set("/d", "a");
  listen("/d");
  await world.advance();
  expect(delay()).toBe(100);
});

test("a server that asked for a pause gets it, although it is named", async () => {
  await settled("/a");
  world.dice = 0.999999;
  cluster.at("a")?.end(1013, "overload retry=4000");
  cluster.owners.set("/d", "a");
  listen("/d");
  await world.advance();
  expect(delay()).toBe(4_000);
});

test.each([
  ["end at five seconds while it is named", true, [500, 500, 1_000, 2_000, 4_000, 5_000]],
  ["end at half a minute while nobody says whether it is there", false, [500, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]],
])("delays of an owner that is gone %s", async (_, isUp, expected) => {
  await settled("/a");
  world.dice = 0.999999;
  cluster.metadataUp = isUp;
  const windows: number[] = [];
  while (windows.length < expected.length) {
    cluster.at("a")?.end(1006);
    await world.advance();
    windows.push(delay());
    await world.advance(delay());
  }
  expect(windows).toEqual(expected);
});

test("an owner that restarts is dialled again, and hears what is held", async () => {
  await settled("/a");
  held.set("/a", 9);
  cluster.at("a")?.end(1012, "restart retry=2000");
  await world.advance(1_000);
  expect(cluster.asked).toHaveLength(2);
  await cluster.serve("a");
  expect(cluster.at("a")?.sent).toEqual([{ type: "subscribe", id: 2, endpoints: { "/a": 9 } }]);
  expect(status()).toBe("open");
});

test("an owner that is located elsewhere only later is left within ten seconds of that, whatever its own delay", async () => {
  world.dice = 0.999999;
  await settled("/a");
  for (let attempt = 0; attempt < 6; attempt += 1) {
    cluster.at("a")?.end(1006);
    await world.advance((updates.connection.value.retryAt as number) - world.time);
  }
  cluster.at("a")?.end(1006);
  cluster.owners.set("/a", "b");
  await world.advance(10_000);
  await cluster.serve("b");
  expect(updates.isLive("/a")).toBe(true);
});

test("metadata down at the start: connecting turns into reconnecting with back-off, and ends with the first answer", async () => {
  world.dice = 0.999999;
  cluster.metadataUp = false;
  listen("/a");
  updates.connect();
  await world.advance();
  const windows: number[] = [];
  for (let attempt = 0; attempt < 3; attempt += 1) {
    const { state, reason, retryAt } = updates.connection.value;
    expect([state, reason]).toEqual(["reconnecting", "the metadata service does not answer"]);
    windows.push(Math.round((retryAt as number) - world.time));
    await world.advance(windows.at(-1));
  }
  expect(windows).toEqual([500, 1000, 2000]);
  cluster.metadataUp = true;
  await world.advance(4_000);
  await cluster.serve("a");
  expect([status(), updates.isLive("/a")]).toEqual(["open", true]);
});

test("connect() asks at once instead of waiting, and a Retry-After is waited for", async () => {
  cluster.metadataUp = false;
  cluster.retryAfter = { "Retry-After": "60" };
  listen("/a");
  updates.connect();
  await world.advance(59_999);
  const questions = (): number => world.requests.filter((request) => request.url.endsWith("/locate")).length;
  expect(questions()).toBe(1);
  cluster.metadataUp = true;
  updates.connect();
  await cluster.serve("a");
  expect([questions(), status()]).toEqual([2, "open"]);
});

test("an answer of an older epoch moves nobody back, and places what has no place, until nothing newer came for a minute", async () => {
  cluster.epoch = 7;
  await settled("/a");
  cluster.epoch = 3;
  cluster.owners.set("/a", "b");
  cluster.at("a")?.frame({ type: "status", live: false, since: "t" });
  listen("/c");
  await cluster.serve("c");
  await world.advance(20_000);
  expect(cluster.asked.filter(({ endpoints }) => endpoints.includes("/a")).length).toBeGreaterThan(2);
  expect([updates.isLive("/c"), cluster.connected]).toEqual([true, ["a", "c"]]);
  await world.advance(45_000);
  await cluster.serve("b");
  expect(cluster.sent("b")).toEqual(["+/a"]);
});

test("older answers that are far apart are no minute without a newer one", async () => {
  cluster.epoch = 7;
  await settled("/a");
  cluster.epoch = 3;
  cluster.owners.set("/a", "b");
  for (const asked of [2, 3, 4]) {
    cluster.at("a")?.frame({ type: "status", live: false, since: "t" });
    await world.advance(10_000);
    expect([cluster.asked.length, cluster.connected]).toEqual([asked, ["a"]]);
    cluster.at("a")?.frame({ type: "status", live: true, since: "t" });
    await cluster.pass(100_000);
  }
});

test.each([false, true])("after an answer of an older epoch another service is asked, also after a failure: %s", async (failed) => {
  cluster.epoch = 7;
  await settled("/a");
  if (failed) {
    cluster.metadataUp = false;
    listen("/b");
    await world.advance();
    cluster.metadataUp = true;
    await world.advance(30_000);
  }
  cluster.epoch = 3;
  for (const endpoint of ["/c", "/d"]) {
    listen(endpoint);
    await world.advance();
  }
  const hosts = cluster.hosts.slice(-2);
  expect(new Set(hosts).size).toBe(2);
});

test("a server that wanted this client no more while nothing needed it is dialled when something does", async () => {
  await settled("/a", "/b");
  const { stop } = listen("/c");
  await cluster.serve("c");
  stop();
  cluster.at("c")?.end(4509, "too many errors");
  await world.advance(1_000);
  listen("/c");
  await cluster.serve("c");
  expect([status(), updates.isLive("/c")]).toEqual(["open", true]);
});

test("metadata down later: what runs goes on, and what is lost is dialled where it was", async () => {
  await settled("/a", "/b");
  cluster.metadataUp = false;
  cluster.at("a")?.end(1006);
  await world.advance();
  expect(status()).toBe("reconnecting");
  await world.advance(250);
  await cluster.serve("a");
  expect([status(), updates.isLive("/a"), updates.isLive("/b"), cluster.connected]).toEqual(["open", true, true, ["b", "a"]]);
});

test("a metadata service that does not answer holds up a dial for two seconds at most", async () => {
  await settled("/a");
  const auto = world.auto;
  world.auto = (address, body) => (address.endsWith("/locate") ? undefined : auto(address, body));
  cluster.at("a")?.end(1006);
  await world.advance(250 + 1_999);
  expect(world.sockets).toHaveLength(1);
  await world.advance(1);
  await cluster.serve("a");
  expect(status()).toBe("open");
});

test("live:false for five to ten seconds: located again, and moved to another owner without a gap", async () => {
  world.dice = 0.5;
  await settled("/a", "/b");
  cluster.at("a")?.frame({ type: "status", live: false, since: "2026-01-01T00:00:00Z" });
  await world.advance();
  expect([status(), updates.isLive("/a"), updates.isLive("/b"), updates.live.value.live]).toEqual(["open", false, true, true]);
  await world.advance(7_499);
  expect(cluster.asked).toHaveLength(1);
  await world.advance(1);
  expect([cluster.asked[1]?.endpoints, cluster.sent("a")]).toEqual([["/a"], ["+/a"]]); // still the same owner
  cluster.owners.set("/a", "b");
  await world.advance(7_500);
  expect(cluster.sent("a")).toEqual(["+/a"]);
  await cluster.serve("b");
  expect([cluster.sent("a"), updates.isLive("/a")]).toEqual([["+/a", "-/a"], true]);
});

test("live again in time: nobody is asked", async () => {
  await settled("/a");
  cluster.at("a")?.frame({ type: "status", live: false, since: "t" });
  await world.advance(4_000);
  expect(updates.live.value).toMatchObject({ live: false, since: "t" });
  cluster.at("a")?.frame({ type: "status", live: true, since: "u" });
  await world.advance(20_000);
  expect([cluster.asked.length, updates.live.value]).toEqual([1, { live: true, since: "u", affected: new Set() }]);
  cluster.at("a")?.frame({ type: "status", live: true, since: "v" });
  await world.advance();
  expect(updates.live.value.since).toBe("v");
});

test("a status of some endpoints marks these alone, until they are live again", async () => {
  await settled("/a", "/b");
  cluster.at("a")?.frame({ type: "status", live: false, since: "t", endpoints: ["/a"] });
  await world.advance();
  expect([updates.isLive("/a"), updates.isLive("/b")]).toEqual([false, true]);
  cluster.at("a")?.frame({ type: "status", live: true, since: "t", endpoints: ["/a"] });
  await world.advance();
  expect(updates.isLive("/a")).toBe(true);
});

test("hot endpoints use a connection that is there; alone, the first of the servers; and outlive their server", async () => {
  cluster.owners.set("/hot", "hot");
  cluster.servers = ["c", "b"];
  await settled("/a");
  const { stop } = listen("/hot");
  await cluster.serve("a");
  expect([cluster.connected, cluster.sent("a")]).toEqual([["a"], ["+/a", "+/hot"]]);
  stop();
  updates.close();
  updates = new UpdatesService(world, {
    server: () => Promise.resolve(""),
    metadata: () => new ConfigSource(world, "/config.json").metadata(0),
    held: () => 0,
  });
  await settled("/hot");
  expect(cluster.connected).toEqual(["c"]);
  cluster.at("c")?.end(1006);
  await world.advance(500);
  await cluster.serve("b");
  expect([cluster.connected, updates.isLive("/hot")]).toEqual([["b"], true]);
});

test("an owner on another host is never dialled, and the status says so", async () => {
  cluster.owners.set("/x", "wss://evil.test/ws");
  await settled("/a");
  listen("/x");
  await world.advance();
  expect(updates.connection.value).toMatchObject({ state: "reconnecting", reason: "refused a server that is on another host: wss://evil.test/ws" });
  cluster.at("a")?.frame({ type: "moved", endpoints: ["/a"], owner: "wss://evil.test/ws" });
  await world.advance();
  expect(world.sockets.map((socket) => socket.url)).toEqual([url("a")]);
  expect([world.reported, updates.isLive("/x")]).toEqual([[], false]);
});

test("a rejection with another code reaches the views, and nothing is located for it", async () => {
  const { heard } = listen("/a");
  updates.connect();
  await world.advance();
  cluster.at("a")?.welcome();
  cluster.at("a")?.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/a": { code: "forbidden", message: "no" } } });
  await world.advance();
  expect(heard).toEqual([{ type: "rejected", endpoint: "/a", code: "forbidden", message: "no" }]);
  expect([updates.isWatched("/a"), updates.isLive("/a"), status(), cluster.asked.length]).toEqual([false, false, "open", 1]);
});

test("a new owner without room: the old one is kept while it delivers, and the new one asked again", async () => {
  world.dice = 0.999999;
  await settled("/a", "/b");
  const { heard } = listen("/a");
  cluster.owners.set("/a", "b");
  cluster.at("a")?.frame({ type: "moved", endpoints: ["/a"], owner: url("b") });
  await cluster.serve("b", { "/a": "limit" });
  expect([cluster.sent("a"), cluster.sent("b")]).toEqual([["+/a"], ["+/b", "+/a"]]);
  cluster.at("a")?.update("/a", 5); // it may deliver, and may not: nobody calls that live
  expect([heard.length, updates.isLive("/a"), updates.isWatched("/a"), updates.isLive("/b")]).toEqual([1, false, true, true]);
  expect(delay()).toBe(500);
  for (const window of [500, 1_000, 2_000]) {
    await world.advance(window);
    await cluster.serve("b", { "/a": "limit" });
  }
  expect(cluster.sent("b")).toHaveLength(5);
  cluster.at("a")?.end(4000, "retry=2000"); // the move is over: it was told, and stayed
  await world.advance(4_000);
  await cluster.serve("b", { "/a": "limit" });
  const rejected = { type: "rejected", endpoint: "/a", code: "limit", message: "more than 128 subscriptions" };
  expect([heard.slice(1), updates.isLive("/a"), updates.isWatched("/a"), status()]).toEqual([[rejected], false, false, "open"]);
  await world.advance(8_000);
  await cluster.serve("b");
  expect([heard.length, updates.isLive("/a"), updates.isWatched("/a"), cluster.connected]).toEqual([2, true, true, ["b"]]);
});

test("a better owner without room: what gave nothing away is live where it was", async () => {
  world.dice = 0.999999;
  await settled("/a", "/b");
  cluster.owners.set("/a", "b");
  cluster.at("a")?.frame({ type: "status", live: false, since: "t" });
  await world.advance(10_000);
  cluster.at("a")?.frame({ type: "status", live: true, since: "t" });
  await cluster.serve("b", { "/a": "limit" });
  expect([cluster.sent("a"), cluster.sent("b"), updates.isLive("/a"), status()]).toEqual([["+/a"], ["+/b", "+/a"], true, "open"]);
  await world.advance(500);
  await cluster.serve("b");
  expect([cluster.sent("a"), updates.isLive("/a")]).toEqual([["+/a", "-/a"], true]);
});

test("what there is no room for is asked for again when something is given up, and told once", async () => {
  world.dice = 0.999999;
  const { heard } = listen("/a");
  const { stop } = listen("/d");
  cluster.owners.set("/d", "a");
  updates.connect();
  for (const window of [0, 500, 1_000, 2_000]) {
    await world.advance(window);
    await cluster.serve("a", { "/a": "limit" });
  }
  expect([heard.length, updates.isWatched("/a"), updates.isLive("/a"), status()]).toEqual([1, false, false, "open"]);
  stop();
  await cluster.serve("a");
  expect([cluster.sent("a").slice(-2), updates.isWatched("/a"), updates.isLive("/a")]).toEqual([["-/d", "+/a"], true, true]);
});

test("a server that wants this client no more closes its own connection for good, until connect()", async () => {
  await settled("/a", "/b");
  cluster.at("a")?.end(4504, "too many");
  await world.advance(30_000);
  expect(updates.connection.value).toMatchObject({ state: "closed", code: 4504, reason: "too many" });
  expect([updates.isLive("/a"), updates.isLive("/b"), cluster.connected]).toEqual([false, true, ["b"]]);
  updates.connect();
  await cluster.serve("a");
  expect([status(), updates.isLive("/a")]).toEqual(["open", true]);
});

test("close() leaves no connection and no timer, and connect() begins anew", async () => {
  await settled("/a", "/b");
  cluster.at("b")?.end(1006);
  updates.close();
  await world.advance(60_000);
  expect([status(), updates.live.value.live, world.timers]).toEqual(["closed", false, 0]);
  expect(world.sockets.filter(({ closed }) => closed)).toHaveLength(2);
  updates.connect();
  await cluster.serve("a");
  await cluster.serve("b");
  expect([status(), updates.isLive("/a"), updates.isLive("/b")]).toEqual(["open", true, true]);
});

test("a page that is open when the deployment becomes partitioned follows", async () => {
  cluster.mode = "single";
  listen("/a");
  updates.connect();
  await world.advance();
  world.last.welcome();
  await world.advance();
  cluster.mode = "z-client";
  for (let attempt = 0; attempt < 3; attempt += 1) {
    world.last.end(1006);
    await world.advance((updates.connection.value.retryAt as number) - world.time);
  }
  await cluster.serve("a");
  expect([status(), updates.isLive("/a"), cluster.connected]).toEqual(["open", true, ["a"]]);
});

test("a page that is open when the deployment is partitioned no more follows", async () => {
  cluster.metadataUp = false;
  listen("/a");
  updates.connect();
  await world.advance();
  cluster.mode = "x";
  await world.advance(10_000);
  expect([cluster.connected.length, status()]).toEqual([1, "connecting"]);
  world.last.welcome();
  await world.advance();
  expect(updates.connection.value).toMatchObject({ state: "open", mode: "single" });
  expect(world.last.sent).toMatchObject([{ type: "subscribe", endpoints: { "/a": null } }]);
});

test("the part of the SDK for this mode is asked for again when it could not be loaded", async () => {
  vi.doMock("../../src/sdk/partitioned.ts", () => {
    throw new Error("404");
  });
  listen("/a");
  updates.connect();
  await world.advance();
  vi.doUnmock("../../src/sdk/partitioned.ts");
  expect(updates.connection.value).toMatchObject({ state: "reconnecting", reason: "no server to dial" });
  await world.advance(500);
  await cluster.serve("a");
  expect(status()).toBe("open");
});

test("what is closed while that part is loaded stays closed", async () => {
  listen("/a");
  updates.connect();
  await Promise.resolve();
  updates.close();
  await world.advance(60_000);
  expect([status(), cluster.connected, cluster.asked]).toEqual(["closed", [], []]);
});
