/** Joins the two services: announced versions are fetched, and held versions are the known versions of subscriptions. */

import { Backoff } from "./backoff.ts";
import { DataCache } from "./cache.ts";
import type { CollectionChange, CollectionOptions, CollectionView, OnCollectionProblem } from "./collections.ts";
import { ConfigSource } from "./config.ts";
import { DataService } from "./data.ts";
import type { Environment } from "./environment.ts";
import { browserEnvironment } from "./environment.ts";
import type { DataError } from "./http.ts";
import { getJson } from "./http.ts";
import type { Rejection } from "./messages.ts";
import { isEndpoint } from "./messages.ts";
import { guarded } from "./observable.ts";
import type { Dataset, LoadFunction, Snapshot } from "./snapshot.ts";
import type { TokenFunction, TokenSource } from "./tokens.ts";
import type { Subscription } from "./updates.ts";
import { UpdatesService } from "./updates.ts";

export interface DiemOptions {
  /** Where the configuration is, relative to the page; `/config.json` when left out. */
  readonly configUrl?: string;
  /** Sent as `Authorization: Bearer …` with every request to the Data Service. */
  readonly apiKey?: string;
  /**
   * Returns a token (a JWT) that servers ask for: called before connecting, before the last one expires, and when it is refused.
   * One call at a time; it may wait for the user to log in.
   */
  readonly token?: TokenFunction;
  /** Whether requests to the Data Service have the token in place of the API key. */
  readonly tokenForData?: boolean;
  /** Whether servers are asked to send data with updates, so that it need not be fetched; true when left out. */
  readonly data?: boolean;
  /**
   * Loads the data of a notice, as `(url, { signal }) => fetch(url, { signal }).then((response) => response.json())`, with the page's
   * own rights. What it returns is the value, which is not stored on the device. Called once a version, within the window that
   * servers ask for, and again with back-off when it fails or takes more than 30 s.
   */
  readonly load?: LoadFunction;
  /** The host's functions. Without any, and without a `document`, nothing is requested: a server renders what was read for it (`hydrate`). */
  readonly environment?: Environment;
}

export interface Stats {
  /** HTTP requests for data, per endpoint. */
  readonly fetches: Record<string, number>;
  /** Frames received, and how many of them were updates. */
  readonly frames: number;
  readonly updateFrames: number;
}

export type OnProblem = (problem: DataError | Rejection) => void;

export interface Diem {
  readonly updates: UpdatesService;
  readonly data: DataService;
  /** What the page holds of endpoints. */
  readonly cache: DataCache;
  readonly stats: Stats;
  /**
   * Subscribes, fetches, and calls `onData` with what is held, once more if that was unconfirmed and now is confirmed, and
   * with every newer version. `onProblem` is called for a subscription that was rejected, and for data that cannot be fetched;
   * without it, the first problem is a warning on the console. Returns the function that stops it. `T` is the type of the values:
   * nothing checks them. Without `T` the endpoint has a series.
   */
  watch(endpoint: string, onData: (dataset: Dataset) => void, onProblem?: OnProblem): Subscription;
  watch<T>(endpoint: string, onData: (snapshot: Snapshot<T>) => void, onProblem?: OnProblem): Subscription;
  /**
   * Watches the collection `prefix`, whose name ends with a slash, and its members. `onChange` is called when all members have
   * answered, after a second at the latest, and then once for all changes of a turn of the event loop. `onProblem` is called as that
   * of `watch`, for members as well. Members that are collections are named alone, unless `deep`. At most 1,000 are watched.
   */
  watchCollection<T = unknown>(
    prefix: string, onChange: (change: CollectionChange<T>) => void, onProblem?: OnCollectionProblem, options?: CollectionOptions,
  ): Subscription;
  /** Disconnects and saves what is held. */
  close(): void;
  /**
   * For signing out: disconnects, and forgets what is held, here and on this device, of every key. Nothing is held or repeated
   * afterwards; the next user needs a new `Diem`. Rejects when the device's store cannot be emptied.
   */
  clear(): Promise<void>;
}

