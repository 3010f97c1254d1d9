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

test("handshakes that something in the way does not pass on, while requests arrive", async () => {
  diem = createDiem({ environment: world });
  await refused();
  expect(reason(), "a server that restarts refuses a dial, too").toBe("");
  for (let dials = 0; dials < 6; dials += 1) {
    await world.advance(2_000);
    await refused();
  }
  expect(reason()).toMatch(/^handshake: .* does not pass on the header fields Upgrade and Connection/);
  expect(warnings).toEqual([`DIEM: not connected: ${reason()}`]);
  expect(world.requests.filter(({ url }) => url.endsWith("/v1/updates")).length, "nor do polls get through").toBeGreaterThan(0);
  for (let dials = 0; world.last.onmessage === null && dials < 100; dials += 1) await world.advance(1_000);
  world.last.welcome();
  expect([diem.updates.connection.value.state, reason()]).toEqual(["open", ""]);
});

/** A page at `page` whose configuration at `url` is answered by `answer`; null: not at all. `opaque`: somebody answers there. */
async function unread(page: string, url: string, reply: { status: number; body?: unknown } | null, opaque = false): Promise<string> {
  world = new World();
  world.baseUrl = page;
  world.auto = () => reply ?? undefined;
  diem = createDiem({ environment: world, configUrl: url });
  for (let asked = 0; asked < 3 && reply === null; asked += 1) {
    await world.advance();
    if (opaque && world.request.mode === "no-cors") world.request.answer(0);
    else world.request.fail();
  }
  await world.advance();
  const { state, reason } = diem.updates.connection.value;
  diem.close();
  return `${state} ${reason}`;
}

const PAGE = "https://app.example/";
const CONFIG_URL = "https://diem.example/config.json";

test.each([
  ["no answer", PAGE, CONFIG_URL, null, /^reconnecting unreachable: https:\/\/diem.example\/config.json: no usable answer; there is no server, no network, or it is blocked: by an extension/],
  ["another answer", PAGE, CONFIG_URL, { status: 404 }, /^reconnecting unreachable: https:\/\/diem.example\/config.json answers: HTTP 404$/],
  ["no configuration", PAGE, CONFIG_URL, { status: 200, body: {} }, /^reconnecting unreachable: https:\/\/diem.example\/config.json answers: no servers$/],
  ["http below a page on https", PAGE, "http://diem.example/config.json", null, /^reconnecting blocked: a page on https cannot use http:\/\/diem.example: serve it on https, too$/],
  ["this machine, from the internet", PAGE, "http://127.0.0.1:8080/config.json", null, /^reconnecting local: browsers keep pages of other networks from 127.0.0.1:8080 unless .* diem up --pages DIR$/],
  ["the local network, from the internet", "http://app.example/", "http://192.168.1.4/config.json", null, /^reconnecting local: /],
  ["this machine, from the local network", "http://192.168.1.4/", "http://localhost:8080/config.json", null, /^reconnecting local: /],
  ["this machine, from this machine", "http://localhost:5173/", "http://localhost:8080/config.json", null, /^reconnecting unreachable: /],
] as const)("a configuration that cannot be read says why: %s", async (_what, page, url, reply, expected) => {
  expect(await unread(page, url, reply)).toMatch(expected);
  expect(warnings).toEqual([expect.stringMatching(/^DIEM: not connected: /)]);
});

test("a configuration that is answered, and may not be read: the origin is not allowed", async () => {
  expect(await unread(PAGE, CONFIG_URL, null, true)).toBe(
    "reconnecting origin: https://diem.example/config.json answers, but not to pages of https://app.example; " +
    "start with --origin https://app.example, and have what is in front of it pass on CORS header fields",
  );
});

test("a browser that knows that it has no network, and one whose user has allowed the local network", async () => {
  vi.stubGlobal("navigator", { onLine: false });
  expect(await unread(PAGE, CONFIG_URL, null)).toBe("reconnecting unreachable: this device has no network");
  const asked: string[] = [];
  const query = ({ name }: { name: string }): Promise<{ state: string }> => (asked.push(name), Promise.resolve({ state: "granted" }));
  vi.stubGlobal("navigator", { permissions: { query } });
  expect(await unread(PAGE, "http://127.0.0.1:8080/config.json", null)).toMatch(/^reconnecting unreachable: /);
  expect(asked).toEqual(["loopback-network"]);
  vi.unstubAllGlobals();
});

test("a server on this machine, for a page of the internet that can read its configuration", async () => {
  world.auto = (url) => (url.endsWith("/config.json") ? { status: 200, body: { ...CONFIG, servers: [{ url: "ws://127.0.0.1:8101/ws" }] } } : undefined);
  diem = createDiem({ environment: world });
  await refused();
  world.request.fail();
  await world.advance();
  expect(reason()).toMatch(/^local: .* 127.0.0.1:8101 /);
});

test("a page that was connected before, and is offline, warns of nothing", async () => {
  diem = createDiem({ environment: world });
  await world.advance();
  world.last.welcome();
  world.auto = () => undefined;
  for (let dials = 0; dials < 5; dials += 1) {
    await refused();
    world.request.fail();
    await world.advance(15_000);
  }
  expect([diem.updates.connection.value.state, warnings]).toEqual(["reconnecting", []]);
});

const MINUTE = 60_000;

test.each([
  [2 * MINUTE, "2 minutes ahead, so ages of data are wrong"],
  [-3 * 1_440 * MINUTE, "3 days behind, so every update is fetched, up to two seconds late, and ages of data are wrong"],
  [59_000, null], [-59_000, null],
])("a clock that is %d ms ahead of the server's", async (skew, text) => {
  world.skew = skew;
  const { auto } = world;
  world.auto = (url) => ({ ...auto(url), headers: { Date: "Tue, 14 Nov 2023 22:13:20 GMT" } }) as ReturnType<typeof auto>;
  diem = createDiem({ environment: world });
  await world.advance();
  world.last.welcome();
  diem.updates.subscribe("/a", () => undefined);
  for (const version of [1, 2]) world.last.update("/a", 1_700_000_000_000 + version);
  await world.advance(1_000);
  expect(warnings).toEqual(text === null ? [] : [`DIEM: the clock of this device and the server's differ: this one is ${text}. Set it right.`]);
});

test("a clock that is behind shows by an update, where no answer has a date, and the date of a cached answer shows nothing", async () => {
  const { auto } = world;
  world.auto = (url) => ({ ...auto(url), headers: { Date: "Tue, 14 Nov 2023 11:13:20 GMT", Age: "40000" } }) as ReturnType<typeof auto>;
  diem = createDiem({ environment: world });
  await world.advance();
  world.last.welcome();
  diem.updates.subscribe("/a", () => undefined);
  await world.advance();
  expect(warnings).toEqual([]);
  world.last.update("/a", 1_700_000_000_000 + 5 * 3_600_000);
  await world.advance();
  expect(warnings).toEqual(["DIEM: the clock of this device and the server's differ: this one is 5 hours behind, so ages of data are wrong. Set it right."]);
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
