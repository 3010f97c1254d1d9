/** One endpoint's fetch: who waits for the request under way, and who for the one after it. */

import type { Dataset } from "./dataset.ts";

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
export class Flight {
  #now = new Waiters();
  #next: Waiters | null = null;
  #out = false;
  #needed = 0;
  #doubted = false;
  /** Ends the present delay at once, with a new one. */
  hurry: (() => void) | null = null;

  /** Joins: `told` is the version announced so far. */
  join(told: number): Promise<Dataset> {
    if (!this.#out || (told <= this.#needed && !this.#doubted)) return this.#now.promise;
    this.#next ??= new Waiters();
    return this.#next.promise;
  }

  /** A request goes out; its answer must be at least version `told`. All who wait, wait for it. */
  departed(told: number): void {
    this.#out = true;
    this.#needed = told;
    this.#doubted = false;
    const later = this.#next;
    if (later !== null) this.#now.promise.then(later.resolve, later.reject);
    this.#next = null;
  }

  /** What is held came into doubt: an answer to the request under way no longer settles it. */
  doubt(): void {
    this.#doubted = this.#out;
  }

  /** The request brought nothing. */
  failed(): void {
    this.#out = false;
  }

  /**
   * `dataset` is held after the request; `told` is the version announced by now. `done`: nothing newer is known.
   * `again`: those who waited are served, and something newer is due. `stale`: the answer is older than what was needed.
   */
  landed(dataset: Dataset, told: number): "done" | "again" | "stale" {
    this.#out = false;
    if (dataset.version < this.#needed) return "stale";
    const done = dataset.version >= told && !this.#doubted;
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
