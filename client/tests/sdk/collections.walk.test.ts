/**
 * Random walks over a collection: members come, go, change and are made again, while servers, the Data Service and the metadata
 * service fail. At rest a view has exactly the members that there are, each with its latest value; and at no time does one come
 * back with a value that it had before it was removed.
 *
 * The same walks every time; `DIEM_WALKS_FACTOR` makes 40 times that many, with the seed `DIEM_WALKS_SEED` or a new one.
 */

import fc from "fast-check";
import { expect, test, vi } from "vitest";
import type { CollectionChange, Diem } from "../../src/sdk/index.ts";
import { createDiem } from "../../src/sdk/index.ts";
import type { GroupAction } from "./group.ts";
import { Group, SERVERS } from "./group.ts";

const FACTOR = Number(process.env.DIEM_WALKS_FACTOR ?? 0);
const SEED = FACTOR === 0 ? 1 : Number(process.env.DIEM_WALKS_SEED ?? Date.now() % 2 ** 31);
/** Longer than all delays of a client that begin with the last thing that went wrong. */
const REST_MS = 150_000;
const ROOT = "/c/";
const NESTED = "/c/n/";
const MEMBERS = ["/c/a", "/c/b", "/c/d", "/c/n/x", "/c/n/y"];
const NAMES = [ROOT, NESTED, ...MEMBERS];
const COLLECTION = "application/vnd.diem.collection+json";

vi.setConfig({ testTimeout: 30_000 * Math.max(FACTOR, 1) });

const some = fc.uniqueArray(fc.constantFrom(...MEMBERS), { minLength: 1 });
const anything = fc.uniqueArray(fc.constantFrom(...NAMES), { minLength: 1 });
const server = fc.constantFrom(...SERVERS);
const step = fc.oneof(
  fc.record({ kind: fc.constantFrom("put", "put", "delete", "delete"), names: some, order: fc.boolean(), deaf: fc.boolean() }),
  fc.record({ kind: fc.constant("wait"), ms: fc.constantFrom(0, 1, 300, 1_000, 6_000, 20_000) }),
  fc.record({ kind: fc.constant("answer"), server }),
  fc.record({ kind: fc.constant("answer"), server }),
  fc.record({ kind: fc.constantFrom("move", "take"), names: anything, server, hinted: fc.boolean() }),
  fc.record({ kind: fc.constant("retire") }),
  fc.record({ kind: fc.constant("cut"), server, close: fc.constantFrom([1006, ""], [1012, "retry=2000"]) as fc.Arbitrary<[number, string]> }),
  fc.record({ kind: fc.constantFrom("toggle", "stall"), server }),
  fc.record({ kind: fc.constantFrom("drop", "resync"), names: anything }),
  fc.record({ kind: fc.constant("service") }),
  fc.record({ kind: fc.constant("metadata"), metadata: fc.constantFrom("up", "away", "busy") }),
) as fc.Arbitrary<Action>;

type Action = GroupAction | { kind: "put" | "delete"; names: string[]; order: boolean; deaf: boolean };

/** What the store has: endpoints, and collections that it keeps. */
class Store {
  readonly group: Group;
  /** Whether gaps in the feed are not announced. */
  isLossy = false;
  /** Version -> the members of a collection. */
  readonly lists = new Map<string, Map<number, string[]>>([[ROOT, new Map()], [NESTED, new Map()]]);
  readonly #exists = new Set<string>();

  constructor(mode: "x" | "z-client") {
    this.group = new Group(mode, NAMES);
    this.group.data = true;
    this.group.body = this.group.stored = (name, version) => {
      const list = this.lists.get(name);
      if (!list) return { version };
      const latest = Math.max(...[...list.keys()].filter((each) => each <= version));
      return { endpoint: name, version, time: "2026-01-01T00:00:00.000Z", members: list.get(latest) ?? [] };
    };
    for (const name of NAMES) this.group.mediaTypes.set(name, this.lists.has(name) ? COLLECTION : "application/json");
  }

