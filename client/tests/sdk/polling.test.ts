/** Updates over HTTP where no WebSocket gets through: an object with the interface of WebSocket, above which nothing changes. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Diem } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import { PollSocket } from "../../src/sdk/polling.ts";
import type { Request } from "./world.ts";
import { body, CONFIG, etag, World } from "./world.ts";

const WELCOME = { type: "welcome", session: "s", server: "websocket-1", mode: "single", authenticated: true, limits: {}, data: true };
const LIVE = { type: "status", live: true, since: "-" };

interface Poll {
  endpoints: Record<string, number | null>;
  wait: number;
  resynced?: string[];
  live?: boolean;
  stale?: string[];
  token?: string;
}

let world: World;
let received: Record<string, unknown>[];
let closed: { code: number; reason: string }[];
let socket: PollSocket;
let answered: number;

const polls = (): Request[] => world.requests.filter(({ url }) => url.endsWith("/v1/updates"));
const asked = (): Poll => polls().at(-1)?.body as Poll;
const send = (message: object): void => socket.send(JSON.stringify(message));
const update = (endpoint: string, version: number): object => ({ type: "update", endpoint, version, time: "-" });
const subscribed = (endpoints: object, rejected?: object): object => ({ type: "subscribed", id: 0, endpoints, rejected });

/** The server answers the open request. */
async function answer(...messages: object[]): Promise<void> {
  expect(polls().length, "there is an open request").toBeGreaterThan(answered);
  answered = polls().length;
  polls().at(-1)?.answer(200, { messages: [WELCOME, LIVE, ...messages] });
  await world.advance();
}

/** What was received since, without heartbeats. */
function news(): unknown[] {
  return received.splice(0).filter(({ type, endpoints }) => !(type === "status" && Array.isArray(endpoints) && endpoints.length === 0));
}

beforeEach(() => {
  world = new World();
  [received, closed, answered] = [[], [], 0];
  socket = new PollSocket(world, "ws://diem.test:8101/ws", () => undefined);
  socket.onmessage = ({ data }) => void received.push(JSON.parse(data as string) as Record<string, unknown>);
  socket.onclose = (event) => void closed.push(event);
});

/** A socket with `/a` at version 5, which waits for the next one. */
async function waiting(): Promise<void> {
  await world.advance();
  await answer();
  send({ type: "subscribe", id: 1, endpoints: { "/a": 5 }, data: true });
  await world.advance();
  await answer(subscribed({ "/a": 5 }));
  news();
}

test("it opens with a request for nothing, beside the address of the WebSocket", async () => {
  await world.advance();
  expect(polls()[0]?.url).toBe("http://diem.test:8101/v1/updates");
  expect(polls()[0]?.headers, "which needs no preflight").toEqual({ "Content-Type": "text/plain" });
  expect(asked()).toEqual({ endpoints: {}, wait: 0 });
  await answer();
  expect(news()).toEqual([WELCOME, { type: "status", since: "-", live: true }]);
});

test("a request is answered at once, and then waits for what is newer than it was sent", async () => {
  await waiting();
  expect(asked()).toMatchObject({ endpoints: { "/a": 5 }, wait: 25 });
  await answer(subscribed({ "/a": 6 }), update("/a", 6));
  expect(news()).toEqual([update("/a", 6)]);
  expect(asked().endpoints).toEqual({ "/a": 6 });
});

test("a reply has the id of the latest request for each name", async () => {
  await world.advance();
  await answer();
  send({ type: "subscribe", id: 1, endpoints: { "/a": null, "/b": 3 } });
  send({ type: "subscribe", id: 2, endpoints: { "/b": 4, "/no": null } });
  news();
  await world.advance();
  await answer(subscribed({ "/a": 7, "/b": 4 }, { "/no": { code: "forbidden", message: "no" } }), update("/a", 7));
  expect(news()).toEqual([
    { type: "subscribed", id: 1, endpoints: { "/a": 7 }, rejected: {} },
    { type: "subscribed", id: 2, endpoints: { "/b": 4 }, rejected: { "/no": { code: "forbidden", message: "no" } } },
    update("/a", 7),
  ]);
  expect(asked().endpoints, "rejected names are not requested again").toEqual({ "/a": 7, "/b": 4 });
});

