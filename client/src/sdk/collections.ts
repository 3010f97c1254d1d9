/**
 * A collection and the values of its members as one view (docs/protocol.md section 2.2). Loaded when a page watches one; like
 * `tokens.ts`, it imports types alone.
 */

import type { Environment, Timer } from "./environment.ts";
import type { DataError } from "./http.ts";
import type { Rejection } from "./messages.ts";
import type { Snapshot } from "./snapshot.ts";

/** The members of a collection, and the differences to the call before. */
export interface CollectionChange<T = unknown> {
  /** Members with a value, by name and in the order of their names; another map in each call. */
  readonly members: Map<string, Snapshot<T>>;
  /** Names of the members that are collections. */
  readonly collections: string[];
  /** Names of `members`. */
  readonly added: string[];
  readonly removed: string[];
  /** Those with a newer version, or one that is confirmed now. */
  readonly changed: string[];
}

export interface CollectionOptions {
  /** Also the members of collections in it, at any depth; false when left out. */
  readonly deep?: boolean;
}

/** Reports a problem of the collection, or of the member `endpoint`. */
export type OnCollectionProblem = (problem: DataError | Rejection, endpoint: string) => void;

type Watch = (endpoint: string, onData: (snapshot: Snapshot) => void, onProblem: (problem: DataError | Rejection) => void) => () => void;

/** Members and collections that are watched at most; a page holds 1,024 snapshots. */
const MAX_WATCHED = 1_000;
/** The first call waits so long for the values of all members. */
const FIRST_MS = 1_000;

export class CollectionView {
  readonly #env: Environment;
  readonly #watch: Watch;
  readonly #root: string;
  readonly #deep: boolean;
  readonly #onChange: (change: CollectionChange) => void;
  readonly #onProblem: OnCollectionProblem;
  /** Each collection that is watched -> the names in it; no entry: not known yet. */
  readonly #lists = new Map<string, readonly string[]>();
  /** What is watched, the collection itself too -> ends that. */
  readonly #stops = new Map<string, () => void>();
  readonly #values = new Map<string, Snapshot>();
  /** Without a value or a problem so far; undefined after the first call. */
  #awaited: Set<string> | undefined = new Set();
  /** Members that were removed -> the last version: a member of that name is another one. The latest `MAX_WATCHED`. */
  readonly #former = new Map<string, number>();
  #shown: ReadonlyMap<string, Snapshot> = new Map();
  #shownCollections = "";
  #version = 0;
  #excess = 0;
  #isDue = false;
  #timer: Timer = null;

  constructor(
    env: Environment, watch: Watch, root: string, onChange: (change: CollectionChange) => void, onProblem: OnCollectionProblem | undefined,
    { deep = false }: CollectionOptions = {},
  ) {
    this.#env = env;
    this.#watch = watch;
    this.#root = root;
    this.#deep = deep;
    this.#onChange = onChange;
    let warned = false;
    this.#onProblem = onProblem ?? (({ message }, endpoint) => {
      if (!warned) console.warn(`DIEM: ${endpoint}: ${message}`);
      warned = true;
    });
    this.#add(root);
  }

  /** Ends all subscriptions. */
  stop(): void {
    this.#env.cancel(this.#timer);
    for (const stop of this.#stops.values()) stop();
    this.#stops.clear();
  }

  #add(name: string): void {
    this.#awaited?.add(name);
    // What is held is passed on before this returns.
    this.#stops.set(name, () => undefined);
    this.#stops.set(name, this.#watch(name, (snapshot) => this.#received(name, snapshot), (problem) => this.#failed(name, problem)));
  }

  #received(name: string, snapshot: Snapshot): void {
    if (isCollection(name)) return this.#listed(name, snapshot);
    this.#awaited?.delete(name);
    if (snapshot.gone || snapshot.version <= (this.#former.get(name) ?? 0)) this.#values.delete(name);
    else {
      this.#values.set(name, snapshot);
      this.#former.delete(name);
    }
    this.#showSoon();
  }

  #failed(name: string, problem: DataError | Rejection): void {
    this.#awaited?.delete(name);
    if ("status" in problem && problem.status === 404 && isCollection(name) && !this.#lists.has(name)) this.#lists.set(name, []);
    this.#showSoon();
    this.#onProblem(problem, name);
  }

  #listed(name: string, { value, version }: Snapshot): void {
    const { members } = (value ?? {}) as { members?: unknown };
    this.#lists.set(name, Array.isArray(members) ? members.filter((member) => typeof member === "string") : []);
    if (name === this.#root) {
      if (version < this.#version) this.#former.clear(); // the store was put back: these may be the same again
      this.#version = version;
    }
    this.#reconcile();
    this.#awaited?.delete(name);
    if (this.#awaited && !this.#timer) this.#timer = this.#env.later(FIRST_MS, () => this.#show());
    this.#showSoon();
  }

  /** Watches what is listed, and nothing else. */
  #reconcile(): void {
    const listed = new Set(this.#names(this.#root));
    for (const [name, stop] of this.#stops) {
      if (name === this.#root || listed.has(name)) continue;
      stop();
      this.#stops.delete(name);
      this.#lists.delete(name);
      this.#awaited?.delete(name);
      const last = this.#values.get(name);
      if (last === undefined) continue;
      this.#values.delete(name);
      this.#former.delete(name);
      this.#former.set(name, last.version);
      for (const oldest of this.#former.keys()) {
        if (this.#former.size <= MAX_WATCHED) break;
        this.#former.delete(oldest);
      }
    }
    let excess = 0;
    for (const name of listed) {
      if (this.#stops.has(name) || (isCollection(name) && !this.#deep)) continue;
      if (this.#stops.size > MAX_WATCHED) excess += 1;
      else this.#add(name);
    }
    if (excess > 0 && excess !== this.#excess) {
      const message = `${excess} members are not watched: one view has at most ${MAX_WATCHED}`;
      this.#env.microtask(() => this.#onProblem({ code: "limit", message }, this.#root));
    }
    this.#excess = excess;
  }

  /** The names in a collection, in order, each followed by those in it. */
  *#names(collection: string): Iterable<string> {
    for (const name of this.#lists.get(collection) ?? []) {
      yield name;
      if (isCollection(name)) yield* this.#names(name);
    }
  }

  /** All changes of a turn of the event loop are one call. */
  #showSoon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    this.#env.microtask(() => {
      this.#isDue = false;
      if (!this.#awaited?.size) this.#show();
    });
  }

  #show(): void {
    if (this.#stops.size === 0 || !this.#lists.has(this.#root)) return;
    const isFirst = this.#awaited !== undefined;
    this.#awaited = undefined;
    const before = this.#shown;
    const members = new Map<string, Snapshot>();
    const collections: string[] = [];
    const added: string[] = [];
    const changed: string[] = [];
    for (const name of this.#names(this.#root)) {
      const snapshot = this.#values.get(name);
      if (isCollection(name)) collections.push(name);
      if (snapshot === undefined) continue;
      members.set(name, snapshot);
      if (!before.has(name)) added.push(name);
      else if (before.get(name) !== snapshot) changed.push(name);
    }
    const removed = [...before.keys()].filter((name) => !members.has(name));
    this.#shown = members;
    const names = collections.join();
    const isNews = isFirst || names !== this.#shownCollections || added.length + removed.length + changed.length > 0;
    this.#shownCollections = names;
    if (isNews) this.#onChange({ members: new Map(members), collections, added, removed, changed });
  }
}

const isCollection = (name: string): boolean => name.endsWith("/");
