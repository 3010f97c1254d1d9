/**
 * Random walks: at rest nothing is behind that the SDK calls live, everything is live for which there is room, and at no
 * time is anything called live that no server has registered. With data, of every kind: what is held never gets older, and every
 * version is shown with its own data, whether that came with an update or was fetched.
 *
 * The same walks every time; `DIEM_WALKS_FACTOR` makes 40 times that many, with the seed `DIEM_WALKS_SEED` or a new one.
 */

import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { ConfigSource } from "../../src/sdk/config.ts";
import { DataService } from "../../src/sdk/data.ts";
import type { Diem } from "../../src/sdk/diem.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import type { Dataset, Snapshot } from "../../src/sdk/snapshot.ts";
import { NOTICE } from "../../src/sdk/snapshot.ts";
import { UpdatesService } from "../../src/sdk/updates.ts";
import type { GroupAction } from "./group.ts";
import { Group, SERVERS } from "./group.ts";
import { pollOnly } from "./polled.ts";
import { body } from "./world.ts";

const FACTOR = Number(process.env.DIEM_WALKS_FACTOR ?? 0);
const SEED = FACTOR === 0 ? 1 : Number(process.env.DIEM_WALKS_SEED ?? Date.now() % 2 ** 31);
/** Longer than all delays of a client that begin with the last thing that went wrong. */
const REST_MS = 120_000;
/** A server that is cut off for so long is not believed, if it has announced heartbeats. */
const CUT_OFF_MS = 10_000;
const NAMES = ["/a", "/b", "/c", "/d", "/e", "/f"];
/** Without one: a series. */
const MEDIA_TYPES: Record<string, string> = { "/c": "application/json", "/d": "text/plain", "/e": "application/octet-stream", "/f": NOTICE };

/** What updates have and the Data Service answers for a version: it says `value`. */
const content = (name: string, version: number, value = version): unknown =>
  ({
    "/c": { value },
    "/d": `${value}`,
    "/e": `${value}`,
    "/f": { endpoint: name, version, time: "", url: `/data?version=${value}` },
  })[name] ?? body(name, version, value);
const stored = (name: string, version: number): unknown => (name === "/d" || name === "/e" ? new TextEncoder().encode(`${version}`) : content(name, version));

/** The version that a snapshot's value says. */
function said({ endpoint, value, ...more }: Snapshot): number | null | undefined {
  if (endpoint === "/c") return (value as { value: number }).value;
  if (endpoint === "/e") return Number(new TextDecoder().decode(value as Uint8Array));
  return endpoint in MEDIA_TYPES ? Number(value) : (more as Dataset).points[0]?.value;
}

vi.setConfig({ testTimeout: 30_000 * Math.max(FACTOR, 1) });

const some = fc.uniqueArray(fc.constantFrom(...NAMES), { minLength: 1 });
const server = fc.constantFrom(...SERVERS);
const close = fc.constantFrom([1006, ""], [1012, "retry=2000"], [1013, "retry=4000"], [4000, "retry=2000"]) as fc.Arbitrary<[number, string]>;
const step = fc.oneof(
  fc.record({ kind: fc.constant("subscribe"), names: some, informed: fc.boolean() }),
  fc.record({ kind: fc.constant("unsubscribe"), names: some }),
  fc.record({ kind: fc.constant("flicker"), names: some, times: fc.integer({ min: 2, max: 40 }) }),
  fc.record({ kind: fc.constant("publish"), names: some }),
  fc.record({ kind: fc.constant("wait"), ms: fc.constantFrom(0, 1, 300, 1_000, 6_000, 20_000) }),
  fc.record({ kind: fc.constant("answer"), server }),
  fc.record({ kind: fc.constant("answer"), server }),
  fc.record({ kind: fc.constant("prepare"), names: some, server }),
  fc.record({ kind: fc.constantFrom("move", "take"), names: some, server, hinted: fc.boolean() }),
  fc.record({ kind: fc.constantFrom("retire", "reconnect") }),
  fc.record({ kind: fc.constant("cut"), server, close }),
  fc.record({ kind: fc.constantFrom("toggle", "stall", "freeze"), server }),
  fc.record({ kind: fc.constantFrom("drop", "resync"), names: some }),
  fc.record({ kind: fc.constant("service") }),
  fc.record({ kind: fc.constant("metadata"), metadata: fc.constantFrom("up", "away", "busy", "behind") }),
) as fc.Arbitrary<RoutingAction>;

