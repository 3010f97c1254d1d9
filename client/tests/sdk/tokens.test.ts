/** Pages with a token: presented before anything is requested, replaced before it expires, and what a server does that refuses it. */

import { beforeEach, expect, test } from "vitest";
import { CLOSE_CODES } from "../../src/sdk/codes.ts";
import type { Diem, DiemOptions } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import type { Change } from "../../src/sdk/subscribers.ts";
import { refreshDelay } from "../../src/sdk/tokens.ts";
import { Cluster } from "./cluster.ts";
import type { FakeSocket, FakeStore } from "./world.ts";
import { CONFIG, World, body, etag, jwt } from "./world.ts";

const LIFE_S = 1_000;
/** When a token of this life is replaced, with a draw of 0. */
const DUE_MS = 0.8 * LIFE_S * 1000;

let world: World;
let diem: Diem;
/** Tokens that the page's function has returned; `fail` makes it fail. */
let made: string[];
let calls: number;
let fail: boolean;
let hold: Promise<void> | null;

beforeEach(() => {
  [made, calls, fail, hold] = [[], 0, false, null];
  world = new World();
  world.dice = 0;
  world.auto = (url) => (url.endsWith("/config.json") ? { status: 200, body: CONFIG } : undefined);
});

async function token(): Promise<string> {
  calls += 1;
  await hold;
  if (fail) throw new Error("logged out");
  const iat = world.wall() / 1000;
  made.push(jwt({ iat, exp: iat + LIFE_S, jti: calls }));
  return made.at(-1) as string;
}

function start(options: DiemOptions = {}): void {
  diem = createDiem({ environment: world, token, ...options });
}

const status = (): object => diem.updates.connection.value;
const presented = (socket: FakeSocket = world.last): unknown[] => socket.sent.filter(({ type }) => type === "auth").map((auth) => auth.token);
const requested = (socket: FakeSocket = world.last): string[] =>
  socket.sent.filter(({ type }) => type === "subscribe").flatMap(({ endpoints }) => Object.keys(endpoints as object));

function listen(endpoint: string): Change[] {
  const heard: Change[] = [];
  diem.updates.subscribe(endpoint, (change) => heard.push(change));
  return heard;
}

/** The server accepts the token until it expires. */
function accept(socket: FakeSocket = world.last, n = made.length): void {
  socket.authenticated(1_700_000_000 + n);
}

async function connected(): Promise<void> {
  await world.advance();
  world.last.welcome();
  await world.advance();
  accept();
  await world.advance();
}

/** The server registers what was requested last, but for `forbidden`. */
async function answer(...forbidden: string[]): Promise<void> {
  const { id, endpoints } = world.last.sent.filter(({ type }) => type === "subscribe").at(-1) as { id: number; endpoints: object };
  world.last.frame({ type: "subscribed", id, ...verdict(Object.keys(endpoints), forbidden) });
  await world.advance();
}

function verdict(names: readonly string[], forbidden: readonly string[]): object {
  const registered = names.filter((name) => !forbidden.includes(name));
  const rejections = names.filter((name) => forbidden.includes(name)).map((name) => [name, { code: "forbidden", message: "m" }]);
  return { endpoints: Object.fromEntries(registered.map((name) => [name, null])), rejected: Object.fromEntries(rejections) };
}

async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 25_000) {
    await world.advance(Math.min(left, 25_000));
    world.last.frame({ type: "status", live: true, since: "t" });
  }
}

test("nothing is requested before the server has accepted the token, and the page is not connected", async () => {
  start();
  const heard = listen("/a");
  await world.advance();
  expect([calls, world.last.sent]).toEqual([1, []]);
  world.last.welcome();
  world.last.frame({ type: "status", live: false, since: "t" });
  await world.advance();
  expect(world.last.sent).toEqual([{ type: "auth", id: 0, token: made[0] }]);
  expect(status()).toMatchObject({ state: "connecting" });
  accept();
  await world.advance();
  expect(status()).toMatchObject({ state: "open", server: "websocket-1" });
  expect([requested(), diem.updates.live.value.live]).toEqual([["/a"], false]);
  world.last.update("/a", 7);
  expect(heard).toHaveLength(1);
});

test("the token never appears in the address", async () => {
  start();
  await connected();
  expect(world.sockets.map(({ url }) => url)).toEqual(["ws://diem.test:8101/ws"]);
});

