/** Fetches under way: who waits for which request, and when a request may go out. */

import type { Dataset } from "./dataset.ts";
import type { Environment } from "./environment.ts";

/** A promise and its ends. */
class Waiters {
  resolve!: (dataset: Dataset) => void;
  reject!: (error: unknown) => void;
  readonly promise = new Promise<Dataset>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor() {
    this.promise.catch(() => undefined); // whoever asked sees the rejection; with nobody left it is no error
  }
}

/**
 * Two groups are enough: those whom any answer to the request under way satisfies, and those who asked after something
 * newer was announced. Under a burst the first group is served at every answer, so a view never starves behind a
 * version that keeps growing.
 */
export class PendingFetch {
  #now = new Waiters();
  #next: Waiters | null = null;
  #out = false;
  #needed = 0;
  #suspect = false;
  /** Ends the present delay at once, with a new one. */
  expedite: (() => void) | null = null;

  /** Joins: `told` is the version announced so far. */
  join(told: number): Promise<Dataset> {
    if (!this.#out || (told <= this.#needed && !this.#suspect)) return this.#now.promise;
    this.#next ??= new Waiters();
    return this.#next.promise;
  }

  /** A request goes out; its answer must be at least version `told`. All who wait, wait for it. */
  sent(told: number): void {
    this.#out = true;
    this.#needed = told;
    this.#suspect = false;
    const later = this.#next;
    if (later !== null) this.#now.promise.then(later.resolve, later.reject);
    this.#next = null;
  }

  /** What is held came into doubt: an answer to the request under way no longer settles it. */
  suspect(): void {
    this.#suspect = this.#out;
  }

  /** The request brought nothing. */
  failed(): void {
    this.#out = false;
  }

  /**
   * `dataset` is held after the request; `told` is the version announced by now. `done`: nothing newer is known.
   * `again`: those who waited are served, and something newer is due. `stale`: the answer is older than what was needed.
   */
  completed(dataset: Dataset, told: number): "done" | "again" | "stale" {
    this.#out = false;
    if (dataset.version < this.#needed) return "stale";
    const done = dataset.version >= told && !this.#suspect;
    this.#now.resolve(dataset);
    if (done) this.#next?.resolve(dataset);
    else this.#now = this.#next ?? new Waiters();
    this.#next = null;
    return done ? "done" : "again";
  }

  /** Gives up: everybody who waits is told why. */
  ended(error: unknown): void {
    this.#now.reject(error);
    this.#next?.reject(error);
  }
}

const SPREAD_MS = 2_000;

export class FetchScheduler {
  readonly #env: Environment;
  #notBefore = 0;
  #spreadUntil = -1;

  constructor(env: Environment) {
    this.#env = env;
  }

  /** Many tabs are about to fetch for the same reason: what starts within the next two seconds starts at a random moment. */
  spread(): void {
    this.#spreadUntil = Math.max(this.#spreadUntil, this.#env.now() + SPREAD_MS);
  }

  /** The service wants to be left alone for `ms`; what comes then is spread, too. */
  hold(ms: number): void {
    this.#notBefore = Math.max(this.#notBefore, this.#env.now() + ms);
    this.#spreadUntil = Math.max(this.#spreadUntil, this.#notBefore + SPREAD_MS);
  }

  /** The delay of a request that could go out now, milliseconds. */
  get delay(): number {
    const spread = this.#env.now() < this.#spreadUntil ? this.#env.random() * SPREAD_MS : 0;
    return this.#held + spread;
  }

  /** Resolves after `ms`; when the fetch is expedited, within two seconds, but not while the service wants to be left alone. */
  wait(fetch: PendingFetch, ms: number): Promise<void> {
    if (ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        fetch.expedite = null;
        resolve();
      };
      let due = this.#env.now() + ms;
      let timer = this.#env.later(ms, done);
      fetch.expedite = () => {
        const now = this.#env.now();
        const delay = this.#held + this.#env.random() * SPREAD_MS;
        if (now + delay >= due) return;
        due = now + delay;
        this.#env.cancel(timer);
        timer = this.#env.later(delay, done);
      };
    });
  }

  get #held(): number {
    return Math.max(0, this.#notBefore - this.#env.now());
  }
}