test("a new subscription does not wait for the request before it", async () => {
  await waiting();
  send({ type: "subscribe", id: 2, endpoints: { "/b": null } });
  await world.advance();
  expect(asked(), "and asks for itself only").toMatchObject({ endpoints: { "/b": null }, wait: 0 });
  await answer(subscribed({ "/b": null }));
  expect(asked()).toMatchObject({ endpoints: { "/a": 5, "/b": null }, wait: 25 });
});

test("after unsubscribe nothing is passed on, and the name is not requested", async () => {
  await waiting();
  send({ type: "unsubscribe", id: 2, endpoints: ["/a"] });
  await answer(subscribed({ "/a": 6 }), update("/a", 6));
  expect(news()).toEqual([{ type: "unsubscribed", id: 2, endpoints: ["/a"] }]);
  await world.advance(25_000);
  expect(asked(), "the server is asked whether it is there").toEqual({ endpoints: {}, wait: 0, data: true, live: true });
});

test("a version that was lost is passed on once, and a lesser one after it", async () => {
  await waiting();
  await answer(subscribed({ "/a": 3 }));
  expect(news()).toEqual([{ type: "subscribed", id: 1, endpoints: { "/a": 3 }, rejected: {} }]);
  await answer(subscribed({ "/a": 4 }), update("/a", 4));
  expect(news()).toEqual([update("/a", 4)]);
});

test("a resync is passed on once, until an update", async () => {
  await waiting();
  const resync = { type: "resync", endpoints: ["/a"] };
  await answer(subscribed({ "/a": 5 }), resync);
  expect(news()).toEqual([resync]);
  expect(asked().resynced).toEqual(["/a"]);
  await answer(subscribed({ "/a": 6 }), update("/a", 6), resync);
  expect(news()).toEqual([update("/a", 6), resync]);
});

test("the status is passed on when it changes, of single endpoints too", async () => {
  await waiting();
  const stale = { type: "status", live: false, since: "-", endpoints: ["/a"] };
  await answer(stale, subscribed({ "/a": 5 }));
  expect(news()).toEqual([{ ...stale }]);
  expect(asked(), "another server answers at once where this is not so").toMatchObject({ live: true, stale: ["/a"] });
  await answer(stale, subscribed({ "/a": 5 }));
  expect(news()).toEqual([]);
  await answer(subscribed({ "/a": 5 }));
  expect(news()).toEqual([{ ...stale, live: true }]);
  await answer(subscribed({ "/a": 5 }), { type: "status", live: false, since: "-" });
  expect(news()).toEqual([{ type: "status", live: false, since: "-" }]);
  expect(asked()).toMatchObject({ live: false });
});

test("every answer is a frame: its owner takes silence for a broken line", async () => {
  await waiting();
  await answer(subscribed({ "/a": 5 }));
  expect(received).toEqual([{ type: "status", live: true, endpoints: [] }]);
});

test("a token is presented with each request, and a refused one closes the socket", async () => {
  await waiting();
  send({ type: "auth", id: 0, token: "t" });
  await world.advance();
  expect(asked()).toMatchObject({ endpoints: {}, wait: 0, token: "t" });
  await answer({ type: "authenticated", id: 0, expires: 9 });
  expect(news()).toEqual([{ type: "authenticated", id: 0, expires: 9 }]);
  expect(asked().token).toBe("t");
  polls().at(-1)?.answer(401, { status: 401, code: "unauthorised", detail: "expired", close: 4001 });
  await world.advance();
  expect(closed).toEqual([{ code: 4001, reason: "expired" }]);
});

test("the close of a server is that of a WebSocket", async () => {
  await waiting();
  polls().at(-1)?.answer(200, { messages: [WELCOME, LIVE], close: { code: 1012, reason: "retry=500" } });
  await world.advance();
  expect(closed).toEqual([{ code: 1012, reason: "retry=500" }]);
  const before = polls().length;
  await world.advance(60_000);
  expect(polls().length).toBe(before);
});

