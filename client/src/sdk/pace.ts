/** The two ways the SDK holds itself back: full-jitter exponential delays, and a token bucket for what it sends. */

const BASE_MS = 500;
export const CAP_MS = 30_000;

/** A random delay in milliseconds within the protocol's window after so many failures: 0.5 s, doubled, at most 30 s. */
export function jitter(random: () => number, failures: number): number {
  return random() * Math.min(CAP_MS, BASE_MS * 2 ** Math.min(failures, 30));
}

/** Delays drawn uniformly from a window that doubles from `baseMs` to `capMs` (full jitter). */
export class Backoff {
  #failures = 0;
  readonly #random: () => number;
  readonly #baseMs: number;
  /** No window is longer. */
  capMs: number;

  constructor(random: () => number, baseMs: number, capMs: number) {
    this.#random = random;
    this.#baseMs = baseMs;
    this.capMs = capMs;
  }

  /** Failures since the last reset. */
  get failures(): number {
    return this.#failures;
  }

  /** The next delay in milliseconds. A given `windowMs` replaces the window this time; the failure counts all the same. */
  next(windowMs?: number | null): number {
    const window = windowMs ?? Math.min(this.capMs, this.#baseMs * 2 ** Math.min(this.#failures, 30));
    this.#failures += 1;
    return this.#random() * window;
  }

  /** The last failure was none. */
  forgive(): void {
    this.#failures -= 1;
  }

  reset(): void {
    this.#failures = 0;
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
