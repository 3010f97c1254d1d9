/** Everything the SDK takes from its host: clocks, timers, randomness, sockets, HTTP and storage. Tests inject their own. */

import { orNull } from "./json.ts";
import type { Store } from "./store.ts";

/** The part of the browser's WebSocket that the SDK uses. */
export interface Socket {
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  send(text: string): void;
  close(): void;
}

/** The part of a fetch Response that the SDK uses. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
  arrayBuffer(): Promise<ArrayBuffer>;
}

export interface HttpOptions {
  readonly headers: Record<string, string>;
  readonly signal: AbortSignal;
  readonly cache: "no-store" | "default";
  /** Whether anything answers at all; the answer itself is unreadable. */
  readonly mode?: "no-cors";
  /** GET when left out. */
  readonly method?: "POST";
  readonly body?: string;
}

export type Timer = unknown;

export interface Environment {
  /** Monotonic time in milliseconds. */
  now(): number;
  /** Unix time in milliseconds. */
  wall(): number;
  /** Uniform in [0, 1). */
  random(): number;
  later(ms: number, run: () => void): Timer;
  cancel(timer: Timer): void;
  microtask(run: () => void): void;
  /** Reports an error thrown by a callback of the application, so that it stops nothing else. */
  report(error: unknown): void;
  socket(url: string, protocol: string): Socket;
  /** The page's random identity, for servers that record traffic; else each connection counts as a page. */
  readonly client?: string;
  fetch(url: string, options: HttpOptions): Promise<HttpResponse>;
  /** A one-way digest of a text. Null, or left out, where the host has none: what a key may read is then not stored. */
  digest?(text: string): Promise<string | null>;
  /** Null where the host has none or forbids it: the SDK then works without. */
  readonly storage: Store | null;
  /** Base of relative URLs. */
  readonly baseUrl: string;
}

/**
 * The environment of a browser page; without a `document`, as on a server that renders pages, timers never fire, and requests are not
 * sent. Datasets of the deployment at `configUrl` are stored apart from those of any other.
 */
export function browserEnvironment(configUrl = "/config.json"): Environment {
  const page = globalThis.document as Document | undefined;
  return {
    now: () => performance.now(),
    wall: () => Date.now(),
    random: () => Math.random(),
    later: (ms, run) => page && setTimeout(run, ms),
    cancel: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
    microtask: (run) => queueMicrotask(run),
    report: (error) => reportError(error),
    socket: (url, protocol) => new WebSocket(url, protocol) as Socket,
    // Both throw where cookies are blocked.
    client: clientId(orNull(() => sessionStorage)),
    fetch: (url, options) => (page ? fetch(url, options) : Promise.race([])),
    digest: (text) => import("./store.ts").then(({ digest }) => digest(text)),
    storage: orNull(() => pageStore(indexedDB, configUrl)),
    baseUrl: page?.baseURI ?? "file:/",
  };
}

/** The store of a page, loaded beside its first requests. */
function pageStore(factory: IDBFactory, configUrl: string): Store {
  const store = import("./store.ts").then(({ IndexedStore, databaseOf }) => new IndexedStore(factory, databaseOf(configUrl)));
  store.catch(() => undefined); // `load` rejects
  return { load: () => store.then((loaded) => loaded.load()), save: (...changes) => store.then((loaded) => loaded.save(...changes)) };
}

/** Whether this is a page: a server that renders pages has no document, and neither connects nor fetches. */
export const isPage = (): boolean => !!globalThis.document;

/** The part of `sessionStorage` that the SDK uses. */
export interface KeyValueStore {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

const KEY = "diem.client";

/** The page's random identity (docs/protocol.md section 1): the same after a reload where `storage` (of the session) keeps it. */
export function clientId(storage: KeyValueStore | null): string {
  let id = hex(crypto.getRandomValues(new Uint8Array(16)));
  try {
    const kept = storage?.getItem(KEY);
    if (kept?.length === 32) id = kept; // hexadecimal digits
    else storage?.setItem(KEY, id);
  } catch {
    // Storage that is full, or forbidden.
  }
  return id;
}

const hex = (bytes: Uint8Array): string => bytes.reduce((digits, byte) => digits + (byte + 256).toString(16).slice(1), "");