  /** The members, and their versions. */
  get members(): Record<string, number> {
    return Object.fromEntries(MEMBERS.filter((name) => this.#exists.has(name)).map((name) => [name, this.group.versions.get(name) as number]));
  }

  /** Creates, changes or deletes an endpoint; `order`: its update is before that of its collection. `deaf`: no server is told. */
  write(name: string, exists: boolean, order: boolean, deaf: boolean): void {
    if (!exists && !this.#exists.has(name)) return;
    const before = this.#exists.has(name);
    if (exists) this.#exists.add(name);
    else this.#exists.delete(name);
    const own = (): void => this.#publish(name, !exists, deaf);
    if (order) own();
    if (exists !== before) this.#list(name.startsWith(NESTED) ? NESTED : ROOT, order, deaf);
    if (!order) own();
  }

  #list(collection: string, order: boolean, deaf: boolean): void {
    const isIn = (name: string): boolean => name !== collection && name.startsWith(collection) && !name.slice(collection.length, -1).includes("/");
    const members = NAMES.filter((name) => this.#exists.has(name) && isIn(name)).sort();
    const isEmpty = members.length === 0;
    const before = this.#exists.has(collection);
    if (isEmpty) this.#exists.delete(collection);
    else this.#exists.add(collection);
    const own = (): void => {
      this.lists.get(collection)?.set(this.#next(collection), members);
      this.#publish(collection, isEmpty, deaf);
    };
    if (order) own();
    if (collection === NESTED && before === isEmpty) this.#list(ROOT, order, deaf);
    if (!order) own();
  }

  #next = (name: string): number => 1_700_000_000_000 + ((this.group.versions.get(name) as number) % 1_700_000_000_000) + 1;

  #publish(name: string, gone: boolean, deaf: boolean): void {
    if (gone) this.group.gone.add(name);
    else this.group.gone.delete(name);
    if (deaf) this.group.versions.set(name, this.#next(name));
    else this.group.publish(name);
    // What no server has received is announced as a resync, as after a gap in a feed.
    if (deaf && !this.isLossy) this.group.resync(name);
  }
}

/** A view, and the rules that hold for its calls. */
class Page {
  readonly diem: Diem;
  readonly faults: string[] = [];
  readonly stop: () => void;
  last: CollectionChange = { members: new Map(), collections: [], added: [], removed: [], changed: [] };
  /** The latest version of each member that was shown. */
  readonly #latest = new Map<string, number>();

  constructor(store: Store, deep: boolean) {
    this.diem = createDiem({ environment: store.group.world });
    this.stop = this.diem.watchCollection<{ version: number }>(ROOT, (change) => this.#take(change), () => undefined, { deep });
  }

  get members(): Record<string, number> {
    return Object.fromEntries([...this.last.members].map(([name, { version }]) => [name, version]));
  }

  #take(change: CollectionChange<{ version: number }>): void {
    const { members, added, removed, changed } = change;
    const before = new Set(this.last.members.keys());
    for (const name of removed) if (!before.delete(name)) this.faults.push(`${name} was removed, and not there`);
    for (const name of added) {
      if (before.has(name)) this.faults.push(`${name} was added, and there`);
      before.add(name);
      if ((this.#latest.get(name) ?? 0) >= (members.get(name)?.version ?? 0)) this.faults.push(`${name} came back as it was before`);
    }
    if (before.size !== members.size || [...members.keys()].some((name) => !before.has(name))) this.faults.push("the differences are not those of the members");
    for (const [name, { version, value, gone }] of members) {
      if (gone || value.version !== version) this.faults.push(`${name} has the value of ${value?.version} at ${version}`);
      if (version < (this.#latest.get(name) ?? 0)) this.faults.push(`${name} is at ${version} after ${this.#latest.get(name)}`);
      if (version > (this.#latest.get(name) ?? 0) && ![...added, ...changed].includes(name)) this.faults.push(`${name} has changed, and is not named`);
      this.#latest.set(name, version);
    }
    this.last = change;
  }
}

async function take(store: Store, next: Action): Promise<void> {
  if (!("deaf" in next)) return store.group.act(next);
  next.names.forEach((name) => store.write(name, next.kind === "put", next.order, next.deaf));
}

async function walk(mode: "x" | "z-client", spoil: (store: Store) => void, deep: boolean, repeats: boolean, prompt: boolean, steps: Action[]): Promise<void> {
  const store = new Store(mode);
  const { group } = store;
  spoil(store);
  group.repeats = repeats;
  for (const name of MEMBERS.slice(0, 2)) store.write(name, true, true, false);
  const page = new Page(store, deep);
  await group.world.advance();
  const check = (): void => {
    const all = Object.entries(store.members).filter(([name]) => deep || !name.startsWith(NESTED));
    expect([...page.faults, ...group.world.reported]).toEqual([]);
    expect(page.members).toEqual(Object.fromEntries(all));
    expect(page.last.collections).toEqual(Object.keys(store.members).some((name) => name.startsWith(NESTED)) ? [NESTED] : []);
  };
  for (const next of steps) {
    await take(store, next);
    await group.world.advance();
    for (let times = 0; prompt && times < 3; times += 1) {
      for (const each of SERVERS) group.answer(each);
      await group.world.advance();
    }
    expect(page.faults, `after ${JSON.stringify(next)}`).toEqual([]);
  }
  await group.rest(REST_MS);
  check();
  page.stop();
  await group.rest(30_000);
  expect([page.diem.updates.subscriptions, NAMES.filter((name) => group.isRegistered(name))]).toEqual([0, []]);
  page.diem.close();
  expect(group.world.timers, "timers after close()").toBe(0);
}

const walks = (mode: "x" | "z-client", spoil: (store: Store) => void = () => undefined, mustFail = false): Promise<void> =>
  fc.assert(
    fc.asyncProperty(fc.boolean(), fc.boolean(), fc.boolean(), fc.array(step, { minLength: 1, maxLength: 40, size: "max" }), (deep, repeats, prompt, steps) =>
      walk(mode, spoil, deep, repeats, prompt, steps),
    ),
    { seed: mustFail ? 1 : SEED, numRuns: mustFail ? 40 : 40 * FACTOR || 25, endOnFailure: mustFail },
  );

test.each(["x", "z-client"] as const)("mode %s", (mode) => walks(mode));

/** What the walks find that must fail, the same ones every time; it is not shrunk. */
const found = (spoil: (store: Store) => void): Promise<string> =>
  walks("x", spoil, true).then(() => "nothing", ({ cause }: { cause: { message: string; actual: unknown } }) => `${cause.message} ${JSON.stringify(cause.actual)}`);

test("an update that no server has received, and nobody announces, is found", async () => {
  expect(await found((store) => void (store.isLossy = true))).toMatch(/to deeply equal/);
});

test("a member with the value of another version is found", async () => {
  const older = (store: Store): void => {
    const { body } = store.group;
    store.group.body = (name, version) => (name.endsWith("/") ? body(name, version) : { version: version - 1 });
  };
  expect(await found(older)).toContain("has the value of");
});

test("a collection that lists one member too few is found", async () => {
  const fewer = (store: Store): void => {
    const { body } = store.group;
    store.group.body = (name, version) => {
      const made = body(name, version) as { members?: string[] };
      return made.members ? { ...made, members: made.members.slice(1) } : made;
    };
  };
  expect(await found(fewer)).toMatch(/to deeply equal/);
});