test("beyond the limit of its address it waits as long as the server asks", async () => {
  await waiting();
  polls().at(-1)?.answer(429, { status: 429, code: "rate" }, { "Retry-After": "7" });
  await world.advance();
  const before = polls().length;
  await world.advance(6_900);
  expect(polls().length).toBe(before);
  await world.advance(1_200);
  expect(polls().length).toBe(before + 1);
  expect(closed).toEqual([]);
});

test.each([[503, "1"], [404, ""]])("another answer, here %i, ends it as a lost connection", async (status, retry) => {
  await waiting();
  polls().at(-1)?.answer(status, {}, retry ? { "Retry-After": retry } : {});
  await world.advance();
  expect(closed).toEqual([retry ? { code: 1013, reason: "retry=1000" } : { code: 1006, reason: "" }]);
});

test("an answer that does not come ends it", async () => {
  await waiting();
  await world.advance(3_000); // the stream is held back, so that it polls
  expect(asked()).toMatchObject({ wait: 25 });
  expect(closed).toEqual([]);
  await world.advance(41_000);
  expect(closed).toEqual([{ code: 1006, reason: "" }]);
});

test("requests stay below the limit of the server", async () => {
  await waiting();
  for (let version = 6; world.time < 60_000; version += 1) {
    await answer(subscribed({ "/a": version }), update("/a", version));
    while (polls().length === answered) await world.advance(100);
  }
  expect(polls().length).toBeGreaterThan(80);
  expect(polls().length).toBeLessThan(24 + 60 / 0.7 + 4);
});

test("a name that is new while a request waits for the limit goes before it", async () => {
  await waiting();
  for (let version = 6; polls().length !== answered; version += 1) await answer(subscribed({ "/a": version }), update("/a", version));
  send({ type: "subscribe", id: 2, endpoints: { "/b": null } });
  await world.advance(1_000);
  expect(asked()).toMatchObject({ endpoints: { "/b": null }, wait: 0 });
  await answer(subscribed({ "/b": null }));
  expect(news()).toContainEqual({ type: "subscribed", id: 2, endpoints: { "/b": null }, rejected: {} });
});

/** A stream of events that the test sends. */
function stream(): { send(text: string): Promise<void> } {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const readable = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
  const { fetch } = world;
  world.fetch = async (url, options) => {
    const response = fetch.call(world, url, options);
    if (options.headers.Accept !== "text/event-stream") return response;
    response.catch((error: unknown) => controller.error(error)); // it was aborted
    return { status: 200, headers: { get: () => "text/event-stream" }, body: readable } as unknown as Awaited<typeof response>;
  };
  const turn = (): Promise<void> => new Promise<void>((resolve) => setTimeout(resolve)).then(() => world.advance());
  return {
    send: (text) => (controller.enqueue(new TextEncoder().encode(text)), turn()),
  };
}

const event = (message: object): string => `data: ${JSON.stringify(message)}\n\n`;

test("it reads events as they come, in pieces too", async () => {
  const events = stream();
  await waiting();
  const text = event(WELCOME) + event(LIVE) + event(subscribed({ "/a": 5 })) + event(update("/a", 6)) + ":\n\n";
  await events.send(text.slice(0, -20));
  await events.send(text.slice(-20));
  expect(news()).toEqual([update("/a", 6)]);
  const before = polls().length;
  await events.send(event(update("/a", 7)));
  expect(news()).toEqual([update("/a", 7)]);
  expect(polls().length, "one request for all").toBe(before);
  await events.send(`event: close\n${event({ code: 1012, reason: "retry=5" })}`);
  expect(closed).toEqual([{ code: 1012, reason: "retry=5" }]);
});

test("a stream that falls silent is given up for polls", async () => {
  const events = stream();
  await waiting();
  await events.send(event(WELCOME));
  await world.advance(9_000);
  await events.send(":\n\n");
  await world.advance(9_000);
  const before = polls().length;
  await world.advance(1_500);
  expect([polls().length, polls().at(-1)?.headers.Accept]).toEqual([before + 1, undefined]);
  expect(closed).toEqual([]);
});

// The whole SDK, behind something that lets no WebSocket through

let diem: Diem;
/** Nothing is behind the proxy. */
let down = false;
afterEach(() => {
  down = false;
  vi.restoreAllMocks();
});

