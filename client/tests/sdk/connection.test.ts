import { beforeEach, expect, test } from "vitest";
import { CLOSE_CODES } from "../../src/sdk/codes.ts";
import { Connection } from "../../src/sdk/connection.ts";
import { DataError } from "../../src/sdk/http.ts";
import { World } from "./world.ts";

let world: World;
let connection: Connection;
let failures: number[];
let events: string[];

beforeEach(() => {
  world = new World();
  world.dice = 0.999999;
  failures = [];
  events = [];
  connection = new Connection(
    world,
    (count) => {
      failures.push(count);
      return Promise.resolve(() => world.socket("ws://diem.test/ws"));
    },
    { opened: () => events.push("opened"), frame: () => undefined, lost: () => events.push("lost") },
    60_000,
  );
});

const state = (): string => connection.status.value.state;

async function open(): Promise<void> {
  connection.open();
  await world.advance();
  world.last.welcome();
}

/** Milliseconds until the next dial. */
const delay = (): number => Math.round((connection.status.value.retryAt ?? Number.NaN) - world.time);

test("connecting until the welcome, then open", async () => {
  connection.open();
  expect(state()).toBe("connecting");
  await world.advance();
  expect(state()).toBe("connecting");
  world.last.welcome();
  expect(connection.status.value).toMatchObject({ state: "open", server: "websocket-1", mode: "single" });
  expect(events).toEqual(["opened"]);
});

test("delays grow from half a second to thirty, drawn from the whole window", async () => {
  connection.open();
  const windows: number[] = [];
  for (let attempt = 0; attempt < 8; attempt += 1) {
    await world.advance();
    world.last.end(1006);
    windows.push(delay());
    await world.advance(delay());
  }
  // The second one is no longer than the outage.
  expect(windows).toEqual([500, 500, 1000, 2000, 4000, 8000, 16000, 30000]);
  expect(failures).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  world.dice = 0;
  world.last.end(1006);
  expect(delay()).toBe(0);
});

const RECONNECTS = Object.values(CLOSE_CODES).filter(({ reconnect }) => reconnect).map(({ code }) => code);

test.each(RECONNECTS)("%i: the server's window replaces ours", async (code) => {
  await open();
  world.last.end(code, "restart retry=12000");
  expect(delay()).toBe(12_000);
  expect(connection.expedite(500)).toBe(code === CLOSE_CODES.RESTART.code); // of a restart its owner knows when it is over
});

test("the pause that the configuration's server asks for is a minimum, whatever delay is drawn", async () => {
  const down = new DataError("HTTP 503", 503, 7_000);
  connection = new Connection(world, () => Promise.reject(down), { opened: () => undefined, frame: () => undefined, lost: () => undefined }, 60_000);
  connection.open();
  await world.advance();
  expect(delay()).toBe(7_500);
  world.dice = 0;
  await world.advance(7_500);
  expect(delay()).toBe(7_000);
});

test.each([1000, 1002, 1008, 1009, 4500, 4501, 4503, 4509])("after %i nobody dials again by itself", async (code) => {
  await open();
  world.last.end(code, "why");
  expect(connection.status.value).toMatchObject({ state: "closed", code, reason: "why", retryAt: null });
  await world.advance(120_000);
  expect(world.sockets).toHaveLength(1);
  expect(world.timers).toBe(0);
  await open();
  expect(state()).toBe("open");
});

test("a minute without a frame is a dead line", async () => {
  await open();
  await world.advance(40_000);
  world.last.frame({ type: "status", live: true });
  await world.advance(59_000);
  expect(state()).toBe("open");
  const first = world.last;
  await world.advance(1_500);
  expect(state()).toBe("reconnecting");
  expect(first.closed).toBe(true);
  first.end(1006);
  first.welcome();
  expect(state()).toBe("reconnecting");
});

test("a server that accepts and says nothing is given up after ten seconds", async () => {
  connection.open();
  await world.advance(9_999);
  expect(state()).toBe("connecting");
  await world.advance(1);
  expect(state()).toBe("reconnecting");
});