test("without a token function nothing is presented, and nothing is waited for", async () => {
  diem = createDiem({ environment: world });
  listen("/a");
  await world.advance();
  world.last.welcome();
  await world.advance();
  expect([presented(), requested()]).toEqual([[], ["/a"]]);
});

test("a token is replaced on the open connection at 80 % of its life; nothing is requested again", async () => {
  start();
  listen("/a");
  await connected();
  await answer();
  await pass(DUE_MS - 1);
  expect(presented()).toEqual([made[0]]);
  await pass(1);
  expect(presented()).toEqual(made.slice(0, 2));
  accept();
  await pass(DUE_MS);
  accept();
  expect([presented(), requested(), world.sockets.length]).toEqual([made.slice(0, 3), ["/a"], 1]);
  expect(diem.updates.isLive("/a")).toBe(true);
});

test("a token that is good is used for the next dial, one that is due is replaced", async () => {
  start();
  await connected();
  world.last.end(1006);
  await world.advance(500);
  await connected();
  expect([calls, presented()]).toEqual([1, [made[0]]]);
  world.last.end(1012, "restart retry=590000");
  world.dice = 0.999;
  await world.advance(0);
  diem.updates.close();
  await world.advance(DUE_MS);
  diem.updates.connect();
  world.dice = 0;
  await connected();
  expect([calls, presented()]).toEqual([2, [made[1]]]);
});

test("a function that fails is called again with back-off while the token is good, then at each dial", async () => {
  start();
  await connected();
  fail = true;
  world.dice = 0.999;
  await pass(DUE_MS + 60_000);
  const refreshes = calls - 1;
  expect(refreshes).toBeGreaterThan(4);
  expect(refreshes).toBeLessThan(9);
  expect([presented(), status()]).toMatchObject([[made[0]], { state: "open" }]);
  fail = false;
  await pass(30_000);
  expect(presented()).toEqual(made.slice(0, 2));

  fail = true;
  world.last.end(CLOSE_CODES.TOKEN_EXPIRED.code);
  await world.advance(5_000);
  expect([world.sockets.length, status()]).toMatchObject([1, { state: "reconnecting", reason: "no server to dial" }]);
  fail = false;
  await world.advance(5_000);
  expect(world.sockets).toHaveLength(2);
});

test("the same token again is none: a page that has no other is asked again, later", async () => {
  const only = jwt({ iat: world.wall() / 1000, exp: world.wall() / 1000 + LIFE_S });
  start({ token: () => (calls += 1, only) });
  await connected();
  world.dice = 0.5;
  await pass(DUE_MS + 10_000);
  expect(presented()).toEqual([only]);
  expect(calls).toBeLessThan(12);
});

test("what is no token is not presented: the dial has failed, and nothing of it is said", async () => {
  world.dice = 0.5;
  start({ token: () => "secret" });
  await world.advance(5_000);
  expect(world.sockets).toEqual([]);
  expect(status()).toMatchObject({ state: "reconnecting", reason: "no server to dial" });
});

test("one call at a time, however long it takes, also for a user who logs in", async () => {
  let done = (): void => undefined;
  hold = new Promise((resolve) => (done = resolve));
  start();
  await world.advance(120_000);
  diem.updates.connect();
  await world.advance(1_000);
  expect([calls, world.sockets.length]).toEqual([1, 0]);
  done();
  await connected();
  expect([calls, world.sockets.length, status()]).toMatchObject([1, 1, { state: "open" }]);
});

test("2,000 clients that got their tokens in one second replace them over minutes", () => {
  const perSecond = new Map<number, number>();
  for (let client = 0; client < 2_000; client += 1) {
    const second = Math.floor((refreshDelay(1_800_000, 1_800_000, ((client * 7919) % 2_000) / 2_000) + (client % 1_000)) / 1000);
    perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
  }
  expect(perSecond.size).toBeGreaterThan(350);
  expect(Math.max(...perSecond.values())).toBeLessThan(20);
});