/** Connects to the DIEM deployment that `configUrl` describes. One per page. */
export function createDiem({ configUrl = "/config.json", apiKey, token, tokenForData, data: inline = true, load, environment }: DiemOptions = {}): Diem {
  const env = environment ?? browserEnvironment(configUrl);
  const config = new ConfigSource(env, configUrl);
  let source: TokenSource | undefined;
  const credentials = token && (async () => {
    const { TokenSource } = await import("./tokens.ts"); // only pages with a token load it
    source ??= new TokenSource(env, token, new Backoff(env));
    return source.ready();
  });
  const cache = new DataCache(env, undefined, tokenForData || (token && inline) ? null : apiKey);
  let cleared = false;
  const data: DataService = new DataService(env, {
    rest: async () => {
      if (cleared) throw new Error("signed out");
      return (await config.get()).rest;
    },
    bearer: async () => (tokenForData ? (await credentials?.())?.token : apiKey),
    told: (endpoint) => updates.told(endpoint),
    isWatched: (endpoint) => !cleared && updates.isWatched(endpoint),
    awaited: (endpoint) => updates.replied(endpoint),
    // Where nothing is displayed yet, nobody is to wait.
    fetchWindowMs: (endpoint) => (data.held(endpoint) ? updates.fetchWindowMs(endpoint) : 0),
    load,
    cache,
  });
  const updates: UpdatesService = new UpdatesService(env, {
    server: (failures) => config.server(failures),
    metadata: (failures) => config.metadata(failures),
    credentials,
    held: (endpoint) => data.held(endpoint),
    moved: () => void config.reread().catch(() => undefined),
    resynced: (endpoints) => data.suspect(endpoints),
    ...(inline && {
      updated: (update) => data.update(update),
    }),
  });

  let refusals: Promise<void> | undefined; // most pages never load what explains them
  let opened = false;
  let wasLost = false; // only a reconnect spreads fetches, not a further connection for a new endpoint
  updates.connection.observe(({ state, retryAt }) => {
    if (retryAt && (wasLost || !opened)) {
      refusals ??= import("./refusals.ts").then(({ explain }) => explain(env, getJson, config, updates.connection, opened)).catch(() => (refusals = undefined));
    }
    if (state === "open" && wasLost && opened) data.spread();
    if (state !== "connecting") wasLost = state === "reconnecting";
    opened ||= state === "open";
  });
  let wasLive: boolean | null = null; // null: not known yet; the first time it is live is not a recovery
  updates.live.observe(({ live }) => {
    if (live && wasLive === false) data.expedite();
    wasLive = live || (wasLive && false);
  });
  let unfollow: (() => void) | null | undefined;
  void import("./lifecycle.ts").then(({ follow }) => (unfollow === null || (unfollow = follow(env, updates, cache)))).catch(() => undefined);
  updates.connect();

  const close = (): void => {
    unfollow?.();
    unfollow = null;
    updates.close();
    cache.save();
  };
  const watchEach = (endpoint: string, onData: (snapshot: never) => void, onProblem?: OnProblem): Subscription =>
    watch(updates, data, cache.loaded, endpoint, onData as (snapshot: Snapshot) => void, onProblem);
  return {
    updates,
    data,
    cache,
    stats: Object.assign(updates.stats, data.stats),
    watch: watchEach,
    watchCollection: (prefix, onChange, ...more) => {
      if (!isEndpoint(prefix) || !prefix.endsWith("/")) throw new TypeError(`not a collection: ${prefix}`);
      let view: CollectionView | null | undefined;
      void import("./collections.ts").then(({ CollectionView }) => {
        if (view !== null) view = new CollectionView(env, watchEach, prefix, onChange as (change: CollectionChange) => void, ...more);
      });
      return () => {
        view?.stop();
        view = null;
      };
    },
    close,
    clear: () => {
      cleared = true;
      const forgotten = cache.clear(); // first, or closing would save once more
      close();
      return forgotten;
    },
  };
}

function watch(
  updates: UpdatesService,
  data: DataService,
  loaded: Promise<void>,
  endpoint: string,
  onData: (snapshot: Snapshot) => void,
  onProblem: OnProblem = ({ message }) => {
    onProblem = () => undefined;
    console.warn(`DIEM: ${endpoint}: ${message}`);
  },
): Subscription {
  let stopped = false;
  let loading = false;
  let again = false;
  let shown: Snapshot | null = null;

  const show = (snapshot: Snapshot): void => {
    const before = shown;
    if (stopped || (before && !isNews(snapshot, before))) return;
    shown = snapshot;
    guarded(() => onData(snapshot));
    if (before && snapshot.version < before.version) report({ code: "lost", message: `version ${before.version} is lost: the store has only version ${snapshot.version}` });
  };
  const restore = (): void => {
    const held = data.peek<unknown>(endpoint);
    if (held) show(held);
  };
  const report = (problem: DataError | Rejection): void => {
    if (!stopped) guarded(() => onProblem(problem));
  };
  const fail = (problem: DataError): void => {
    again ||= data.health.value.failing.has(endpoint); // it is asked for again
    restore();
    report(problem);
  };
  const load = async (): Promise<void> => {
    if (loading) return void (again = true); // one request for the newest stands for any number of updates
    loading = true;
    do {
      again = false;
      await data.get<unknown>(endpoint).then(show, fail);
    } while (again && !stopped);
    loading = false;
  };
  const stop = updates.subscribe(endpoint, (change) => {
    if (change.type === "rejected") onProblem(change);
    else void load();
  });
  restore();
  void loaded.then(restore);
  void load();
  return () => {
    stopped = true;
    stop();
  };
}

/** Whether a view that shows `shown` should be given `snapshot`. */
function isNews(snapshot: Snapshot, shown: Snapshot): boolean {
  return snapshot.version !== shown.version || snapshot.gone !== shown.gone || (snapshot.confirmed && !shown.confirmed);
}
