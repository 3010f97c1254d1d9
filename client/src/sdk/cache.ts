/** The datasets a tab holds: a bounded map, mirrored into a bounded store so that the next visit starts with them. */

import type { Dataset } from "./dataset.ts";
import { parseDataset } from "./dataset.ts";
import type { Environment } from "./environment.ts";
import type { Stored } from "./store.ts";
import { Alarm } from "./timers.ts";

export interface Entry {
  readonly dataset: Dataset;
  readonly etag: string | null;
}

export interface CacheBounds {
  /** Datasets, in memory and in the store. */
  readonly entries: number;
  /** Characters of JSON in the store. */
  readonly storedChars: number;
}

const BOUNDS: CacheBounds = { entries: 256, storedChars: 2_000_000 };
const SAVE_AFTER_MS = 1_000;
/** A store that has not answered by then is done without. */
const PATIENCE_MS = 1_000;

/** At a bound, what was used longest ago goes. Without a store, or with one that fails, it is a map in memory. */
export class DataCache {
  /** Resolves when what earlier visits left is there, or is not coming in time. Never rejects. */
  readonly ready: Promise<void>;
  readonly #env: Environment;
  readonly #bounds: CacheBounds;
  readonly #entries = new Map<string, Entry>();
  /** What earlier visits left, until it is used. */
  readonly #left = new Map<string, Stored>();
  readonly #unsaved = new Set<string>();
  readonly #alarm: Alarm;

  constructor(env: Environment, bounds: CacheBounds = BOUNDS) {
    this.#env = env;
    this.#bounds = bounds;
    this.#alarm = new Alarm(env);
    this.ready = new Promise((resolve) => {
      if (env.storage === null) return resolve();
      const patience = env.later(PATIENCE_MS, resolve);
      const loaded = env.storage.load().then((stored) => {
        for (const entry of stored) if (!this.#entries.has(entry.endpoint)) this.#left.set(entry.endpoint, entry);
      });
      void loaded.catch(() => undefined).then(() => {
        env.cancel(patience);
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
    this.#keep(endpoint, entry);
    if (this.#env.storage === null) return;
    if (this.#unsaved.size === 0) this.#alarm.set(SAVE_AFTER_MS, () => this.save());
    this.#unsaved.add(endpoint);
  }

  /** Marks what is held as in doubt: it must be confirmed before it is good again. */
  doubt(endpoint: string): void {
    const entry = this.#entries.get(endpoint);
    if (entry) this.#entries.set(endpoint, { ...entry, dataset: { ...entry.dataset, confirmed: false } });
  }

  /** Hands what has changed to the store now. */
  save(): void {
    const stored = [...this.#unsaved].flatMap((endpoint) => {
      const { dataset, etag } = this.#entries.get(endpoint) ?? {};
      return dataset
        ? { endpoint, version: dataset.version, etag: etag ?? null, used: this.#env.wall(), text: JSON.stringify(dataset) }
        : [];
    });
    this.#unsaved.clear();
    this.#alarm.clear();
    const { entries, storedChars } = this.#bounds;
    if (stored.length > 0) this.#env.storage?.save(stored, { entries, chars: storedChars }).catch(() => undefined);
  }

  #keep(endpoint: string, entry: Entry): void {
    this.#left.delete(endpoint);
    this.#entries.delete(endpoint);
    this.#entries.set(endpoint, entry);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#bounds.entries) break;
      this.#entries.delete(oldest);
    }
  }

  #restored(endpoint: string): Entry | null {
    try {
      const { text, etag } = this.#left.get(endpoint) as Stored;
      const dataset = parseDataset(endpoint, JSON.parse(text));
      return dataset && { dataset: { ...dataset, confirmed: false }, etag };
    } catch {
      return null;
    }
  }
}
