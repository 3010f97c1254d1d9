/** The snapshots a tab holds: a bounded map, mirrored into a bounded store (`mirror.ts`) where the host has one. */

import type { Environment } from "./environment.ts";
import type { StoreMirror } from "./mirror.ts";
import type { Content, Entry } from "./snapshot.ts";
import { etagOf, readSnapshot } from "./snapshot.ts";
import type { Bounds } from "./store.ts";
import { ResettableTimer } from "./timers.ts";

/** An update, or without `data` the version that a server retains; null: not known. */
export interface Update extends Partial<Omit<Content, "version">> {
  readonly endpoint: string;
  readonly version: number | null;
}

const BOUNDS: Bounds = { entries: 1_024, chars: 2_000_000 };
/** In memory, all entries together; one endpoint has 4 MiB by default. */
const MEMORY_CHARS = 64 * 1024 * 1024;
/** A store that has not answered after this is not waited for. */
const LOAD_WAIT_MS = 1_000;

/**
 * At a bound, the least recently used snapshot is dropped, whichever key fetched it. Without a store, or with one that fails,
 * it is a map in memory.
 */
export class DataCache {
  /** Resolves when the store has answered, however late, or has failed. Never rejects. */
  readonly loaded: Promise<void>;
  /** Like `loaded`, but after a second at the latest: fetches wait for this. */
  readonly ready: Promise<void>;
  readonly #env: Environment;
  readonly #bounds: Bounds;
  readonly #entries = new Map<string, Entry>();
  #mirror: StoreMirror | undefined;
  #cleared = false;
  /** Characters in memory. */
  #size = 0;

  /** `apiKey`: null if another secret decides what may be read; then nothing is stored. */
  constructor(env: Environment, bounds: Bounds = BOUNDS, apiKey: string | null = "") {
    this.#env = env;
    this.#bounds = bounds;
    this.loaded = this.#load(apiKey).catch(() => undefined);
    this.ready = new Promise((resolve) => {
      if (!env.storage) return resolve();
      const timer = env.later(LOAD_WAIT_MS, resolve);
      void this.loaded.then(() => env.cancel(timer)).then(resolve);
    });
  }

  get(endpoint: string): Entry | null {
    const entry = this.#entries.get(endpoint) ?? this.#mirror?.restored(endpoint) ?? null;
    if (entry !== null) this.#keep(endpoint, entry);
    return entry;
  }

  put(endpoint: string, entry: Entry): void {
    if (this.#cleared) return;
    this.#keep(endpoint, entry);
    this.#mirror?.changed(endpoint);
  }

  /**
   * Holds the content of an update; without `data`, a server retains this version, and confirms it if it is the one held. After a
   * resync, a snapshot stays unconfirmed.
   */
  update({ endpoint, version, time, data, mediaType, encoding, size }: Update): void {
    const { snapshot, etag, suspect, size: held }: Partial<Entry> = this.get(endpoint) ?? {};
    const isNew = data !== undefined && version !== null;
    const found = isNew ? readSnapshot(endpoint, { version, time: time ?? "", data, mediaType, encoding }) : snapshot;
    if (found?.version !== version) return;
    this.put(endpoint, { snapshot: { ...found, confirmed: !suspect }, etag: isNew ? etagOf(found) : etag, suspect, size: isNew ? size : held });
  }

  /** Marks a snapshot as unconfirmed: it must be revalidated. */
  suspect(endpoint: string): void {
    const entry = this.#entries.get(endpoint);
    if (entry) this.#entries.set(endpoint, { ...entry, suspect: true, snapshot: { ...entry.snapshot, confirmed: false } });
  }

  /** Writes the changes to the store now. */
  save(): void {
    this.#mirror?.save();
  }

  /**
   * Forgets everything, here and of all keys in the store, and holds nothing from now on. Rejects when the store cannot be
   * emptied.
   */
  async clear(): Promise<void> {
    this.#cleared = true;
    this.#entries.clear();
    this.#size = 0;
    await this.#mirror?.close();
    await this.#env.storage?.save([], { entries: 0, chars: 0 });
  }

  async #load(apiKey: string | null): Promise<void> {
    if (!this.#env.storage) return;
    const { StoreMirror } = await import("./mirror.ts"); // beside the page's first requests
    if (this.#cleared) return;
    this.#mirror = new StoreMirror(this.#env, this.#bounds, apiKey, (endpoint) => this.#entries.get(endpoint), { ResettableTimer, readSnapshot });
    for (const endpoint of this.#entries.keys()) this.#mirror.changed(endpoint);
    await this.#mirror.load();
  }

  #keep(endpoint: string, entry: Entry): void {
    this.#mirror?.forget(endpoint);
    this.#size += (entry.size ?? 0) - (this.#entries.get(endpoint)?.size ?? 0);
    this.#entries.delete(endpoint);
    this.#entries.set(endpoint, entry);
    for (const [oldest, { size = 0 }] of this.#entries) {
      if (oldest === endpoint || (this.#entries.size <= this.#bounds.entries && this.#size <= MEMORY_CHARS)) break;
      this.#entries.delete(oldest);
      this.#size -= size;
    }
  }
}
