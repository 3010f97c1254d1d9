/** Asks the metadata service where things are: what is due, in one request at a time, and again when none was answered. */

import type { Environment } from "./environment.ts";
import { DataError } from "./http.ts";
import type { Located, Metadata } from "./locate.ts";
import { believe, locate } from "./locate.ts";
import { Backoff } from "./pace.ts";
import type { Routes } from "./routes.ts";
import { Alarm } from "./timers.ts";

/** Who waits for an answer does so this long, and then does without. */
const PATIENCE_MS = 2_000;
/** After so long of nothing but older maps one is believed: the map was begun anew. */
const BELIEVE_MS = 60_000;

export interface LocatorOptions {
  /** Who knows the owners, after so many failures in a row; null: nobody any more. */
  metadata(failures: number): Promise<Metadata | null>;
  /** `older`: it goes by an older map than an answer before it. */
  answered(names: readonly string[], answer: Located, older: boolean): void;
  unanswered(names: readonly string[]): void;
  /** `metadata` gave null. */
  abandon(): void;
  /** Nothing is due now. */
  rested(): void;
}

/** The clone that the first answer chose is kept for the life of the page. */
export class Locator {
  readonly #env: Environment;
  readonly #routes: Routes;
  readonly #options: LocatorOptions;
  readonly #backoff: Backoff;
  readonly #alarm: Alarm;
  /** Which of several metadata services is asked, counted round and round. */
  #next: number;
  #isOpen = false;
  #believed: Metadata | null = null;
  #clone: number | null = null;
  #epoch = -1;
  /** When the first and the last of the older answers came; the last is never when a newer one came since. */
  #olderSince = 0;
  #olderAt = Number.NEGATIVE_INFINITY;
  #locating = false;
  /** After a failed locate: when the next is due. */
  #notBefore = 0;
  #trouble = "";
  #waiting: (() => void)[] = [];

  constructor(env: Environment, routes: Routes, options: LocatorOptions) {
    this.#env = env;
    this.#routes = routes;
    this.#options = options;
    this.#backoff = new Backoff(env);
    this.#alarm = new Alarm(env);
    this.#next = Math.floor(env.random() * 1_000);
  }

  /** Why something cannot be located; "" = it can, as far as anybody knows. */
  get trouble(): string {
    return this.#trouble;
  }

  /** When the next request is due, on the clock of `Environment.now`; Infinity: none is. */
  get due(): number {
    return Math.max(this.#routes.nextDue, this.#notBefore);
  }

  open(): void {
    this.#isOpen = true;
    this.#notBefore = 0;
    this.soon();
  }

  close(): void {
    this.#isOpen = false;
    this.#alarm.clear();
    this.#backoff.reset();
    this.#trouble = "";
  }

  /** Locates what is due after this turn of the event loop. */
  soon(): void {
    if (this.#locating || !this.#isOpen) return;
    this.#locating = true;
    this.#env.microtask(() => void this.#locateDue());
  }

  /** Resolves when what is due has been located, or is not in time. */
  rested(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#env.later(PATIENCE_MS, resolve);
      this.#waiting.push(() => {
        this.#env.cancel(timer);
        resolve();
      });
      this.soon();
    });
  }

  /** The owner that a server names, if it is one to dial. */
  believe(owner: string | null): string | null {
    const known = owner !== null && this.#believed !== null ? believe(owner, this.#believed) : null;
    if (owner !== null && known === null) this.#trouble = foreign(owner);
    return known;
  }

  /** One request at a time, so that the first one chooses the clone. */
  async #locateDue(): Promise<void> {
    while (this.#isOpen && this.#env.now() >= this.#notBefore) {
      const names = this.#routes.toLocate(this.#env.now());
      if (names.length === 0) break;
      try {
        const answer = await this.#ask(names);
        if (answer === null) break;
        this.#backoff.reset();
        this.#clone = answer.clone ?? this.#clone;
        this.#trouble = answer.foreign === null ? "" : foreign(answer.foreign);
        this.#options.answered(names, answer, this.#isOlder(answer.epoch));
      } catch (error) {
        const asked = error instanceof DataError ? error.retryAfterMs : null;
        this.#notBefore = this.#env.now() + Math.max(this.#backoff.next(), asked ?? 0);
        this.#trouble = "the metadata service does not answer";
        this.#next += 1;
        this.#options.unanswered(names);
      }
    }
    this.#locating = false;
    for (const resume of this.#waiting.splice(0)) resume();
    this.#alarm.clear();
    const delay = this.due - this.#env.now();
    if (this.#isOpen && delay < Number.POSITIVE_INFINITY) this.#alarm.set(delay, () => this.soon());
    this.#options.rested();
  }

  async #ask(names: readonly string[]): Promise<Located | null> {
    const { failures } = this.#backoff;
    const metadata = await this.#options.metadata(failures);
    this.#believed = metadata;
    if (metadata === null) {
      this.#options.abandon();
      return null;
    }
    const { services } = metadata;
    const base = services[this.#next % services.length] as string;
    return locate(this.#env, base, metadata, names, this.#clone);
  }

  #isOlder(epoch: number): boolean {
    const now = this.#env.now();
    if (epoch < this.#epoch) {
      // Who asks seldom does not know what there was between two answers.
      if (now - this.#olderAt > BELIEVE_MS) this.#olderSince = now;
      this.#olderAt = now;
      if (now - this.#olderSince < BELIEVE_MS) {
        this.#next += 1;
        return true;
      }
    }
    this.#epoch = epoch;
    this.#olderAt = Number.NEGATIVE_INFINITY;
    return false;
  }
}

const foreign = (url: string): string => `refused a server that is on another host: ${url}`;
