/** The DataService: the tab's snapshots, each version fetched at most once however many views ask. */

import type { DataCache, Update } from "./cache.ts";
import { FetchScheduler, PendingFetch } from "./fetches.ts";
import type { Environment } from "./environment.ts";
import type { Answer, Bearer } from "./http.ts";
import { DataError, getJson } from "./http.ts";
import type { Observable } from "./observable.ts";
import type { Notices } from "./notices.ts";
import { Subject } from "./observable.ts";
import type { CatalogueEntry, Dataset, Entry, LoadFunction, Snapshot } from "./snapshot.ts";
import { NOTICE, readSnapshot } from "./snapshot.ts";
import { Backoff } from "./backoff.ts";

/** The longest window between attempts to fetch an endpoint. */
const FETCH_CAP_MS = 8_000;
/** The same if nobody has the announced version, which may be permanent. */
const STALE_CAP_MS = 60_000;
/** Number of consecutive attempts without the announced version that is reported to views. */
const STALE_ATTEMPTS = 2;

export interface DataOptions {
  /** Absolute base URL of the REST API. */
  rest(): Promise<string>;
  /** Sent to the REST API, and nowhere else. */
  bearer?: Bearer;
  /** The latest announced version; 0 = none. */
  told(endpoint: string): number;
  /** Whether changes of this endpoint are announced. */
  isWatched(endpoint: string): boolean;
  /** Resolves when data that may come with an update is no longer waited for: it is fetched then. */
  awaited?(endpoint: string): Promise<void> | undefined;
  /** Window in milliseconds for spreading fetches after announcements. */
  fetchWindowMs?(endpoint: string): number;
  /** Loads the data of a notice; without it, the value of a notice is its URL. */
  load?: LoadFunction | undefined;
  readonly cache: DataCache;
}

export interface Health {
  /** False while a fetch of a watched endpoint keeps failing. */
  readonly reachable: boolean;
  readonly failing: ReadonlyMap<string, DataError>;
}

export class DataService {
  readonly stats: { fetches: Record<string, number> } = { fetches: {} };
  readonly #env: Environment;
  readonly #options: DataOptions;
  readonly #fetches = new Map<string, PendingFetch>();
  #notices: Notices | undefined;
  readonly #health = new Subject<Health>({ reachable: true, failing: new Map() });
  readonly #scheduler: FetchScheduler;

  constructor(env: Environment, options: DataOptions) {
    this.#env = env;
    this.#options = options;
    this.#scheduler = new FetchScheduler(env);
    if (options.load) void this.#loader(options.load).catch(() => undefined); // it is tried again when a notice is there
  }

  get health(): Observable<Health> {
    return this.#health;
  }

  /** Resolves when snapshots of earlier visits have been read: `peek` then returns them. Never rejects; takes a second at most. */
  get ready(): Promise<void> {
    return this.#options.cache.ready;
  }

  /** The version of the data that is held; 0 = none. This is the known version of the protocol. */
  held(endpoint: string): number {
    return this.peek(endpoint)?.version ?? 0;
  }

  /** The snapshot that is held, however old; null when there is none. Of a series, it is a `Dataset`. */
  peek(endpoint: string): Dataset | null;
  peek<T>(endpoint: string): Snapshot<T> | null;
  peek(endpoint: string): Snapshot | null {
    return this.#options.cache.get(endpoint)?.snapshot ?? null;
  }

  /**
   * The snapshot, at least as new as what was announced when this was called. A subscribed endpoint is answered from the
   * cache while nothing newer was announced; a failed fetch is repeated until it succeeds. Without a subscription every
   * call revalidates by ETag and may fail. Throws `DataError` (404: no such endpoint). A deleted endpoint resolves, `gone`.
   */
  get(endpoint: string): Promise<Dataset>;
  get<T>(endpoint: string): Promise<Snapshot<T>>;
  get(endpoint: string): Promise<Snapshot> {
    const told = this.#options.told(endpoint);
    const pending = this.#fetches.get(endpoint);
    if (pending) return pending.join(told);
    const current = this.#current(endpoint);
    if (current) return Promise.resolve(current);
    const fetch = new PendingFetch();
    this.#fetches.set(endpoint, fetch);
    const snapshot = fetch.join(told);
    void this.#fetch(endpoint, fetch);
    return snapshot;
  }

