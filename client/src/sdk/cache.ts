/** The datasets a tab holds: a bounded map, mirrored into a bounded part of local storage so that a reload can revalidate. */

import type { Dataset } from "./dataset.ts";
import { parseDataset } from "./dataset.ts";
import type { Environment, Timer } from "./environment.ts";

export interface Entry {
  readonly dataset: Dataset;
  readonly etag: string | null;
  /** Whether the Data Service confirmed it to this tab, and nothing has put it in doubt since. */
  readonly confirmed: boolean;
}

export interface CacheBounds {
  /** Datasets in memory. */
  readonly entries: number;
  /** Characters in local storage, keys included. */
  readonly storedChars: number;
}

const BOUNDS: CacheBounds = { entries: 256, storedChars: 1_000_000 };
const PREFIX = "diem:";
const SAVE_AFTER_MS = 1_000;

/** At a bound, what was used (in memory) or saved (in storage) longest ago goes. */
export class DataCache {
  readonly #env: Environment;
  readonly #bounds: CacheBounds;
  readonly #entries = new Map<string, Entry>();
  readonly #unsaved = new Set<string>();
  #timer: Timer = null;

  constructor(env: Environment, bounds: CacheBounds = BOUNDS) {
    this.#env = env;
    this.#bounds = bounds;
  }

  get(endpoint: string): Entry | null {
    const entry = this.#entries.get(endpoint) ?? this.#stored(endpoint);
    if (entry !== null) this.#keep(endpoint, entry);
    return entry;
  }

  put(endpoint: string, entry: Entry): void {
    const saved = this.#entries.get(endpoint)?.dataset === entry.dataset;
    this.#keep(endpoint, entry);
    if (saved || this.#env.storage === null) return;
    if (this.#unsaved.size === 0) this.#timer = this.#env.later(SAVE_AFTER_MS, () => this.save());
    this.#unsaved.add(endpoint);
  }

  /** Marks what is held as in doubt: it must be confirmed before it is good again. */
  doubt(endpoint: string): void {
    const entry = this.#entries.get(endpoint);
    if (entry) this.#entries.set(endpoint, { ...entry, confirmed: false });
  }

  /** Writes what has changed to local storage now. */
  save(): void {
    this.#env.cancel(this.#timer);
    const { storage } = this.#env;
    if (storage === null) return;
    try {
      for (const endpoint of this.#unsaved) {
        const entry = this.#entries.get(endpoint);
        if (entry) storage.setItem(PREFIX + endpoint, JSON.stringify([this.#env.wall(), entry.etag, entry.dataset]));
      }
      this.#trim(this.#bounds.storedChars);
    } catch {
      this.#trim(0); // full or forbidden: a cache that cannot be written gives its room back
    }
    this.#unsaved.clear();
  }

  #keep(endpoint: string, entry: Entry): void {
    this.#entries.delete(endpoint);
    this.#entries.set(endpoint, entry);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#bounds.entries) break;
      this.#entries.delete(oldest);
    }
  }

  #stored(endpoint: string): Entry | null {
    try {
      const [, etag, body] = JSON.parse(this.#env.storage?.getItem(PREFIX + endpoint) ?? "[]") as unknown[];
      const dataset = parseDataset(endpoint, body);
      return dataset && { dataset, etag: typeof etag === "string" ? etag : null, confirmed: false };
    } catch {
      return null;
    }
  }

  #trim(limit: number): void {
    const { storage } = this.#env;
    if (storage === null) return;
    const stored: { key: string; chars: number; savedAt: number }[] = [];
    for (let index = 0; index < storage.length; index += 1) {
      const key = storage.key(index);
      if (!key?.startsWith(PREFIX)) continue;
      const value = storage.getItem(key) ?? "";
      stored.push({ key, chars: key.length + value.length, savedAt: Number.parseInt(value.slice(1), 10) || 0 });
    }
    let chars = stored.reduce((sum, entry) => sum + entry.chars, 0);
    for (const entry of stored.sort((a, b) => a.savedAt - b.savedAt)) {
      if (chars <= limit) return;
      storage.removeItem(entry.key);
      chars -= entry.chars;
    }
  }
}