/** A deployment at version 5 of everything, which answers requests. */
function deployment(): void {
  vi.spyOn(console, "warn").mockImplementation(() => undefined);
  world.auto = (url, posted) => {
    if (url.endsWith("/config.json")) return { status: 200, body: CONFIG };
    if (url.endsWith("/ws")) return { status: 426, body: { status: 426, code: "upgrade_required", detail: "-" } };
    if (url.endsWith("/v1/data/a")) return { status: 200, body: body("/a", 5), headers: etag(5) };
    if (!url.endsWith("/v1/updates")) return { status: 404, body: {} };
    if (down) return { status: 502, body: {} };
    const { endpoints, wait } = posted as Poll;
    if (wait > 0) return undefined; // the test answers it
    const versions = Object.fromEntries(Object.keys(endpoints).map((name) => [name, 5]));
    return { status: 200, body: { messages: [WELCOME, LIVE, subscribed(versions)] } };
  };
  diem = createDiem({ environment: world });
}

/** Every dial fails, for so long. */
async function blocked(ms: number, silent = false): Promise<void> {
  for (let waited = 0; waited < ms; waited += 100) {
    await world.advance(100);
    if (!silent && world.last?.onclose) world.last.end(1006);
  }
}

test.each([["refused", false], ["silent", true]])("a page whose WebSockets are %s is live within 15 seconds", async (_, silent) => {
  socket.close();
  const shown: number[] = [];
  deployment();
  diem.watch("/a", ({ version }) => void shown.push(version));
  await blocked(silent ? 14_000 : 6_000, silent);
  expect(diem.updates.connection.value).toMatchObject({ state: "open", transport: "poll", server: "websocket-1" });
  expect(diem.updates.isLive("/a")).toBe(true);
  await world.advance(3_000); // streams are held back here
  polls().at(-1)?.answer(200, { messages: [WELCOME, LIVE, subscribed({ "/a": 6 }), { ...update("/a", 6), data: body("/a", 6) }] });
  await world.advance();
  expect(shown.at(-1)).toBe(6);
  diem.close();
  await world.advance(60_000);
  expect(world.timers).toBe(0);
});

test.each([[20_000, 0], [120_000, 1]])("a server that was down for %d ms is polled again, after a minute by WebSocket", async (ms, dials) => {
  socket.close();
  deployment();
  diem.watch("/a", () => undefined);
  for (let waited = 0; diem.updates.connection.value.transport !== "poll" && waited < 100; waited += 1) await blocked(100);
  const tried = world.sockets.length;
  vi.spyOn(world, "random").mockReturnValue(0.5);
  down = true;
  polls().at(-1)?.answer(502, {});
  for (let waited = 0; waited < ms && world.sockets.length === tried; waited += 100) await world.advance(100);
  expect(world.sockets.length - tried).toBe(dials);
  down = false;
  if (dials === 0) await world.advance(20_000);
  else await blocked(90_000);
  expect(diem.updates.connection.value).toMatchObject({ state: "open", transport: "poll" });
  diem.close();
});

test("it goes back to WebSocket as soon as one delivers a frame", async () => {
  socket.close();
  deployment();
  diem.watch("/a", () => undefined);
  for (let waited = 0; diem.updates.connection.value.transport !== "poll" && waited < 100; waited += 1) await blocked(100);
  const tried = world.sockets.length;
  await blocked(70_000);
  expect(world.sockets.length, "after 5 s and a minute").toBe(tried + 2);
  expect(diem.updates.connection.value.transport).toBe("poll");
  for (let waited = 0; world.sockets.length < tried + 3 && waited < 400; waited += 1) await world.advance(1_000);
  world.last.welcome();
  await world.advance();
  world.last.welcome();
  await world.advance();
  expect(diem.updates.connection.value).toMatchObject({ state: "open" });
  expect(diem.updates.connection.value.transport).toBeUndefined();
  expect(world.last.sent[0]).toMatchObject({ type: "subscribe", endpoints: { "/a": 5 } });
  const before = polls().length;
  await world.advance(3_000);
  expect(polls().length).toBe(before);
});
