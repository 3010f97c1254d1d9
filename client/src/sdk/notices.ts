/**
 * Notices whose data the page loads itself (docs/protocol.md section 2.1). Loaded with the option `load`; like `tokens.ts`, it
 * imports types alone.
 */

import type { Update } from "./cache.ts";
import type { Environment, Timer } from "./environment.ts";
import type { DataError } from "./http.ts";
import type { Entry, Content, LoadFunction, Snapshot } from "./snapshot.ts";

/** Handed over, as in `shared.ts`. */
interface Shared {
  readonly DataError: new (message: string) => DataError;
  readSnapshot(endpoint: string, content: Content): Snapshot | null;
}

/** The time that the page's function has. */
const LOAD_MS = 30_000;
/** Notices that are remembered; what is dropped beyond is fetched if its data is to be loaded. */
const MAX_NOTICES = 1_024;

export class Notices {
  readonly #env: Environment;
  readonly #load: LoadFunction;
  readonly #shared: Shared;
  /** Endpoint -> its latest notice. */
  readonly #latest = new Map<string, Entry>();

  constructor(env: Environment, load: LoadFunction, shared: Shared) {
    this.#env = env;
    this.#load = load;
    this.#shared = shared;
  }

  /** A notice came with an update. */
  announced(update: Update): void {
    const snapshot = this.#shared.readSnapshot(update.endpoint, { ...update, version: 0, time: "" });
    if (snapshot?.version === update.version) this.#remember({ snapshot, etag: `"${update.version}-json"` });
  }

  /** The latest notice that came with an update or was fetched, if it has version `told` at least. */
  latest(endpoint: string, told: number): Entry | undefined {
    const entry = this.#latest.get(endpoint);
    return entry && entry.snapshot.version >= told ? entry : undefined;
  }

  /** The entry with the data of its notice: that of `held` if this is the same version. Throws `DataError`. */
  async loaded(entry: Entry, held: Snapshot | undefined): Promise<Entry> {
    const { endpoint, version, value, gone } = entry.snapshot;
    if (gone) return entry;
    if (held?.version === version) return { ...entry, snapshot: held };
    this.#remember(entry);
    const { url } = value as { url?: unknown };
    const loaded = await this.#call(typeof url === "string" ? url : "", endpoint, version);
    return { ...entry, snapshot: { ...entry.snapshot, value: loaded } };
  }

  async #call(url: string, endpoint: string, version: number): Promise<unknown> {
    const { DataError } = this.#shared;
    const abort = new AbortController();
    let timer: Timer;
    const late = new Promise<never>((_, reject) => {
      timer = this.#env.later(LOAD_MS, () => {
        reject(new DataError("no data in time"));
        abort.abort();
      });
    });
    try {
      return await Promise.race([this.#load(url, { endpoint, version, signal: abort.signal }), late]);
    } catch (error) {
      throw error instanceof DataError ? error : new DataError(String(error));
    } finally {
      this.#env.cancel(timer);
    }
  }

  #remember(entry: Entry): void {
    this.#latest.delete(entry.snapshot.endpoint);
    this.#latest.set(entry.snapshot.endpoint, entry);
    for (const first of this.#latest.keys()) {
      if (this.#latest.size <= MAX_NOTICES) break;
      this.#latest.delete(first);
    }
  }
}
