/** Everything the SDK takes from its host: clocks, timers, randomness, sockets, HTTP and storage. Tests inject their own. */

import { clientId, digest, withClient } from "./identity.ts";
import type { Store } from "./store.ts";
import { IndexedStore, NAME } from "./store.ts";

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
  json(): Promise<unknown>;
}

export interface HttpOptions {
  readonly headers: Record<string, string>;
  readonly signal: AbortSignal;
  readonly cache: "no-store";
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
  /** Takes an error thrown by a callback of the application, so that it reaches nobody else. */
  report(error: unknown): void;
  socket(url: string, protocol: string): Socket;
  fetch(url: string, options: HttpOptions): Promise<HttpResponse>;
  /** A one-way digest of a text. Null, or left out, where the host has none: what a key may read is then not kept. */
  digest?(text: string): Promise<string | null>;
  /** Null where the host has none or forbids it: the SDK then works without. */
  readonly storage: Store | null;
  /** What relative URLs are resolved against. */
  readonly baseUrl: string;
}

/** The environment of a browser page. What is kept of the deployment at `configUrl` is kept apart from that of any other. */
export function browserEnvironment(configUrl = "/config.json"): Environment {
  const client = clientId(orNull(() => window.sessionStorage));
  orNull(() => dropOld(window.localStorage));
  return {
    now: () => performance.now(),
    wall: () => Date.now(),
    random: () => Math.random(),
    later: (ms, run) => setTimeout(run, ms),
    cancel: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
    microtask: (run) => queueMicrotask(run),
    report: (error) => reportError(error),
    socket: (url, protocol) => new WebSocket(withClient(url, client), [protocol]) as Socket,
    fetch: (url, options) => fetch(url, options),
    digest,
    storage: orNull(() => new IndexedStore(window.indexedDB, databaseOf(configUrl))),
    baseUrl: document.baseURI,
  };
}

/** Versions and data of two deployments do not compare, though their endpoints may have the same names. */
function databaseOf(configUrl: string): string {
  const { href } = new URL(configUrl, document.baseURI);
  return href === `${location.origin}/config.json` ? NAME : `${NAME} ${href}`;
}

function orNull<T>(get: () => T): T | null {
  try {
    return get(); // throws where cookies are blocked
  } catch {
    return null;
  }
}

/** Until version 0.1 the datasets were in local storage. */
function dropOld(storage: Storage): void {
  for (const key of Object.keys(storage)) if (key.startsWith("diem:")) storage.removeItem(key);
}
