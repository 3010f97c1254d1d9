/** The two ways the SDK holds itself back: full-jitter exponential delays, and a token bucket for what it sends. */

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
  forgive(): void {
    this.failures -= 1;
  }

  reset(): void {
    this.failures = 0;
  }
}

/** `burst` permits at once, then one every `intervalMs`. */
export class Permits {
  #level: number;
  #at: number;
  readonly #burst: number;
  readonly #intervalMs: number;

  constructor(burst: number, intervalMs: number, now: number) {
    this.#burst = burst;
    this.#intervalMs = intervalMs;
    this.#level = burst;
    this.#at = now;
  }

  /** Milliseconds until a permit is there; 0 = now. */
  wait(now: number): number {
    this.#level = Math.min(this.#burst, this.#level + (now - this.#at) / this.#intervalMs);
    this.#at = now;
    return this.#level >= 1 ? 0 : Math.ceil((1 - this.#level) * this.#intervalMs);
  }

  /** Uses a permit; call it only after `wait` gave 0. */
  take(): void {
    this.#level -= 1;
  }

  /** The other side counts differently: as if a whole burst had been used beyond the last permit. */
  drain(): void {
    this.#level = 1 - this.#burst;
  }
}