test("a configuration that cannot be read is tried again like a server that is down", async () => {
  let broken = true;
  connection = new Connection(
    world,
    () => (broken ? Promise.reject(new Error("down")) : Promise.resolve(() => world.socket("ws://x"))),
    { opened: () => undefined, frame: () => undefined, lost: () => undefined },
    60_000,
  );
  connection.open();
  await world.advance();
  expect(state()).toBe("reconnecting");
  broken = false;
  await world.advance(500);
  expect(world.sockets).toHaveLength(1);
});

test("open() dials at once instead of waiting, and only then", async () => {
  await open();
  connection.open();
  await world.advance();
  expect(world.sockets).toHaveLength(1);
  world.last.end(1006);
  connection.open();
  connection.open();
  await world.advance();
  expect(world.sockets).toHaveLength(2);
  await world.advance(5_000);
  expect(world.sockets).toHaveLength(2);
});

test("an observer that dials at once does not lead to two connections", async () => {
  connection.status.observe(({ state }) => state === "reconnecting" && connection.open());
  await open();
  world.last.end(1006);
  await world.advance(5_000);
  expect(world.sockets).toHaveLength(2);
});

test("close() during a dial leaves nothing behind", async () => {
  connection.open();
  connection.close();
  await world.advance(60_000);
  expect(world.sockets).toHaveLength(0);
  expect(state()).toBe("closed");
});

test("a machine that was asleep, whose own clock stood still: the dead connection is noticed when somebody looks", async () => {
  await open();
  let slept = 0;
  world.wall = () => 1_700_000_000_000 + world.time + slept;
  await world.advance(20_000);
  connection.open();
  expect(state()).toBe("open"); // it was heard a moment ago
  slept = 3_600_000;
  connection.open();
  expect(connection.status.value).toMatchObject({ state: "reconnecting", reason: "silence" });
  expect(delay()).toBeLessThanOrEqual(500);
  await world.advance(500);
  world.last.welcome();
  slept = -3_600_000; // the clock is set back: nothing to be done
  connection.open();
  expect([state(), world.sockets.length]).toEqual(["open", 2]);
});

const HEARTBEAT = { type: "status", live: true, since: "t", endpoints: [] };

test("a server that announces heartbeats is given up after two of them, and live as long as they come", async () => {
  connection.open();
  await world.advance();
  world.last.welcome({ heartbeat_ms: 4_000 });
  for (let beats = 0; beats < 5; beats += 1) {
    await world.advance(7_900);
    world.last.frame(HEARTBEAT);
  }
  await world.advance(8_499);
  expect([state(), events]).toEqual(["open", ["opened"]]);
  await world.advance(1);
  expect(connection.status.value).toMatchObject({ state: "reconnecting", reason: "silence" });
  expect([events, world.sockets[0]?.closed]).toEqual([["opened", "lost"], true]);
  expect(delay()).toBeLessThanOrEqual(500);
});

test("the next server, which announces nothing, has the usual minute", async () => {
  connection.open();
  await world.advance();
  world.last.welcome({ heartbeat_ms: 4_000 });
  world.last.end(1006);
  await world.advance(500);
  world.last.welcome();
  await world.advance(60_499);
  expect([state(), world.sockets.length]).toEqual(["open", 2]);
  await world.advance(1);
  expect(state()).toBe("reconnecting");
});

test("a late timer is no silence: frames that wait behind it are handled first", async () => {
  connection.open();
  await world.advance();
  world.last.welcome({ heartbeat_ms: 4_000 });
  for (let hours = 0; hours < 3; hours += 1) {
    // A hidden page: its timer is a minute late, and runs before the frames that have arrived meanwhile.
    world.time += 60_000;
    await world.advance();
    expect(state()).toBe("open");
    world.last.frame(HEARTBEAT);
    await world.advance(7_999);
  }
  expect([state(), world.sockets.length]).toEqual(["open", 1]);
  world.time += 50_000;
  connection.open(); // the page is visible again
  await world.advance(499);
  world.last.frame(HEARTBEAT);
  await world.advance(8_000);
  expect([state(), world.sockets.length]).toEqual(["open", 1]);
});