test("a name that the token does not cover is reported once, and requested again when the token has changed", async () => {
  start();
  const [a, b] = [listen("/a"), listen("/b")];
  await connected();
  await answer("/b");
  expect([a, b]).toEqual([[], [{ type: "rejected", endpoint: "/b", code: "forbidden", message: "m" }]]);
  expect(diem.updates.isWatched("/b")).toBe(false);
  world.last.end(1006);
  await world.advance(500);
  await connected();
  expect([requested(), presented()]).toEqual([["/a"], [made[0]]]); // the same token covers the same
  await answer();
  await pass(DUE_MS);
  expect(requested()).toEqual(["/a"]);
  accept();
  await world.advance();
  expect(requested()).toEqual(["/a", "/b"]);
  await answer();
  expect([b.length, diem.updates.isLive("/b")]).toEqual([1, true]);
});

test("what a new token no longer covers is dropped by the server: the view is told, and its neighbour keeps its updates", async () => {
  start();
  const [a, b] = [listen("/a"), listen("/b")];
  await connected();
  await answer();
  await pass(DUE_MS);
  world.last.frame({ type: "subscribed", id: 0, ...verdict(["/b"], ["/b"]) });
  accept();
  await world.advance();
  expect(b).toMatchObject([{ type: "rejected", code: "forbidden" }]);
  expect([diem.updates.isLive("/a"), diem.updates.isLive("/b"), diem.updates.live.value.affected]).toEqual([true, false, new Set(["/b"])]);
  world.last.update("/a", 7);
  expect(a).toHaveLength(1);
});

test("a token that was refused twice ends the connection; connect() tries a new one", async () => {
  start();
  for (const n of [1, 2]) {
    await world.advance(500);
    world.last.welcome();
    await world.advance();
    expect(presented()).toEqual([made[n - 1]]);
    world.last.end(CLOSE_CODES.UNAUTHORISED.code, "token");
  }
  expect(status()).toMatchObject({ state: "closed", code: 4501, retryAt: null });
  await world.advance(120_000);
  expect([calls, world.sockets.length, world.timers]).toEqual([2, 2, 0]);
  diem.updates.connect();
  await connected();
  expect([presented(), status()]).toMatchObject([[made[2]], { state: "open" }]);
});

test.each([CLOSE_CODES.AUTH_TIMEOUT.code, CLOSE_CODES.LOGGED_OUT.code])("after %i the page is told, and nobody dials", async (code) => {
  start();
  await connected();
  world.last.end(code, "revoked");
  expect(status()).toMatchObject({ state: "closed", code, reason: "revoked" });
  await world.advance(120_000);
  expect([calls, world.sockets.length, world.timers]).toEqual([1, 1, 0]);
});

test("after a revocation, connect() presents a new token", async () => {
  start();
  await connected();
  world.last.end(CLOSE_CODES.LOGGED_OUT.code);
  diem.updates.connect();
  await connected();
  expect(presented()).toEqual([made[1]]);
});

test("a server that takes no tokens says so, and serves all the same", async () => {
  start();
  listen("/a");
  await world.advance();
  world.last.welcome();
  await world.advance();
  world.last.frame({ type: "error", id: 0, code: "unauthorised", message: "" });
  await world.advance(499);
  expect([requested(), status()]).toMatchObject([[], { state: "connecting" }]);
  await world.advance(1);
  expect([requested(), status()]).toMatchObject([["/a"], { state: "open" }]);
});

test("a server that refuses the token says so, and closes: the page is never connected", async () => {
  start();
  const states: string[] = [];
  diem.updates.connection.observe(({ state }) => states.push(state));
  for (let n = 0; n < 2; n += 1) {
    await world.advance(0);
    world.last.welcome();
    await world.advance();
    world.last.frame({ type: "error", id: 0, code: "unauthorised", message: "" });
    world.last.end(CLOSE_CODES.UNAUTHORISED.code);
  }
  await world.advance(5_000);
  expect([[...new Set(states)], requested(), world.timers]).toEqual([["connecting", "reconnecting", "closed"], [], 0]);
});

test("an error about a later token does not concern the connection", async () => {
  start();
  await connected();
  await pass(DUE_MS);
  world.last.frame({ type: "error", id: 0, code: "rate", message: "" });
  await world.advance();
  expect([world.sockets.length, status()]).toMatchObject([1, { state: "open" }]);
});

