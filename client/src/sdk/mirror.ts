/**
 * Copies of a tab's snapshots in a store, so that the next visit with the same API key, or without one, starts with them. Every page
 * whose host has a store loads it, beside its first requests; it imports types alone.
 */

import type { Environment } from "./environment.ts";
import type { Entry, NOTICE, Snapshot, readSnapshot } from "./snapshot.ts";
import type { Bounds, Stored } from "./store.ts";
import type { ResettableTimer } from "./timers.ts";

const SAVE_AFTER_MS = 1_000;

/** What it takes of the part that is loaded at once. */
export interface Parts {
  readonly ResettableTimer: typeof ResettableTimer;
  readonly readSnapshot: typeof readSnapshot;
}

/** The number of snapshots and characters in the store is bounded by `bounds`. */
export class StoreMirror {
  readonly #env: Environment;
  readonly #bounds: Bounds;
  readonly #held: (endpoint: string) => Entry | undefined;
  readonly #read: Parts["readSnapshot"];
  /** Snapshots of earlier visits that have not been used yet. */
  readonly #left = new Map<string, Stored>();
  readonly #unsaved = new Set<string>();
  readonly #timer: ResettableTimer;
  #isClosed = false;
  /** Pending writes. */
  #writing = 0;
  /** When any snapshot was last used, Unix time in milliseconds. */
  #used = 0;
  /** Prefix of this key's snapshots in the store; null: unknown, because the host has no digest. */
  readonly #owner: Promise<string | null>;

  /** `held` returns what the tab holds of an endpoint; `apiKey` as of `DataCache`. */
  constructor(env: Environment, bounds: Bounds, apiKey: string | null, held: (endpoint: string) => Entry | undefined, parts: Parts) {
    this.#env = env;
    this.#bounds = bounds;
    this.#held = held;
    this.#read = parts.readSnapshot;
    this.#timer = new parts.ResettableTimer(env);
    this.#owner = owner(env, apiKey);
  }

  async load(): Promise<void> {
    const [stored, own] = await Promise.all([this.#env.storage?.load(), this.#owner]);
    if (!stored || own === null || this.#isClosed) return;
    this.#used = Math.max(this.#used, stored.at(-1)?.used ?? 0);
    for (const entry of stored) {
      const endpoint = entry.endpoint.slice(own.length);
      if (entry.endpoint.startsWith(`${own}/`) && !this.#held(endpoint)) this.#left.set(endpoint, entry);
    }
  }

  /** The snapshot of an earlier visit, unconfirmed. */
  restored(endpoint: string): Entry | null {
    const { text, etag } = this.#left.get(endpoint) ?? {};
    if (text === undefined) return null;
    try {
      const snapshot = fromText(endpoint, text, this.#read);
      return snapshot && { snapshot, etag, size: text.length };
    } catch {
      return null;
    }
  }

  /** Forgets the snapshot of an earlier visit: the tab holds one. */
  forget(endpoint: string): void {
    this.#left.delete(endpoint);
  }

  /** Stores what is held of the endpoint, in a second. */
  changed(endpoint: string): void {
    if (this.#unsaved.size === 0) this.#saveSoon();
    this.#unsaved.add(endpoint);
  }

  /** Writes the changes to the store now. */
  save(): void {
    this.#used = Math.max(this.#env.wall(), this.#used + 1); // after a clock was set back, the newest would be dropped first
    const stored = [...this.#unsaved].flatMap((endpoint) => {
      const { snapshot, etag } = this.#held(endpoint) ?? {};
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

  /** Stores nothing from now on. Resolves when pending writes have been started. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#left.clear();
    this.#unsaved.clear();
    this.#timer.clear();
    await this.#owner;
  }

  /** One write at a time while the page is open, so that writes do not accumulate for a slow store. */
  #saveSoon(): void {
    this.#timer.set(SAVE_AFTER_MS, () => (this.#writing > 0 ? this.#saveSoon() : this.save()));
  }

  async #write(stored: readonly Stored[]): Promise<void> {
    const own = await this.#owner;
    if (own !== null) await this.#env.storage?.save(stored.map((entry) => ({ ...entry, endpoint: own + entry.endpoint })), this.#bounds);
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

const NOTICE_TYPE: typeof NOTICE = "application/vnd.diem.notice+json";

/**
 * A snapshot as JSON for a later visit; null for one that is not stored: of a notice, whose data the page has fetched with its own
 * rights, and of more than `most` bytes. That of a series is as it was when there were no other kinds.
 */
export function toText(snapshot: Snapshot, most: number): string | null {
  const { value, mediaType, ...more } = snapshot;
  if ("points" in snapshot) return JSON.stringify(more);
  if (mediaType === NOTICE_TYPE) return null;
  if (!(value instanceof Uint8Array)) return JSON.stringify({ ...more, mediaType, value });
  if (value.length > most) return null;
  let base64 = "";
  for (const byte of value) base64 += String.fromCharCode(byte);
  return JSON.stringify({ ...more, mediaType, base64: btoa(base64) });
}

/** The snapshot of `endpoint` that `toText` has made, unconfirmed, or null when it is not one. Throws for what is not JSON. */
export function fromText(endpoint: string, stored: string, read: Parts["readSnapshot"]): Snapshot | null {
  const made = JSON.parse(stored) as Record<string, unknown> | null;
  if (made?.endpoint !== endpoint || !Number.isSafeInteger(made.version)) return null;
  const { base64, ...more } = made;
  const snapshot = made.mediaType ? { value: "base64" in made ? Uint8Array.from(atob(base64 as string), (character) => character.charCodeAt(0)) : null, ...more } : read(endpoint, { version: 0, time: "", data: made });
  return snapshot && ({ ...snapshot, confirmed: false } as Snapshot);
}