  /** All endpoints the Data Service has: one request for each 5,000, not repeated. Throws `DataError`. */
  async catalogue(): Promise<CatalogueEntry[]> {
    const { readCatalogue } = await import("./catalogue.ts"); // few pages list endpoints
    const { rest, bearer } = this.#options;
    return readCatalogue(await rest(), (url) => getJson(this.#env, url, null, bearer));
  }

  /** After a resync: these must be fetched again, whatever version is held. */
  suspect(endpoints: readonly string[]): void {
    for (const endpoint of endpoints) {
      this.#options.cache.suspect(endpoint);
      this.#fetches.get(endpoint)?.suspect();
    }
    this.spread();
  }

  /** An update, or a server's reply to a subscription: holds what came with it. The data of a notice is loaded when it is asked for. */
  update(update: Update): void {
    const { load, cache } = this.#options;
    if (load && update.mediaType === NOTICE) this.#notices?.announced(update);
    else cache.update(update);
    this.settle(update.endpoint);
  }

  /** A snapshot came with an update, or was confirmed by a server: ends the fetch that is no longer needed. */
  settle(endpoint: string): void {
    const fetch = this.#fetches.get(endpoint);
    const snapshot = fetch && this.#current(endpoint);
    if (!snapshot || fetch.isSuspect) return;
    this.#fetches.delete(endpoint);
    this.#failing(endpoint, null);
    fetch.supersede(snapshot);
  }

  /** Fetches of the next two seconds start at a random moment, because many tabs are about to fetch for the same reason. */
  spread(): void {
    this.#scheduler.hold();
  }

  /** Repeats pending fetches within two seconds, because the service may have recovered. */
  expedite(): void {
    for (const fetch of this.#fetches.values()) fetch.expedite?.();
  }

  /** The snapshot that is held, if nothing newer was announced and every change would be; else null. */
  #current(endpoint: string): Snapshot | null {
    const snapshot = this.peek<unknown>(endpoint);
    return snapshot?.confirmed && !this.#isBehind(endpoint) && this.#options.isWatched(endpoint) ? snapshot : null;
  }

  /** Whether a newer version was announced than is held. */
  #isBehind(endpoint: string): boolean {
    return this.#options.told(endpoint) > this.held(endpoint);
  }

  async #fetch(endpoint: string, fetch: PendingFetch): Promise<void> {
    const { told, isWatched, cache, awaited, fetchWindowMs } = this.#options;
    const backoff = new Backoff(this.#env, FETCH_CAP_MS);
    const spread = (): Promise<void> => this.#scheduler.wait(fetch, this.#scheduler.delay(fetchWindowMs?.(endpoint)));
    await cache.ready;
    await awaited?.(endpoint);
    await spread();
    while (!fetch.isOver) {
      try {
        fetch.sent(told(endpoint));
        const done = fetch.completed(await this.#request(endpoint, fetch), told(endpoint));
        this.#failing(endpoint, null);
        if (done) break;
        if (fetch.isSuspect) cache.suspect(endpoint);
        await spread();
      } catch (error) {
        if (fetch.isOver) return;
        const failure = error instanceof DataError ? error : new DataError(String(error));
        fetch.failed();
        if (this.#mayRepeat(endpoint, failure)) {
          this.#failing(endpoint, failure);
          if (failure.status === 404 || /^(?:stale|lost)$/.test(failure.code)) {
            backoff.capMs = STALE_CAP_MS;
            if (++fetch.stale === STALE_ATTEMPTS) fetch.rejected(failure);
          }
          await this.#scheduler.wait(fetch, Math.max(backoff.next(), this.#scheduler.delay()));
          if (isWatched(endpoint)) continue;
        }
        this.#failing(endpoint, null);
        fetch.rejected(failure);
        break;
      }
    }
    if (!fetch.isOver) this.#fetches.delete(endpoint);
  }

  /**
   * Asks for what was announced: by its version, then for the latest, and where that is older than what is known, past all caches.
   * That alone may replace something newer: the store was put back to an earlier state. Throws `DataError` `stale` or `lost` when
   * that is older than what was announced, too.
   */
  async #request(endpoint: string, fetch: PendingFetch): Promise<Snapshot> {
    const { cache, bearer, load } = this.#options;
    const url = `${await this.#options.rest()}/data${endpoint}`;
    const told = this.#options.told(endpoint);
    const before = cache.get(endpoint);
    this.stats.fetches[endpoint] = (this.stats.fetches[endpoint] ?? 0) + 1;
    // The answer for a version never changes, so that a cache serves it to everybody; it may not be kept any more.
    // After a resync no version is known.
    const isNamed = !fetch.wasSuspect && !before?.suspect && this.#isBehind(endpoint);
    const queries = [...(isNamed ? [`?version=${told}`] : []), ...(fetch.stale ? [] : [""]), `?latest=${this.#env.random()}`];
    let isKept = true;
    const notice = isNamed && this.#notices?.latest(endpoint, told);
    let entry = notice as Entry; // without one there is a query
    for (const query of notice ? [] : queries) {
      const named = query.startsWith("?v");
      const held = this.held(endpoint);
      const known = named ? null : before?.etag;
      const answer = await getJson(this.#env, url + query, known, bearer, named ? "default" : undefined).catch((error: DataError) => {
        if (!named || error.status !== 404) throw error;
        isKept = false;
      });
      if (fetch.isOver) throw new DataError("stale");
      if (!answer) continue;
      entry = await this.#read(endpoint, answer, told);
      const now = cache.get(endpoint);
      if (now && now.snapshot.version > Math.max(held, entry.snapshot.version)) entry = now; // it came with an update meanwhile
      if (entry.snapshot.version >= Math.max(told, held)) break;
    }
    if (load && entry.snapshot.mediaType === NOTICE) {
      entry = await (await this.#loader(load)).loaded(entry, cache.get(endpoint)?.snapshot);
      if (fetch.isOver) throw new DataError("stale");
    }
    const { version } = entry.snapshot;
    const confirmed = version >= told;
    const snapshot = { ...entry.snapshot, confirmed };
    if (confirmed || !isKept || version > this.held(endpoint)) cache.put(endpoint, { etag: entry.etag, snapshot, size: entry.size });
    if (confirmed) return snapshot;
    throw isKept
      ? new DataError(`an old copy is served: version ${version} instead of ${told}`, 0, null, "stale")
      : new DataError(`version ${told} is lost: the store has only version ${version}`, 0, null, "lost");
  }

  /** The part for notices, which few pages load. Its first call is that of the constructor. */
  async #loader(load: LoadFunction): Promise<Notices> {
    const { Notices } = await import("./notices.ts");
    return (this.#notices ??= new Notices(this.#env, load, { DataError, readSnapshot }));
  }

  /** A fetch of a watched endpoint is repeated after a transient failure, and until an announced version is there. */
  #mayRepeat(endpoint: string, failure: DataError): boolean {
    if (failure.status === 429 || failure.status === 503) this.#scheduler.hold(failure.retryAfterMs ?? 0);
    return this.#options.isWatched(endpoint) && (failure.retriable || this.#isBehind(endpoint));
  }

  async #read(endpoint: string, { status, etag, body, content }: Answer, told: number): Promise<Entry> {
    const held = this.#options.cache.get(endpoint);
    let entry: Entry | null = held; // an update may have brought it meanwhile: then a 304 is about an older one
    if (status === 410) {
      const { tombstone } = await import("./tombstone.ts"); // few endpoints are deleted
      entry = { snapshot: tombstone(endpoint, body, held?.snapshot, told), etag: null };
    } else if (status === 200) {
      const snapshot = content ? readSnapshot(endpoint, content) : null;
      entry = snapshot && { snapshot, etag, size: content?.size };
    }
    if (entry === null) throw new DataError("another endpoint's data");
    return entry;
  }

  #failing(endpoint: string, failure: DataError | null): void {
    const failing = new Map(this.#health.value.failing);
    if (failure !== null) failing.set(endpoint, failure);
    else if (!failing.delete(endpoint)) return;
    this.#health.set({ reachable: failing.size === 0, failing });
  }
}
