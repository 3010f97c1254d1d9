/** Why servers refuse a page: asked after failed dials, with back-off, and kept in the status of the connection. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Diem } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import { CONFIG, World } from "./world.ts";

const FOREIGN = { allowed: false, reason: "origin", detail: "http://localhost:5173 is not an allowed origin; start with --origin http://localhost:5173" };
const LIMIT = { status: 429, code: "limit", detail: "this address has 50 clients already (--clients-per-address)" };
const SERVER = "http://diem.test:8101/ws";

let world: World;
let diem: Diem;
let config: object;
/** What the server answers to the question why. */
let answer: { status: number; body?: unknown };
let warnings: string[];

beforeEach(() => {
  world = new World();
  config = CONFIG;
  answer = { status: 426, body: { status: 426, code: "upgrade_required", detail: "it would be accepted" } };
  warnings = [];
  vi.spyOn(console, "warn").mockImplementation((text: string) => void warnings.push(text));
  world.auto = (url) => {
    if (url.endsWith("/config.json")) return { status: 200, body: config };
    return url === SERVER ? answer : { status: 404, body: { code: "not_found", detail: "there is no endpoint /lod/GR" } };
  };
});

afterEach(() => vi.restoreAllMocks());

const reason = (): string => diem.updates.connection.value.reason;
const asked = (): number => world.requests.filter(({ url }) => url === SERVER).length;

/** The browser reports no more of a refused handshake than this. */
async function refused(): Promise<void> {
  await world.advance();
  world.last.end(1006);
  await world.advance();
}

test("a page of a foreign origin gets the reason and the remedy, and none is asked for data", async () => {
  config = FOREIGN;
  diem = createDiem({ environment: world });
  await world.advance();
  expect(diem.updates.connection.value.state).toBe("reconnecting");
  expect(reason()).toBe(`origin: ${FOREIGN.detail}`);
  expect(warnings).toEqual([`DIEM: not connected: origin: ${FOREIGN.detail}`]);
  expect(world.sockets).toEqual([]);
});

test("it connects when its origin has been allowed meanwhile", async () => {
  config = FOREIGN;
  diem = createDiem({ environment: world });
  await world.advance();
  config = CONFIG;
  await world.advance(2_000);
  world.last.welcome();
  expect([diem.updates.connection.value.state, reason()]).toEqual(["open", ""]);
});

test("an address at its limit: the server is asked over HTTP, and the reason stays while dials go on", async () => {
  answer = { status: 429, body: LIMIT };
  diem = createDiem({ environment: world });
  await refused();
  expect(reason()).toBe(`limit: ${LIMIT.detail}`);
  await world.advance(500);
  await refused();
  expect(reason()).toBe(`limit: ${LIMIT.detail}`);
  expect(asked()).toBe(1); // asked again after four seconds at the earliest
  expect(warnings).toHaveLength(1);
});

test("questions become rarer, however often a dial fails", async () => {
  answer = { status: 429, body: LIMIT };
  diem = createDiem({ environment: world });
  for (let dials = 0; dials < 60; dials += 1) {
    await refused();
    await world.advance(15_000);
  }
  expect(asked()).toBeLessThan(15);
  expect(asked()).toBeGreaterThan(5);
  expect(warnings).toHaveLength(1);
});

test("a server that would accept the page, one that starts, and one of an earlier release give no reason", async () => {
  for (const other of [answer, { status: 503, body: { code: "not_ready", detail: "not ready" } }, { status: 426 }, { status: 404 }]) {
    answer = other;
    diem = createDiem({ environment: world });
    await refused();
    expect(reason()).toBe("");
    diem.close();
  }
  expect(warnings).toEqual([]);
});

test("a line that was cut is no refusal: nobody asks before the third attempt", async () => {
  diem = createDiem({ environment: world });
  await world.advance();
  world.last.welcome();
  await world.advance();
  for (let lost = 1; lost <= 2; lost += 1) {
    await refused();
    expect(asked()).toBe(0);
    await world.advance(1_000);
  }
  await refused();
  expect(asked()).toBe(1);
});

test("what a data service says of a problem is its message, and a warning where nobody listens", async () => {
  diem = createDiem({ environment: world });
  await world.advance();
  world.last.welcome();
  const problems: unknown[] = [];
  diem.watch("/lod/GR", () => undefined);
  diem.watch("/lod/GR", () => undefined, (problem) => problems.push(problem));
  await world.advance(5_000);
  expect(problems).toEqual([expect.objectContaining({ status: 404, code: "not_found", message: "there is no endpoint /lod/GR" })]);
  expect(warnings).toEqual(["DIEM: /lod/GR: there is no endpoint /lod/GR"]);
});