type RoutingAction =
  | GroupAction
  | { kind: "subscribe"; names: string[]; informed: boolean }
  | { kind: "unsubscribe" | "publish"; names: string[] }
  | { kind: "flicker"; names: string[]; times: number }
  | { kind: "prepare"; names: string[]; server: (typeof SERVERS)[number] }
  | { kind: "reconnect" };

/** A page: it holds the versions that it is notified of. */
class Page {
  readonly held = new Map<string, number>();
  readonly faults: string[] = [];
  readonly diem: Diem | null = null;
  readonly updates: UpdatesService;
  readonly stops = new Map<string, () => void>();
  readonly visits = new Map<string, number>();

  constructor(group: Group) {
    const config = new ConfigSource(group.world, "/config.json");
    this.updates = new UpdatesService(group.world, {
      server: (failures) => config.server(failures),
      metadata: (failures) => config.metadata(failures),
      held: (name) => this.held.get(name) ?? 0,
    });
  }

  subscribe(name: string): void {
    if (this.stops.has(name)) return;
    this.stops.set(name, this.updates.subscribe(name, (change) => {
      if (change.type === "rejected" && this.updates.isLive(name)) this.faults.push(`${name} is rejected and live`);
      if (change.type !== "update") return;
      if (change.version <= (this.held.get(name) ?? 0)) this.faults.push(`${name}: an old version is told`);
      this.held.set(name, change.version);
    }));
  }

  unsubscribe(name: string): void {
    this.stops.get(name)?.();
    this.visits.set(name, (this.visits.get(name) ?? 0) + 1);
    this.stops.delete(name);
  }
}

/** A page that shows data, as it comes with updates or by a request. */
class DataPage extends Page {
  override readonly diem: Diem;
  override readonly updates: UpdatesService;

  constructor(group: Group) {
    super(group);
    this.diem = createDiem({ environment: group.world, load: (url) => new URLSearchParams(url.split("?")[1]).get("version") });
    this.updates = this.diem.updates;
  }

  override subscribe(name: string): void {
    if (this.stops.has(name)) return;
    let last = 0;
    this.stops.set(name, this.diem.watch<unknown>(name, (snapshot) => {
      const { version } = snapshot;
      if (version < last) this.faults.push(`${name}: ${version} is shown after ${last}`);
      if (said(snapshot) !== version) this.faults.push(`${name}: ${version} is shown with the data of ${said(snapshot)}`);
      last = version;
    }));
  }

  /** What is held now; it must not be older than before. */
  look(): void {
    for (const name of NAMES) {
      const version = this.diem.data.peek(name)?.version ?? 0;
      if (version < (this.held.get(name) ?? 0)) this.faults.push(`${name}: ${version} is held after ${this.held.get(name)}`);
      this.held.set(name, version);
    }
  }
}

async function take(group: Group, page: Page, next: RoutingAction): Promise<void> {
  switch (next.kind) {
    case "subscribe":
      for (const name of next.names) {
        if (next.informed && page.diem === null && !page.stops.has(name)) page.held.set(name, group.versions.get(name) as number);
        page.subscribe(name);
      }
      return;
    case "unsubscribe":
      return next.names.forEach((name) => page.unsubscribe(name));
    case "flicker":
      for (let times = 0; times < next.times; times += 1) {
        for (const name of next.names) {
          page.unsubscribe(name);
          if (times % 2 === 0) page.subscribe(name);
        }
        await group.world.advance(20);
        for (const each of SERVERS) group.answer(each);
      }
      return;
    case "publish":
      return next.names.forEach((name) => group.publish(name));
    case "prepare":
      return group.prepare(next.names, next.server);
    case "reconnect":
      return page.updates.connect();
    default:
      return group.act(next);
  }
}

