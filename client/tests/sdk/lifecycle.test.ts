/** What a browser does to a page, and what its connection does then; in a real browser: tests/e2e/test_page_life.py. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Diem } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import { CONFIG, FakeStore, World, body, etag } from "./world.ts";

let world: World;
let diem: Diem;
let config: { status: number; body?: unknown; headers?: Record<string, string> };
/** The targets of events: the window, the document and the network. */
let page: EventTarget;
let document: EventTarget & { visibilityState: string };
let network: EventTarget & { type?: string };

beforeEach(async () => {
  world = new World();
  config = { status: 200, body: CONFIG };
  page = new EventTarget();
  document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  network = Object.assign(new EventTarget(), { type: "wifi" });
  for (const verb of ["addEventListener", "removeEventListener"] as const) vi.stubGlobal(verb, page[verb].bind(page));
  vi.stubGlobal("document", document);
  vi.stubGlobal("navigator", { connection: network });
  vi.spyOn(console, "warn").mockImplementation(() => undefined);
  world.auto = (url) => (url.endsWith("/config.json") ? config : { status: 200, body: body("/a", 5), headers: etag(5) });
  diem = createDiem({ environment: world });
  await world.advance();
  world.last.welcome();
  await world.advance(1_000);
});

afterEach(() => {
  diem.close();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const state = (): string => diem.updates.connection.value.state;
const dials = (): number => world.sockets.length;

async function say(event: string, target: EventTarget = page): Promise<void> {
  target.dispatchEvent(new Event(event));
  await world.advance();
}

test.each([
  ["the back/forward cache", "pagehide", "pageshow", (): EventTarget => page],
  ["a frozen tab", "freeze", "resume", (): EventTarget => document],
])("%s: the connection is closed before and dialled at once after, with what is held", async (_, before, after, target) => {
  const shown: number[] = [];
  diem.watch("/a", ({ version }) => void shown.push(version));
  await world.advance();
  world.last.frame({ type: "subscribed", id: 1, endpoints: { "/a": 5 } });
  world.last.update("/a", 5);
  await world.advance();
  await say(before, target());
  expect([state(), world.last.closed, dials()]).toEqual(["closed", true, 1]);
  document.visibilityState = "hidden";
  await say("visibilitychange");
  await say("online");
  expect(dials()).toBe(1);
  document.visibilityState = "visible";
  await say(after, target());
  expect(dials()).toBe(2);
  world.last.welcome();
  expect([state(), world.last.sent[0]]).toMatchObject(["open", { type: "subscribe", endpoints: { "/a": 5 } }]);
  // It was no outage of many: fetches are not spread.
  world.last.frame({ type: "subscribed", id: 1, endpoints: { "/a": 5 } });
  world.last.update("/a", 6);
  expect(shown.at(-1)).toBe(5);
});

test("a page that disconnected itself stays so when it comes back", async () => {
  diem.updates.close();
  await say("pagehide");
  await say("pageshow");
  expect([state(), dials()]).toEqual(["closed", 1]);
});

test("what a page holds is on the device before it ends", async () => {
  diem.watch("/a", () => undefined);
  await world.advance();
  world.last.frame({ type: "subscribed", id: 1, endpoints: { "/a": 5 } });
  world.last.update("/a", 5, { data: body("/a", 5) });
  await say("pagehide");
  expect((world.storage as FakeStore).saves).toBe(1);
});

test.each([8, 7_200])("a machine that was asleep for %d s checks its connection within two seconds of time awake", async (seconds) => {
  await world.advance(2_000);
  world.skew += seconds * 1_000; // its monotonic clock stood still
  await world.advance(3_500);
  expect(dials()).toBe(seconds > 60 ? 2 : 1); // the usual limit of silence is a minute
});

test("with heartbeats a machine that was asleep for ten seconds is dialled, unless a frame waits", async () => {
  for (const isAlive of [true, false]) {
    world.last.end(1006);
    await world.advance(1_000);
    world.last.welcome({ heartbeat_ms: 4_000 });
    await world.advance(2_000);
    const before = dials();
    world.skew += 10_000;
    await say("focus");
    if (isAlive) world.last.frame({ type: "status", live: true });
    await world.advance(1_600);
    expect(dials() - before).toBe(isAlive ? 0 : 1);
  }
});

test("a clock that is set costs a dial at most, and nothing when it is set back", async () => {
  world.skew -= 3_600_000;
  await world.advance(10_000);
  expect(dials()).toBe(1);
  world.last.frame({ type: "status", live: true });
  world.skew += 3_600_000;
  await world.advance(5_000);
  world.last.welcome();
  for (let second = 0; second < 30; second += 1) await world.advance(1_000);
  expect([dials(), state()]).toEqual([2, "open"]);
});

test("online dials at once, whatever the back-off; a connection with frames since the network was lost stays", async () => {
  await say("offline");
  world.last.frame({ type: "status", live: true });
  await say("online");
  expect(dials()).toBe(1);
  await say("offline");
  await say("online");
  expect(dials()).toBe(2);
  for (let failure = 0; failure < 6; failure += 1) {
    world.last.end(1006);
    await world.advance(failure < 5 ? 30_000 : 0);
  }
  const before = dials();
  await say("online");
  expect(dials() - before).toBe(1);
});

test("another network is dialled at once; an estimate of the same one changes nothing", async () => {
  await say("change", network);
  expect(dials()).toBe(1);
  network.type = "cellular";
  await say("change", network);
  expect(dials()).toBe(2);
});

test("behind a captive portal the reason says so, and the page is connected after the login", async () => {
  diem.close();
  config = { status: 200, body: "<html>Welcome to the hotel</html>", headers: { "Content-Type": "text/html" } };
  diem = createDiem({ environment: world });
  await world.advance(1_000);
  expect(diem.updates.connection.value.reason).toMatch(/^portal: http:\/\/diem.test\/config.json answers with a page/);
  config = { status: 200, body: CONFIG };
  const before = dials();
  for (let second = 0; second < 30 && dials() === before; second += 1) await world.advance(1_000);
  world.last.welcome();
  expect([state(), diem.updates.connection.value.reason]).toEqual(["open", ""]);
});

test("nothing is left of a page that is closed", async () => {
  diem.close();
  for (const [event, target] of [["pageshow", page], ["online", page], ["resume", document], ["change", network]] as const) await say(event, target);
  await world.advance(60_000);
  expect([dials(), world.timers]).toEqual([1, 0]);
});
