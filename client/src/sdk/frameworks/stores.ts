/**
 * State of a `Diem` for user interfaces, in the form that frameworks expect of an external store: `value` is read at any time, and
 * `subscribe` reports changes. Any number of stores of an endpoint cost one subscription at the server.
 */

import type { CollectionOptions } from "../collections.ts";
import type { ConnectionStatus } from "../connection.ts";
import type { Diem } from "../diem.ts";
import type { DataError } from "../http.ts";
import type { Rejection } from "../messages.ts";
import { guarded } from "../observable.ts";
import type { Snapshot } from "../snapshot.ts";

export type Problem = DataError | Rejection;

export interface EndpointState<T> {
  /** The latest value; null until there is one, and once the endpoint is deleted. */
  readonly data: T | null;
  /** The same with version, time and the rest; of a series a `Dataset`. */
  readonly snapshot: Snapshot<T> | null;
  /** Why there is no newer value; null without a reason. */
  readonly problem: Problem | null;
  /** Whether the value is confirmed, and changes arrive as they happen. */
  readonly live: boolean;
}

export interface CollectionState<T> {
  /** The members with a value, by name. */
  readonly members: ReadonlyMap<string, Snapshot<T>>;
  /** The names of members that are collections. */
  readonly collections: readonly string[];
  /** The latest problem of the collection or of a member, until the next change. */
  readonly problem: Problem | null;
}

export interface ConnectionView extends ConnectionStatus {
  /** Whether changes arrive as they happen. */
  readonly live: boolean;
}

/** Before a page has a connection, and on a server. */
export const UNCONNECTED: ConnectionView = {
  state: "connecting", code: null, reason: "", retryAt: null, server: "", mode: "", live: false,
};

export function stateOf<T>(snapshot: Snapshot<T> | null, problem: Problem | null = null, live = false): EndpointState<T> {
  return { data: snapshot?.value ?? null, snapshot, problem, live };
}

/** Watches while anybody is subscribed. */
export abstract class Store<S> {
  readonly #listeners = new Set<() => void>();
  #stop: (() => void) | undefined;

  /** The present state: the same object until something changes. */
  abstract get value(): S;

  protected abstract start(): () => void;

  /** Calls `listener` after each change; returns the function that ends it. */
  readonly subscribe = (listener: () => void): (() => void) => {
    const own = (): void => listener();
    this.#listeners.add(own);
    this.#stop ??= this.start();
    return () => {
      if (!this.#listeners.delete(own) || this.#listeners.size > 0) return;
      this.#stop?.();
      this.#stop = undefined;
    };
  };

  protected changed(): void {
    for (const listener of [...this.#listeners]) guarded(listener);
  }
}

/** The latest version of an endpoint. */
export class EndpointStore<T> extends Store<EndpointState<T>> {
  readonly #diem: Diem;
  readonly #endpoint: string;
  #state: EndpointState<T>;
  #isWatched = false;

  constructor(diem: Diem, endpoint: string) {
    super();
    this.#diem = diem;
    this.#endpoint = endpoint;
    this.#state = stateOf(diem.data.peek<T>(endpoint));
  }

  get value(): EndpointState<T> {
    if (!this.#isWatched) {
      const held = this.#diem.data.peek<T>(this.#endpoint);
      if (held && held !== this.#state.snapshot) this.#state = stateOf(held);
    }
    return this.#state;
  }

  protected start(): () => void {
    this.#isWatched = true;
    const { updates } = this.#diem;
    const stop = this.#diem.watch<T>(this.#endpoint, (snapshot) => this.#set(snapshot, null), (problem) => this.#set(this.#state.snapshot, problem));
    const ignore = updates.live.observe(() => this.#set(this.#state.snapshot, this.#state.problem));
    return () => {
      ignore();
      stop();
      this.#isWatched = false;
      this.#set(this.#state.snapshot, null);
    };
  }

  #set(snapshot: Snapshot<T> | null, problem: Problem | null): void {
    const before = this.#state;
    const live = this.#isWatched && !!snapshot?.confirmed && this.#diem.updates.isLive(this.#endpoint);
    if (snapshot === before.snapshot && problem === before.problem && live === before.live) return;
    this.#state = stateOf(snapshot, problem, live);
    this.changed();
  }
}

/** The members of a collection. */
export class CollectionStore<T> extends Store<CollectionState<T>> {
  readonly #start: () => () => void;
  value: CollectionState<T> = { members: new Map(), collections: [], problem: null };

  constructor(diem: Diem, prefix: string, options?: CollectionOptions) {
    super();
    const set = (value: CollectionState<T>): void => {
      this.value = value;
      this.changed();
    };
    this.#start = () => diem.watchCollection<T>(
      prefix,
      ({ members, collections }) => set({ members, collections, problem: null }),
      (problem) => set({ ...this.value, problem }),
      options,
    );
  }

  protected start(): () => void {
    return this.#start();
  }
}

/** The connection of a `Diem`. */
export class ConnectionStore extends Store<ConnectionView> {
  readonly #diem: Diem;
  #value = UNCONNECTED;

  constructor(diem: Diem) {
    super();
    this.#diem = diem;
  }

  get value(): ConnectionView {
    const { connection, live } = this.#diem.updates;
    const now = { ...connection.value, live: live.value.live };
    const keys = Object.keys(now) as (keyof ConnectionView)[];
    if (keys.some((key) => now[key] !== this.#value[key])) this.#value = now;
    return this.#value;
  }

  protected start(): () => void {
    const { connection, live } = this.#diem.updates;
    const ends = [connection.observe(() => this.changed()), live.observe(() => this.changed())];
    return () => ends.forEach((end) => end());
  }
}
