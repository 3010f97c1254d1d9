/** The metadata service: asks where endpoints are served, one request at a time, and trusts only hosts of the configuration. */

import { Backoff } from "./backoff.ts";
import type { Environment } from "./environment.ts";
import { DataError, postJson } from "./http.ts";
import type { Rejection } from "./messages.ts";
import type { Located, Place, Routes } from "./routes.ts";
import { ResettableTimer } from "./timers.ts";

export interface Metadata {
  /** Absolute base URLs of the metadata services, without a slash at the end; never empty. */
  readonly services: readonly string[];
  /** The host and scheme ("ws:" or "wss:") of servers that do not know their own public name. */
  readonly host: string;
  readonly scheme: string;
  /** Hosts that servers may be on. */
  readonly hosts: ReadonlySet<string>;
}

/** Asks the metadata service at `base`. Throws `DataError`. */
export async function locate(
  env: Environment,
  base: string,
  metadata: Metadata,
  endpoints: readonly string[],
  clone: number | null,
): Promise<Located> {
  const { body } = await postJson(env, `${base}/locate`, clone === null ? { endpoints } : { endpoints, clone });
  return parseLocated(body, metadata);
}

/** Reads an answer; owners that are not trusted are left out. Throws `DataError`. */
export function parseLocated(body: unknown, metadata: Metadata): Located {
  const { clone, endpoints, epoch, rejected, servers } = (body ?? {}) as Record<string, unknown>;
  if (typeof endpoints !== "object" || endpoints === null) throw new DataError("not an answer about owners");
  let foreign: string | null = null;
  const trusted = (url: unknown): string | null => {
    if (typeof url !== "string") return null;
    const known = trustedUrl(url, metadata);
    if (known === null) foreign = url;
    return known;
  };
  const places = Object.entries(endpoints as Record<string, { owner?: unknown; hot?: unknown } | null>).map(
    ([endpoint, place]): [string, Place] => [endpoint, { owner: trusted(place?.owner), hot: place?.hot === true }],
  );
  return {
    clone: Number.isSafeInteger(clone) ? (clone as number) : null,
    endpoints: new Map(places),
    rejected: (rejected ?? {}) as Record<string, Rejection>,
    servers: (Array.isArray(servers) ? servers : []).map(trusted).filter((url) => url !== null),
    foreign,
    epoch: Number(epoch),
  };
}

/**
 * The URL to dial for a server that somebody named, or null when its host is none of the configuration's. A loopback
 * address is the server's own view of itself: for this client it is at the host where the configuration came from.
 */
export function trustedUrl(url: string, { host, scheme, hosts }: Metadata): string | null {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return null;
  }
  if (!/^wss?:$/.test(parsed.protocol) || parsed.username !== "") return null;
  if (/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(parsed.hostname)) {
    return `${scheme}//${host}${parsed.port && `:${parsed.port}`}${parsed.pathname}`;
  }
  return hosts.has(parsed.hostname) ? parsed.href : null;
}

/** Who waits for an answer does so this long, and then does without. */
const ANSWER_WAIT_MS = 2_000;
/** After so long of nothing but older maps one is trusted: the map was begun anew. */
const ACCEPT_OLDER_AFTER_MS = 60_000;

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
  readonly #timer: ResettableTimer;
  /** Which of several metadata services is asked, counted round and round. */
  #next: number;
  #isOpen = false;
  #trusted: Metadata | null = null;
  #clone: number | null = null;
  #epoch = -1;
  /** When the first and the last of the older answers came; the last is never when a newer one came since. */
  #olderSince = 0;
  #olderAt = Number.NEGATIVE_INFINITY;
  #locating = false;
  /** After a failed locate: when the next is due. */
  #notBefore = 0;
  #problem = "";
  #waiting: (() => void)[] = [];

  constructor(env: Environment, routes: Routes, options: LocatorOptions) {
    this.#env = env;
    this.#routes = routes;
    this.#options = options;
    this.#backoff = new Backoff(env);
    this.#timer = new ResettableTimer(env);
    this.#next = Math.floor(env.random() * 1_000);
  }

  /** Why something cannot be located; "" = it can, as far as anybody knows. */
  get problem(): string {
    return this.#problem;
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
    this.#timer.clear();
    this.#backoff.reset();
    this.#problem = "";
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
      const timer = this.#env.later(ANSWER_WAIT_MS, resolve);
      this.#waiting.push(() => {
        this.#env.cancel(timer);
        resolve();
      });
      this.soon();
    });
  }

  /** The owner that a server names, if it is one to dial. */
  trustedUrl(owner: string | null): string | null {
    const known = owner !== null && this.#trusted !== null ? trustedUrl(owner, this.#trusted) : null;
    if (owner !== null && known === null) this.#problem = foreign(owner);
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
        this.#problem = answer.foreign === null ? "" : foreign(answer.foreign);
        this.#options.answered(names, answer, this.#isOlder(answer.epoch));
      } catch (error) {
        const retryMs = error instanceof DataError ? error.retryAfterMs : null;
        this.#notBefore = this.#env.now() + Math.max(this.#backoff.next(), retryMs ?? 0);
        this.#problem = "the metadata service does not answer";
        this.#next += 1;
        this.#options.unanswered(names);
      }
    }
    this.#locating = false;
    for (const resume of this.#waiting.splice(0)) resume();
    this.#timer.clear();
    const delay = this.due - this.#env.now();
    if (this.#isOpen && delay < Number.POSITIVE_INFINITY) this.#timer.set(delay, () => this.soon());
    this.#options.rested();
  }

  async #ask(names: readonly string[]): Promise<Located | null> {
    const { failures } = this.#backoff;
    const metadata = await this.#options.metadata(failures);
    this.#trusted = metadata;
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
      if (now - this.#olderAt > ACCEPT_OLDER_AFTER_MS) this.#olderSince = now;
      this.#olderAt = now;
      if (now - this.#olderSince < ACCEPT_OLDER_AFTER_MS) {
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
