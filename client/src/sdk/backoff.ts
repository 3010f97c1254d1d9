/**
 * Exponential backoff with full jitter, and a token bucket for each server; in Python: diem/client/backoff.py.
 * Fetches (data.ts), links of a pool (pool.ts) and servers' `retry=` (codes.ts, http.ts) have their own caps.
 */

import type { Environment } from "./environment.ts";
import { MAX_NAMES } from "./messages.ts";

const BASE_MS = 500;
export const CAP_MS = 30_000;

/** The bound in milliseconds of a random delay after so many failures: 0.5 s, doubled, at most `capMs`. */
export const windowMs = (failures: number, capMs = CAP_MS): number => Math.min(capMs, BASE_MS * 2 ** Math.min(failures, 30));

/** Delays drawn uniformly from a window that doubles from half a second to `capMs` (full jitter). */
export class Backoff {
  /** Failures in a row; 0 begins with the shortest window again. */
  failures = 0;
  readonly #env: Environment;
  /** The longest window, unless a server asks for a longer one. */
  capMs: number;
  /** When the outage began: no window is longer than it has lasted, but at least half a second. */
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
}

/** Three quarters of a server's burst: 20 messages, or enough to subscribe twice to everything it allows. */
const BURST = 15;
/** A message every 0.7 s in the long run; servers take one every 0.6 s. */
const INTERVAL_MS = 700;
/** So many names in a message count as one message more. */
const NAMES_PER_MESSAGE = 50;

/** For each host, which has one address: server -> when its bucket is full again; full ones are not kept. */
const HOSTS = new WeakMap<Environment, Map<string, number>>();

/** The messages that this host may send to a server, charged as servers charge. Like the server's count it outlives connections. */
export class TokenBucket {
  readonly #env: Environment;
  readonly #server: string;
  readonly #burst: number;
  readonly #fullAt: Map<string, number>;

  /** `server` is its name in the `welcome`, `subscriptions` how many it allows. */
  constructor(env: Environment, server: string, subscriptions: number) {
    this.#env = env;
    this.#server = server;
    this.#burst = Math.max(BURST, 1.5 * (Math.ceil(subscriptions / MAX_NAMES) + Math.floor(subscriptions / NAMES_PER_MESSAGE)));
    this.#fullAt = HOSTS.get(env) ?? new Map<string, number>();
    HOSTS.set(env, this.#fullAt);
  }

  /** Milliseconds until a message may be sent; 0 = now. */
  get wait(): number {
    return Math.max(0, Math.ceil(this.#missing - (this.#burst - 1) * INTERVAL_MS));
  }

  /** Counts a message with so many names; call it only when `wait` is 0. */
  charge(names: number): void {
    this.#use(1 + Math.floor(names / NAMES_PER_MESSAGE));
  }

  /** Empties the bucket, because the server closed with 4003: other clients of the address may have used it up. */
  drain(): void {
    this.#use(this.#burst - this.#missing / INTERVAL_MS);
  }

  /** Milliseconds until the bucket is full. */
  get #missing(): number {
    return Math.max(0, (this.#fullAt.get(this.#server) ?? 0) - this.#env.now());
  }

  #use(tokens: number): void {
    const now = this.#env.now();
    this.#fullAt.set(this.#server, now + this.#missing + tokens * INTERVAL_MS);
    for (const [server, at] of this.#fullAt) if (at <= now) this.#fullAt.delete(server);
  }
}
