/**
 * The snapshots a tab holds: a bounded map, mirrored into a bounded store so that the next visit with the same API key, or
 * without one, starts with them.
 */

import type { Environment } from "./environment.ts";
import { orNull } from "./json.ts";
import type { Content, Snapshot } from "./snapshot.ts";
import { etagOf, fromText, readSnapshot, toText } from "./snapshot.ts";
import type { Bounds, Stored } from "./store.ts";
import { ResettableTimer } from "./timers.ts";

export interface Entry {
  readonly snapshot: Snapshot;
  readonly etag?: string | null | undefined;
  /** Characters or bytes of what was received; 0 when left out. */
  readonly size?: number | undefined;
  /** Since a resync, no request has confirmed it: data that comes with an update may be older. */
  readonly suspect?: boolean | undefined;
}

/** An update, or without `data` the version that a server retains; null: not known. */
export interface Update extends Partial<Omit<Content, "version">> {
  readonly endpoint: string;
  readonly version: number | null;
}

const BOUNDS: Bounds = { entries: 1_024, chars: 2_000_000 };
/** In memory, all entries together; one endpoint has 4 MiB by default. */
const MEMORY_CHARS = 64 * 1024 * 1024;
const SAVE_AFTER_MS = 1_000;
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
  /** Snapshots of earlier visits that have not been used yet. */
  readonly #left = new Map<string, Stored>();
  readonly #unsaved = new Set<string>();
  readonly #timer: ResettableTimer;
  #cleared = false;
  /** Characters in memory. */
  #size = 0;
  /** Pending writes. */
  #writing = 0;
  /** When any snapshot was last used, Unix time in milliseconds. */
  #used = 0;
  /** Prefix of this key's snapshots in the store; null: unknown, because the host has no digest. */
  readonly #owner: Promise<string | null>;

  /** `apiKey`: null if another secret decides what may be read; then nothing is stored. */
  constructor(env: Environment, bounds: Bounds = BOUNDS, apiKey: string | null = "") {
    this.#env = env;
    this.#bounds = bounds;
    this.#timer = new ResettableTimer(env);
    this.#owner = owner(env, apiKey);
    this.loaded = this.#load().catch(() => undefined);
    this.ready = new Promise((resolve) => {
      if (!env.storage) return resolve();
      const timer = env.later(LOAD_WAIT_MS, resolve);
      void this.loaded.then(() => {
        env.cancel(timer);
        resolve();
      });
    });
  }

  get(endpoint: string): Entry | null {
    const entry = this.#entries.get(endpoint) ?? this.#restored(endpoint);
    if (entry !== null) this.#keep(endpoint, entry);
    return entry;
  }

  put(endpoint: string, entry: Entry): void {
    if (this.#cleared) return;
    this.#keep(endpoint, entry);
    if (this.#env.storage === null) return;
    if (this.#unsaved.size === 0) this.#saveSoon();
    this.#unsaved.add(endpoint);
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
    this.#used = Math.max(this.#env.wall(), this.#used + 1); // after a clock was set back, the newest would be dropped first
    const stored = [...this.#unsaved].flatMap((endpoint) => {
      const { snapshot, etag } = this.#entries.get(endpoint) ?? {};
      const text = snapshot && toText(snapshot, this.#bounds.chars);
      return text ? { endpoint, version: snapshot.version, etag: etag ?? null, used: this.#used, text } : [];
    });
    this.#unsaved.clear();
    this.#timer.clear();
    if (stored.length === 0) return;
    this.#writing += 1;
    const done = (): void => void (this.#writing -= 1);
    this.#write(stored).then(done, done);
  }

  /**
   * Forgets everything, here and of all keys in the store, and holds nothing from now on. Rejects when the store cannot be
   * emptied.
   */
  async clear(): Promise<void> {
    this.#cleared = true;
    this.#entries.clear();
    this.#size = 0;
    this.#left.clear();
    this.#unsaved.clear();
    this.#timer.clear();
    await this.#owner; // pending writes were started before
    await this.#env.storage?.save([], { entries: 0, chars: 0 });
  }

  /** One write at a time while the page is open, so that writes do not accumulate for a slow store. */
  #saveSoon(): void {
    this.#timer.set(SAVE_AFTER_MS, () => (this.#writing > 0 ? this.#saveSoon() : this.save()));
  }

  async #load(): Promise<void> {
    const [stored, own] = await Promise.all([this.#env.storage?.load(), this.#owner]);
    if (!stored || own === null || this.#cleared) return;
    this.#used = Math.max(this.#used, stored.at(-1)?.used ?? 0);
    for (const entry of stored) {
      const endpoint = entry.endpoint.slice(own.length);
      if (entry.endpoint.startsWith(`${own}/`) && !this.#entries.has(endpoint)) this.#left.set(endpoint, entry);
    }
  }

  async #write(stored: readonly Stored[]): Promise<void> {
    const own = await this.#owner;
    if (own !== null) await this.#env.storage?.save(stored.map((entry) => ({ ...entry, endpoint: own + entry.endpoint })), this.#bounds);
  }

  #keep(endpoint: string, entry: Entry): void {
    this.#left.delete(endpoint);
    this.#size += (entry.size ?? 0) - (this.#entries.get(endpoint)?.size ?? 0);
    this.#entries.delete(endpoint);
    this.#entries.set(endpoint, entry);
    for (const [oldest, { size = 0 }] of this.#entries) {
      if (oldest === endpoint || (this.#entries.size <= this.#bounds.entries && this.#size <= MEMORY_CHARS)) break;
      this.#entries.delete(oldest);
      this.#size -= size;
    }
  }

  #restored(endpoint: string): Entry | null {
    const { text = "null", etag } = this.#left.get(endpoint) ?? {};
    const snapshot = orNull(() => fromText(endpoint, text));
    return snapshot && { snapshot, etag, size: text.length };
  }
}

/** Anonymous visitors' snapshots have no prefix; no endpoint begins like that of a key. */
async function owner(env: Environment, apiKey: string | null): Promise<string | null> {
  if (!apiKey) return apiKey;
  try {
    const found = await env.digest?.(apiKey);
    return found ? `${found} ` : null;
  } catch {
    return null;
  }
}