function check(group: Group, page: Page): void {
  const { updates, stops, held, faults } = page;
  expect([...group.faults, ...faults, ...group.world.reported]).toEqual([]);
  for (const name of NAMES) {
    const isLive = updates.isLive(name);
    if (isLive) expect(held.get(name) ?? 0, `${name} is live`).toBe(group.versions.get(name));
    if (stops.has(name)) expect(isLive || !group.hasRoom(name), `${name} is live, or there is no room`).toBe(true);
    else expect(isLive, `${name} is not subscribed`).toBe(false);
  }
}

/** `prompt`: servers answer at once, and not only when it is their turn; `polls`: over HTTP. */
async function walk(
  mode: "x" | "z-client", options: Partial<Group>, prompt: boolean, steps: RoutingAction[], polls = false,
): Promise<void> {
  const group = new Group(mode, NAMES);
  if (polls) pollOnly(group);
  Object.assign(group, { body: content, stored, ...options });
  for (const [name, mediaType] of Object.entries(MEDIA_TYPES)) group.mediaTypes.set(name, mediaType);
  const page = options.data ? new DataPage(group) : new Page(group);
  const look = (): void => {
    if (page instanceof DataPage) page.look();
  };
  group.visits = (name) => page.visits.get(name) ?? 0;
  page.updates.connect();
  group.start();
  await group.world.advance();
  for (const next of steps) {
    await take(group, page, next);
    await group.world.advance();
    for (let times = 0; prompt && times < 3; times += 1) {
      for (const each of SERVERS) group.answer(each);
      await group.world.advance();
    }
    look();
    if (polls) continue; // between two of them nothing is registered
    const unregistered = NAMES.filter((name) => page.updates.isLive(name) && !group.isCut && !group.isRegistered(name));
    expect(unregistered, `called live after ${JSON.stringify(next)}`).toEqual([]);
    if (options.heartbeatMs) expect(group.trusted(CUT_OFF_MS), `believed after ${JSON.stringify(next)}`).toEqual([]);
  }
  await group.rest(REST_MS);
  look();
  check(group, page);
  for (const name of [...page.stops.keys()].filter((_, n) => n % 2 === 0)) page.unsubscribe(name);
  await group.rest(REST_MS);
  look();
  check(group, page);
  page.updates.close();
  page.diem?.close();
  group.stop();
  if (polls) await group.world.advance(); // a request that is aborted ends in a later turn
  expect(group.world.timers, "timers after close()").toBe(0);
}

const walks = (mode: "x" | "z-client", options: Partial<Group>, { mustFail = false, polls = false } = {}): Promise<void> =>
  fc.assert(
    fc.asyncProperty(
      fc.constantFrom(2, 4, 128), fc.constantFrom(0, 4_000), fc.boolean(), fc.boolean(), fc.array(step, { minLength: 1, maxLength: 40, size: "max" }),
      (limit, heartbeatMs, repeats, prompt, steps) => walk(mode, { limit, heartbeatMs, repeats, ...options }, prompt, steps, polls),
    ),
    { seed: mustFail ? 1 : SEED, numRuns: mustFail ? 40 : 40 * FACTOR || 25, endOnFailure: mustFail },
  );

test.each(["z-client", "x"] as const)("mode %s", (mode) => walks(mode, {}));

test.each(["z-client", "x"] as const)("mode %s, with data", (mode) => walks(mode, { data: true }));

test.each(["z-client", "x"] as const)("mode %s, by polls", (mode) => walks(mode, { data: true }, { polls: true }));

/** What the walks find that must fail, the same ones every time; it is not shrunk. */
const found = (options: Partial<Group>): Promise<string> =>
  walks("x", options, { mustFail: true }).then(() => "nothing", ({ cause }: { cause: { message: string; actual: unknown } }) => `${cause.message} ${cause.actual}`);

test("data of another version is found", async () => {
  const older = (name: string, version: number): unknown => content(name, version, version - 1);
  expect(await found({ data: true, body: older })).toContain("is shown with the data of");
});

test("a page that takes data without comparing versions is found", async () => {
  const held = vi.spyOn(DataService.prototype, "held").mockReturnValue(0);
  expect(await found({ data: true, repeats: true }).finally(() => held.mockRestore())).toMatch(/is held after|is live: expected/);
});
