import { beforeEach, expect, test } from "vitest";
import { UpdatesService } from "../../src/sdk/updates.ts";
import type { Change } from "../../src/sdk/subscribers.ts";
import type { FakeSocket } from "./world.ts";
import { World } from "./world.ts";

let world: World;
let held: Map<string, number>;
let updates: UpdatesService;
let moves: number;

beforeEach(() => {
  world = new World();
  held = new Map();
  moves = 0;
  updates = new UpdatesService(world, {
    server: (failures) => Promise.resolve(`ws://diem.test/ws?failures=${failures}`),
    held: (endpoint) => held.get(endpoint) ?? 0,
    moved: () => void (moves += 1),
  });
});

async function connected(): Promise<FakeSocket> {
  updates.connect();
  await world.advance();
  world.last.welcome();
  await world.advance();
  return world.last;
}

interface View {
  readonly heard: Change[];
  readonly stop: () => void;
}

function listen(endpoint: string): View {
  const heard: Change[] = [];
  return { heard, stop: updates.subscribe(endpoint, (change) => heard.push(change)) };
}

test("many views share one subscription, and the last one to leave ends it", async () => {
  const socket = await connected();
  const [a, b] = [listen("/a"), listen("/a")];
  await world.advance();
  expect(socket.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": null } }]);
  socket.update("/a", 5);
  expect([a.heard, b.heard].map((heard) => heard.length)).toEqual([1, 1]);
  a.stop();
  a.stop();
  await world.advance();
  expect(socket.sent).toHaveLength(1);
  b.stop();
  await world.advance();
  expect(socket.sent[1]).toEqual({ type: "unsubscribe", id: 2, endpoints: ["/a"] });
  expect(updates.subscriptions).toBe(0);
});

test("unsubscribe ends one subscription of a callback, and ignores strangers", async () => {
  const socket = await connected();
  const heard: Change[] = [];
  const callback = (change: Change): void => void heard.push(change);
  updates.subscribe("/a", callback);
  updates.subscribe("/a", callback);
  updates.unsubscribe("/a", callback);
  updates.unsubscribe("/a", () => undefined);
  updates.unsubscribe("/b", callback);
  socket.update("/a", 1);
  expect(heard).toHaveLength(1);
  updates.unsubscribe("/a", callback);
  expect(updates.subscriptions).toBe(0);
});

test("subscriptions of one turn go out in one message, 100 names at most", async () => {
  const socket = await connected();
  for (let n = 0; n < 130; n += 1) listen(`/e/${n}`);
  await world.advance();
  expect(socket.sent.map(({ endpoints }) => Object.keys(endpoints as object).length)).toEqual([100, 30]);
});

test("a bad name is the caller's error and never reaches the server", async () => {
  await connected();
  expect(() => listen("no/slash")).toThrow(TypeError);
  expect(updates.subscriptions).toBe(0);
});

test("an update not newer than what is held or told is dropped, and so is what nobody subscribed to", async () => {
  const socket = await connected();
  const { heard } = listen("/a");
  held.set("/a", 5);
  for (const version of [4, 5, 7, 7, 6, 8]) socket.update("/a", version);
  socket.update("/stranger", 9);
  expect(heard.map((change) => change.type === "update" && change.version)).toEqual([7, 8]);
  expect(updates.stats).toEqual({ frames: 8, updateFrames: 7 });
});

test("a deletion is told like any change", async () => {
  const socket = await connected();
  const { heard } = listen("/a");
  socket.update("/a", 5, { gone: true });
  expect(heard[0]).toMatchObject({ version: 5, gone: true });
});

test("after a reconnect the known versions are those held, not those told", async () => {
  const socket = await connected();
  listen("/a");
  await world.advance();
  held.set("/a", 4);
  socket.update("/a", 5);
  socket.end(1006);
  await world.advance(1000);
  world.last.welcome();
  expect(world.last.sent).toEqual([{ type: "subscribe", id: 2, endpoints: { "/a": 4 } }]);
});

test("a version told but never fetched comes again to the next subscription", async () => {
  const socket = await connected();
  listen("/a").stop();
  const first = listen("/a");
  socket.update("/a", 5);
  first.stop();
  await world.advance();
  const second = listen("/a");
  await world.advance();
  socket.update("/a", 5);
  expect(second.heard).toHaveLength(1);
});

test("before the welcome nothing is sent, and subscriptions wait for it", async () => {
  updates.connect();
  const { stop } = listen("/gone");
  listen("/a");
  await world.advance();
  stop();
  expect(world.last.sent).toEqual([]);
  world.last.welcome();
  await world.advance();
  expect(world.last.sent).toEqual([{ type: "subscribe", id: 1, endpoints: { "/a": null } }]);
});

test("the page's identity goes with the first request of a connection to a server that records traffic, never in the URL", async () => {
  updates.connect();
  listen("/a");
  await world.advance();
  const welcome = { type: "welcome", session: "s", server: "a", mode: "x", limits: {}, traffic: true };
  world.last.frame(welcome);
  await world.advance();
  listen("/b");
  await world.advance();
  expect(world.last.sent).toEqual([
    { type: "subscribe", id: 1, endpoints: { "/a": null }, client: "page-number-one" },
    { type: "subscribe", id: 2, endpoints: { "/b": null } },
  ]);
  world.last.end(1012);
  await world.advance(60_000);
  world.last.frame(welcome);
  await world.advance();
  expect(world.last.sent.map(({ client }) => client)).toEqual(["page-number-one"]);
  world.last.end(1012);
  await world.advance(60_000);
  world.last.welcome();
  await world.advance();
  expect(world.last.sent.map(({ client }) => client)).toEqual([undefined]);
  expect(world.sockets.map(({ url }) => url).join()).not.toContain("page-number-one");
});

test("a rejected name is reported to its views; a request that failed as a whole too", async () => {
  const socket = await connected();
  const a = listen("/a");
  await world.advance();
  socket.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/a": { code: "forbidden", message: "no" } } });
  expect(a.heard).toEqual([{ type: "rejected", endpoint: "/a", code: "forbidden", message: "no" }]);
  expect(updates.isWatched("/a")).toBe(false);
  const b = listen("/b");
  await world.advance();
  socket.frame({ type: "error", id: 2, code: "too_many", message: "m" });
  expect(b.heard).toMatchObject([{ type: "rejected", code: "too_many" }]);
});

test("several subscribed frames may answer one request", async () => {
  const socket = await connected();
  const [a, b] = [listen("/a"), listen("/b")];
  await world.advance();
  socket.frame({ type: "subscribed", id: 1, endpoints: { "/a": 3 }, rejected: {} });
  socket.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/b": { code: "bad_name", message: "" } } });
  expect([a.heard.length, b.heard.length]).toEqual([0, 1]);
});

test("a place that became free goes to what was refused for the limit", async () => {
  const socket = await connected();
  const a = listen("/a");
  listen("/b");
  await world.advance();
  socket.frame({ type: "subscribed", id: 1, endpoints: { "/a": null }, rejected: { "/b": { code: "limit", message: "" } } });
  a.stop();
  await world.advance();
  socket.frame({ type: "unsubscribed", id: 2, endpoints: ["/a"] });
  await world.advance();
  expect(socket.sent[2]).toEqual({ type: "subscribe", id: 3, endpoints: { "/b": null } });
});

test("messages stay below the server's rate, and what waits is what is still wanted", async () => {
  const socket = await connected();
  for (let n = 0; n < 60; n += 1) {
    const { stop } = listen(`/e/${n}`);
    await world.advance();
    if (n < 59) stop();
    await world.advance();
  }
  expect(socket.sent).toHaveLength(15);
  await world.advance(60_000 - 1);
  const server = new Set<string>();
  for (const { type, endpoints } of socket.sent) {
    if (type === "subscribe") for (const name of Object.keys(endpoints as object)) server.add(name);
    else for (const name of endpoints as string[]) server.delete(name);
  }
  expect([...server]).toEqual(["/e/59"]);
  expect(socket.sent.length).toBeLessThan(20);
});

/** A client that has subscribed to `count` names of a server that allows `most`; `again` has its connections lost. */
async function subscribed(count: number, most = Math.max(128, count)): Promise<{ again(code?: number, server?: string): Promise<FakeSocket> }> {
  const limits = { subscriptions: most };
  const welcome = (server: string): void => world.last.frame({ type: "welcome", session: "s", server, mode: "x", limits });
  world.dice = 0;
  updates.connect();
  await world.advance();
  for (let n = 0; n < count; n += 1) listen(`/e/${n}`);
  welcome("a");
  await world.advance();
  return {
    async again(code = 1012, server = "a"): Promise<FakeSocket> {
      world.last.end(code);
      await world.advance();
      welcome(server);
      await world.advance();
      return world.last;
    },
  };
}

const names = (socket: FakeSocket): number => socket.sent.reduce((sum, { endpoints }) => sum + Object.keys(endpoints as object).length, 0);

test("a reconnect brings no permits: the server's count outlives the connection", async () => {
  const { again } = await subscribed(0);
  for (let n = 0; n < 20; n += 1) {
    listen(`/${n}`);
    await world.advance();
  }
  expect(world.last.sent).toHaveLength(15);
  const socket = await again();
  expect(socket.sent).toHaveLength(0);
  await world.advance(700);
  expect(names(socket)).toBe(20);
  expect(names(await again(1012, "another server"))).toBe(20);
});

test.each([[128, 3, 2_800], [1_024, 1, 22_000]])("%d subscriptions are asked for again %d times at once, then within %d ms", async (count, atOnce, withinMs) => {
  const { again } = await subscribed(count);
  expect(names(world.last)).toBe(count);
  for (let turn = 1; turn < atOnce; turn += 1) expect(names(await again())).toBe(count);
  for (let turn = 0; turn < 2; turn += 1) {
    const socket = await again();
    expect(names(socket)).toBeLessThan(count);
    await world.advance(withinMs);
    expect(names(socket)).toBe(count);
  }
});

test("names use up permits as the server counts them", async () => {
  await subscribed(128, 200);
  expect(world.last.sent).toHaveLength(2);
  for (let n = 0; n < 20; n += 1) {
    listen(`/${n}`);
    await world.advance();
  }
  expect(world.last.sent).toHaveLength(2 + 15 - 4);
});

test("what is over the server's limit is refused at once, without a request, and the refusal names the setting", async () => {
  updates.connect();
  await world.advance();
  const views = Array.from({ length: 6_000 }, (_, n) => listen(`/e/${n}`));
  world.last.welcome({ limits: { subscriptions: 1_024 } });
  await world.advance();
  const refused = views.filter(({ heard }) => heard.length > 0);
  expect([names(world.last), refused.length, views.indexOf(refused[0] as (typeof views)[0])]).toEqual([1_024, 6_000 - 1_024, 1_024]);
  const message = "over 1024 subscriptions (DIEM_*_SUBSCRIPTIONS)";
  expect(new Set(refused.map(({ heard }) => JSON.stringify(heard)))).toEqual(
    new Set(refused.map(({ heard: [first] }) => JSON.stringify([{ type: "rejected", endpoint: first?.endpoint, code: "limit", message }]))),
  );
  expect([updates.isWatched("/e/1023"), updates.isWatched("/e/1024")]).toEqual([true, false]);
});

test("a place that is freed goes to the first that was refused, and the others hear nothing of it", async () => {
  updates.connect();
  await world.advance();
  const [a, b, c, d] = ["/a", "/b", "/c", "/d"].map(listen) as [View, View, View, View];
  world.last.welcome({ limits: { subscriptions: 2 } });
  await world.advance();
  expect([a, b, c, d].map(({ heard }) => heard.length)).toEqual([0, 0, 1, 1]);
  a.stop();
  await world.advance();
  world.last.frame({ type: "unsubscribed", id: 2, endpoints: ["/a"] });
  await world.advance();
  expect(world.last.sent.slice(1).map(({ type, endpoints }) => [type, endpoints])).toEqual([["unsubscribe", ["/a"]], ["subscribe", { "/c": null }]]);
  expect([b, c, d].map(({ heard }) => heard.length)).toEqual([0, 1, 1]);
  const late = listen("/late");
  await world.advance();
  expect(late.heard).toMatchObject([{ type: "rejected", code: "limit" }]);
});

test("what a server has closed for its rate begins with no permits", async () => {
  const { again } = await subscribed(1);
  const socket = await again(4003);
  expect(socket.sent).toHaveLength(0);
  await world.advance(699);
  expect(socket.sent).toHaveLength(0);
  await world.advance(1);
  expect(socket.sent).toHaveLength(1);
});

test.each(["limit", "rate"])("%s for a whole request is for the moment: it is asked again, with growing delays", async (code) => {
  const socket = await connected();
  const { heard } = listen("/a");
  await world.advance();
  socket.frame({ type: "error", id: 1, code, message: "" });
  await world.advance(249);
  expect(socket.sent).toHaveLength(1);
  await world.advance(1);
  expect(socket.sent[1]).toEqual({ type: "subscribe", id: 2, endpoints: { "/a": null } });
  socket.frame({ type: "error", id: 2, code, message: "" });
  await world.advance(499);
  expect(socket.sent).toHaveLength(2);
  await world.advance(1);
  socket.frame({ type: "subscribed", id: 3, endpoints: { "/a": null }, rejected: {} });
  expect([heard, updates.isLive("/a")]).toEqual([[], true]);
});

test("an unsubscribe that failed leads to a new connection, which restores agreement", async () => {
  const socket = await connected();
  listen("/a").stop();
  const { stop } = listen("/b");
  await world.advance();
  stop();
  await world.advance();
  socket.frame({ type: "error", id: 2, code: "bad_message", message: "" });
  expect(updates.connection.value.state).toBe("reconnecting");
  socket.frame({ type: "error", code: "bad_json", message: "" });
});

test("resync reaches the views that asked for the endpoint", async () => {
  const socket = await connected();
  const { heard } = listen("/a");
  socket.frame({ type: "resync", endpoints: ["/a", "/b"] });
  expect(heard).toEqual([{ type: "resync", endpoint: "/a" }]);
});

test.each([
  [{ type: "moved", endpoints: ["/a"], owner: "wss://other" }],
  [{ type: "subscribed", id: 1, endpoints: {}, rejected: { "/a": { code: "not_owner", message: "" } } }],
])("moved: the configuration is read again and the connection made anew", async (frame) => {
  const socket = await connected();
  listen("/a");
  await world.advance();
  socket.frame(frame);
  expect(moves).toBe(1);
  expect(socket.closed).toBe(true);
  await world.advance(1000);
  expect(world.sockets).toHaveLength(2);
});

test("moved: what names only endpoints that nobody subscribed to changes nothing, what names none means all", async () => {
  const socket = await connected();
  listen("/a");
  await world.advance();
  socket.frame({ type: "moved", endpoints: ["/b", "/c"] });
  expect([moves, socket.closed]).toEqual([0, false]);
  socket.frame({ type: "moved", endpoints: [] });
  expect([moves, socket.closed]).toEqual([1, true]);
});

test("live: with the welcome and the server's answer, until it says otherwise, for all or for some", async () => {
  const seen: boolean[] = [];
  updates.live.observe(({ live }) => seen.push(live));
  const socket = await connected();
  expect([updates.live.value.live, updates.isLive("/a")]).toEqual([true, false]);
  for (const endpoint of ["/a", "/b"]) listen(endpoint);
  await world.advance();
  socket.frame({ type: "subscribed", id: 1, endpoints: { "/a": null, "/b": null } });
  const before = seen.length;
  expect([updates.isLive("/a"), updates.isLive("/b")]).toEqual([true, true]);
  socket.frame({ type: "status", live: false, since: "2026-01-01T00:00:00Z" });
  expect(updates.live.value).toMatchObject({ live: false, since: "2026-01-01T00:00:00Z" });
  socket.frame({ type: "status", live: true, since: "t" });
  socket.frame({ type: "status", live: false, since: "t", endpoints: ["/a"] });
  expect([updates.isLive("/a"), updates.isLive("/b")]).toEqual([false, true]);
  socket.frame({ type: "status", live: true, since: "t", endpoints: ["/a"] });
  expect(updates.isLive("/a")).toBe(true);
  socket.frame({ type: "status", live: false, since: "t", endpoints: ["/a"] });
  socket.frame({ type: "unsubscribed", id: 9, endpoints: ["/a"] });
  expect(updates.isLive("/a")).toBe(true);
  socket.end(1006);
  expect(updates.isLive("/a")).toBe(false);
  expect(seen.slice(before)).toEqual([false, true, true, true, true, true, false]);
});

test("nothing is live before the server has answered, nor what it has refused, and each change of that is told", async () => {
  const affected: string[][] = [];
  const socket = await connected();
  const { stop } = listen("/a");
  listen("/b");
  updates.live.observe((live) => affected.push([...live.affected]));
  await world.advance();
  expect([updates.isLive("/a"), updates.isLive("/b")]).toEqual([false, false]);
  socket.frame({ type: "subscribed", id: 1, endpoints: { "/a": null } }); // a proxy may answer in parts
  expect([updates.isLive("/a"), updates.isLive("/b")]).toEqual([true, false]);
  socket.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/b": { code: "forbidden", message: "" } } });
  expect([updates.isLive("/a"), updates.isLive("/b")]).toEqual([true, false]);
  expect(affected).toEqual([[], ["/a", "/b"], ["/b"]]);
  stop();
  expect(updates.isLive("/a")).toBe(false);
  await world.advance();
  listen("/a");
  await world.advance();
  socket.frame({ type: "subscribed", id: 1, endpoints: { "/a": null } }); // to the request before the last
  expect(updates.isLive("/a")).toBe(false);
  socket.frame({ type: "subscribed", id: 3, endpoints: { "/a": null } });
  expect(updates.isLive("/a")).toBe(true);
  socket.end(1006);
  await world.advance(30_000);
  world.last.welcome();
  expect(updates.isLive("/a")).toBe(false);
});

test("an answer in several parts, and repeated, is one answer; a repeated update is told once", async () => {
  const socket = await connected();
  const [a, b] = [listen("/a"), listen("/b")];
  await world.advance();
  for (let times = 0; times < 2; times += 1) {
    socket.frame({ type: "subscribed", id: 1, endpoints: { "/a": 3 } });
    socket.update("/a", 3);
    socket.frame({ type: "subscribed", id: 1, endpoints: {}, rejected: { "/b": { code: "limit", message: "" } } });
  }
  await world.advance(10_000);
  expect([a.heard.length, b.heard.length, socket.sent.length]).toEqual([1, 1, 1]);
  expect([updates.isLive("/a"), updates.isWatched("/b")]).toEqual([true, false]);
});

test("a view that throws silences nobody", async () => {
  const socket = await connected();
  updates.subscribe("/a", () => {
    throw new Error("view");
  });
  const { heard } = listen("/a");
  socket.update("/a", 1);
  expect(heard).toHaveLength(1);
  expect(world.reported).toHaveLength(1);
});

test("a view that ends another in its callback is obeyed at once", async () => {
  const socket = await connected();
  let stop = (): void => undefined;
  updates.subscribe("/a", () => stop());
  const other = listen("/a");
  stop = other.stop;
  socket.update("/a", 1);
  expect(other.heard).toEqual([]);
});

test("unknown and malformed frames are passed over", async () => {
  const socket = await connected();
  for (const junk of ["{", '{"type":"tomorrow"}', '{"type":"update"}']) socket.frame(junk);
  expect(updates.connection.value.state).toBe("open");
  expect(updates.stats.frames).toBe(4);
});
