/** Exponential backoff with full jitter, and a token bucket for each server. */

import type { Environment } from "./environment.ts";

const BASE_MS = 500;
export const CAP_MS = 30_000;

/** A random delay in milliseconds within the protocol's window after so many failures: 0.5 s, doubled, at most 30 s. */
export function jitter(random: () => number, failures: number): number {
  return random() * windowMs(failures, CAP_MS);
}

const windowMs = (failures: number, capMs: number): number => Math.min(capMs, BASE_MS * 2 ** Math.min(failures, 30));

/** Delays drawn uniformly from a window that doubles from half a second to `capMs` (full jitter). */
export class Backoff {
  /** Failures since the last reset. */
  failures = 0;
  readonly #env: Environment;
  /** No window is longer. */
  capMs: number;
  /** When the outage began, if it is one: no window is longer than it has lasted, or half a second. */
  since = -Infinity;

  constructor(env: Environment, capMs = CAP_MS) {
    this.#env = env;
    this.capMs = capMs;
  }

  /** The next delay in milliseconds. A given `window` replaces the usual one this time; the failure counts all the same. */
  next(window?: number | null): number {
    const bound = window ?? Math.min(windowMs(this.failures, this.capMs), Math.max(BASE_MS, this.#env.now() - this.since));
    this.failures += 1;
    return this.#env.random() * bound;
  }

  /** The last failure was none. */
  refund(): void {
    this.failures -= 1;
  }

  reset(): void {
    this.failures = 0;
  }
}

/** Three quarters of a server's burst (20 messages, more with many subscriptions), and a message every 0.7 s instead of 0.6. */
const BURST = 15;
const BURST_PER_SUBSCRIPTION = 0.045;
const INTERVAL_MS = 700;
/** So many names in a message count as one message more. */
const NAMES_A_MESSAGE = 50;

/** Of each host, which has one address: server -> when its permits are all there again, if they are not. */
const HOSTS = new WeakMap<Environment, Map<string, number>>();

/** What a server takes of this host, charged as it charges. Like the server's count it outlives connections. */
export class TokenBucket {
  readonly #env: Environment;
  readonly #server: string;
  readonly #burst: number;
  readonly #fullAt: Map<string, number>;

  /** `server` is what it calls itself, `subscriptions` how many it allows. */
  constructor(env: Environment, server: string, subscriptions: number) {
    this.#env = env;
    this.#server = server;
    this.#burst = Math.max(BURST, BURST_PER_SUBSCRIPTION * subscriptions);
    this.#fullAt = HOSTS.get(env) ?? new Map<string, number>();
    HOSTS.set(env, this.#fullAt);
  }

  /** Milliseconds until a permit is there; 0 = now. */
  get wait(): number {
    return Math.max(0, Math.ceil(this.#missing - (this.#burst - 1) * INTERVAL_MS));
  }

  /** Uses what a message with so many names costs; call it only when `wait` is 0. */
  take(names: number): void {
    this.#use(1 + Math.floor(names / NAMES_A_MESSAGE));
  }

  /** The server says that there is nothing left: others of this address may have used it. */
  drain(): void {
    this.#use(this.#burst - this.#missing / INTERVAL_MS);
  }

  /** Milliseconds until all are there. */
  get #missing(): number {
    return Math.max(0, (this.#fullAt.get(this.#server) ?? 0) - this.#env.now());
  }

  #use(permits: number): void {
    const now = this.#env.now();
    this.#fullAt.set(this.#server, now + this.#missing + permits * INTERVAL_MS);
    for (const [server, at] of this.#fullAt) if (at <= now) this.#fullAt.delete(server);
  }
}