test("a server that never replies to the token is given up after ten seconds, one that sends anything else at once", async () => {
  start();
  await world.advance();
  world.last.welcome();
  await world.advance(9_999);
  expect(status()).toMatchObject({ state: "connecting" });
  world.dice = 0.5;
  await world.advance(1);
  expect([world.last.closed, status()]).toMatchObject([true, { state: "reconnecting", reason: "no welcome" }]);
  await world.advance(250);
  for (let n = 0; n < 30; n += 1) world.last.frame({ type: "status", live: true });
  expect([world.last.closed, status()]).toMatchObject([true, { state: "reconnecting", reason: "no reply to the token" }]);
});

test("close() and clear() leave no timer behind", async () => {
  start();
  await connected();
  await diem.clear();
  await world.advance(2 * LIFE_S * 1000);
  expect([calls, world.timers, world.last.closed]).toEqual([1, 0, true]);
});

test("an auth counts as a message: what may be sent at once is one less", async () => {
  start();
  await connected();
  world.last.frame({ type: "subscribed", id: 0, endpoints: {} });
  for (let n = 0; n < 20; n += 1) {
    listen(`/a/${n}`);
    await world.advance();
  }
  expect(world.last.sent).toHaveLength(15);
});

test("data is requested with the token where the page says so, and not stored", async () => {
  start({ tokenForData: true, data: false });
  diem.watch("/a", () => undefined);
  await connected();
  expect(world.request).toMatchObject({ url: "http://diem.test/v1/data/a", headers: { Authorization: `Bearer ${made[0]}` } });
  world.request.answer(200, body("/a", 5), etag(5));
  await world.advance(5_000);
  expect([diem.data.held("/a"), (world.storage as FakeStore).saves]).toEqual([5, 0]);
  const other = createDiem({ environment: world, apiKey: "key", token });
  await world.advance();
  void other.data.get("/b").catch(() => undefined);
  await world.advance();
  expect(world.request.headers.Authorization).toBe("Bearer key");
});

test("a version of the day after tomorrow is not believed but fetched, and does not block later ones", async () => {
  start();
  const heard = listen("/a");
  await connected();
  const now = world.wall();
  world.last.update("/a", now + 86_400_001);
  world.last.update("/a", 9_999_999_999_999);
  expect(heard).toEqual([{ type: "resync", endpoint: "/a" }, { type: "resync", endpoint: "/a" }]);
  expect(diem.updates.told("/a")).toBe(0);
  world.last.update("/a", now);
  world.last.update("/a", now + 86_400_000);
  expect(heard.slice(2)).toMatchObject([{ version: now }, { version: now + 86_400_000 }]);
});

test("in mode z-client one token serves all connections, and the metadata service; it is replaced once", async () => {
  const cluster = new Cluster();
  world = cluster.world;
  world.dice = 0;
  for (const name of ["a", "b", "c"]) cluster.owners.set(`/${name}`, name);
  start();
  for (const name of ["a", "b", "c"]) listen(`/${name}`);
  await world.advance();
  expect(world.request.headers.Authorization).toBe(`Bearer ${made[0]}`);
  const sockets = ["a", "b", "c"].map((name) => cluster.at(name) as FakeSocket);
  for (const name of ["a", "b", "c"]) {
    await cluster.serve(name);
    accept(cluster.at(name));
    await cluster.serve(name);
  }
  expect([calls, sockets.map(presented), sockets.map(requested)]).toEqual([1, [[made[0]], [made[0]], [made[0]]], [["/a"], ["/b"], ["/c"]]]);
  expect(status()).toMatchObject({ state: "open" });
  await cluster.pass(DUE_MS);
  expect(calls).toBe(2);
  expect(sockets.map(presented)).toEqual([made, made, made]);

  // What the metadata service does not locate for this token is located for the next one.
  const [ask, view] = [world.auto, listen];
  world.auto = (url, question) =>
    url.endsWith("/locate")
      ? { status: 200, body: { endpoints: {}, rejected: { "/d": { code: "forbidden", message: "m" } }, servers: [] } }
      : ask(url, question);
  const heard = view("/d");
  await world.advance();
  expect(heard).toMatchObject([{ type: "rejected", code: "forbidden" }]);
  world.auto = ask;
  cluster.owners.set("/d", "a");
  for (const socket of sockets) accept(socket);
  await cluster.pass(1_000);
  expect(requested(sockets[0])).toEqual(["/a", "/d"]);
  diem.close();
  expect(world.timers).toBe(0);
});
