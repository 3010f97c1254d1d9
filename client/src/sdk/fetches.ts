/** Pending fetches: callers waiting for requests, and the times when requests may be sent. */

import type { Environment } from "./environment.ts";
import type { Snapshot } from "./snapshot.ts";

/** A promise, and the functions that end it. */
class Deferred {
  resolve!: (snapshot: Snapshot) => void;
  reject!: (error: unknown) => void;
  readonly promise = new Promise<Snapshot>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor() {
    this.promise.catch(() => undefined); // callers see the rejection; without any it is not an error
  }
}

/**
 * Two groups of callers are enough: those that any answer to the pending request satisfies, and those that came after
 * something newer was announced. Under a burst the first group is served at every answer, so a view never starves behind
 * a version that keeps growing.
 */
export class PendingFetch {
  #now = new Deferred();
  #next: Deferred | null = null;
  #isPending = false;
  #needed = 0;
  /** Attempts with an older version than announced, or no result. */
  stale = 0;
  /** Since the last request was sent, a resync has come. */
  isSuspect = false;
  /** True if there was one before. */
  wasSuspect = false;
  /** True if the snapshot came with an update, so no request is needed. */
  isOver = false;
  /** Replaces the present delay by a shorter one. */
  expedite: (() => void) | null = null;

  /** Waits for the snapshot; `told` is the version announced so far. */
  join(told: number): Promise<Snapshot> {
    if (this.stale > 0 && told > this.#needed) {
      this.stale = 0; // it is another version that is asked for now
      this.expedite?.();
    }
    if (!this.#isPending || (told <= this.#needed && !this.isSuspect)) return this.#now.promise;
    this.#next ??= new Deferred();
    return this.#next.promise;
  }

  /** A request is sent; its answer must be at least version `told`. All callers wait for it. */
  sent(told: number): void {
    this.wasSuspect = this.isSuspect;
    this.#isPending = true;
    this.#needed = told;
    this.isSuspect = false;
    const later = this.#next;
    if (later !== null) this.#now.promise.then(later.resolve, later.reject);
    this.#next = null;
  }

  /** The endpoint must be fetched again: an answer to the pending request is not enough. */
  suspect(): void {
    this.isSuspect = true;
  }

  /** The request failed. */
  failed(): void {
    this.#isPending = false;
  }

  /**
   * `snapshot` is held after the request, and as new as was needed; `told` is the version announced by now. Returns whether nothing
   * newer is due: the callers are served in any case.
   */
  completed(snapshot: Snapshot, told: number): boolean {
    this.#isPending = false;
    const done = snapshot.version >= told && !this.isSuspect;
    this.#now.resolve(snapshot);
    if (done) this.#next?.resolve(snapshot);
    else this.#now = this.#next ?? new Deferred();
    this.#next = null;
    return done;
  }

  /** The snapshot came with an update: all callers are served. */
  supersede(snapshot: Snapshot): void {
    this.isOver = true;
    this.#now.resolve(snapshot);
    this.#next?.resolve(snapshot);
  }

  /** All callers get the error; later ones wait for the next attempt, if there is one. */
  rejected(error: unknown): void {
    this.#now.reject(error);
    this.#next?.reject(error);
    this.#now = new Deferred();
    this.#next = null;
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

  /**
   * Sends nothing for `ms`, as the service asked. What starts within two seconds after that starts at a random moment, because many
   * tabs are about to fetch for the same reason.
   */
  hold(ms = 0): void {
    this.#notBefore = Math.max(this.#notBefore, this.#env.now() + ms);
    this.#spreadUntil = Math.max(this.#spreadUntil, this.#notBefore + SPREAD_MS);
  }

  /** Delay of a request in milliseconds, spread over `windowMs` at least. */
  delay(windowMs = 0): number {
    const spread = this.#env.now() < this.#spreadUntil ? SPREAD_MS : 0;
    return this.#held + this.#env.random() * Math.max(spread, windowMs);
  }

  /** Resolves after `ms`; when the fetch is expedited, within two seconds, but not before the time that the service asked for. */
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
