/** Requests to the metadata services: where endpoints are served, on hosts that the configuration trusts. */

import type { Backoff } from "./backoff.ts";
import type { Environment } from "./environment.ts";
import type { Bearer, DataError } from "./http.ts";
import type { Rejection } from "./messages.ts";
import type { Located, Place, Routes } from "./routes.ts";
import type { Shared } from "./shared.ts";
import type { ResettableTimer } from "./timers.ts";

export interface Metadata {
  /** Absolute base URLs of the metadata services, without a slash at the end; never empty. */
  readonly services: readonly string[];
  /** The host and scheme ("ws:" or "wss:") of servers that do not know their own public name. */
  readonly host: string;
  readonly scheme: string;
  /** Hosts that servers may be on. */
  readonly hosts: ReadonlySet<string>;
}

/** Locates endpoints at the metadata service `base`. Throws what `request` throws, and `Error` for another answer. */
export async function locate(
  request: Shared["request"],
  env: Environment,
  base: string,
  metadata: Metadata,
  endpoints: readonly string[],
  clone: number | null,
  bearer?: Bearer,
): Promise<Located> {
  const question = JSON.stringify(clone === null ? { endpoints } : { endpoints, clone });
  const headers = { "Content-Type": "application/json" };
  const { body } = await request(env, `${base}/locate`, bearer, headers, { method: "POST", body: question });
  return parseLocated(body, metadata);
}

/** Parses an answer; servers that are not trusted are left out. Throws `Error`. */
export function parseLocated(body: unknown, metadata: Metadata): Located {
  const { clone, endpoints, epoch, rejected, servers } = (body ?? {}) as Record<string, unknown>;
  if (typeof endpoints !== "object" || endpoints === null) throw new Error("not an answer about owners");
  let untrusted: string | null = null;
  const trusted = (url: unknown): string | null => {
    if (typeof url !== "string") return null;
    const known = trustedUrl(url, metadata);
    if (known === null) untrusted = url;
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
    untrusted,
    epoch: Number.isSafeInteger(epoch) ? (epoch as number) : null,
  };
}

/**
 * The URL to dial for a server that a server or the metadata service named; null if it is not trusted. A loopback address
 * is the server's own view of itself: it is replaced by the host of the configuration. Any other host must be in `hosts`.
 * The Python client has the same rule (diem/client/routes.py); tests/cases/owner_urls.json has the cases that both pass.
 */
export function trustedUrl(url: string, { host, scheme, hosts }: Metadata): string | null {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return null;
  }
  if (!/^wss?:$/.test(parsed.protocol) || parsed.username + parsed.password) return null;
  if (/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(parsed.hostname)) {
    return `${scheme}//${host}${parsed.port && `:${parsed.port}`}${parsed.pathname}`;
  }
  return hosts.has(parsed.hostname) ? parsed.href : null;
}

/** A dial waits this long for the metadata service, then goes to the same server as before. */
const ANSWER_TIMEOUT_MS = 2_000;
/** After so long of nothing but older maps one is accepted: the map was begun anew. */
const ACCEPT_OLDER_AFTER_MS = 60_000;

/**
 * Whether an answer may replace an earlier one, by the epochs of their maps: a service may be behind the one before. The
 * Python client has the same rule (diem/links/epochs.py); tests/cases/epochs.json has the cases that both pass.
 */
export class EpochGuard {
  #epoch = -1;
  /** When the first and the last of the older answers came; the last is -Infinity when a newer one came since. */
  #olderSince = 0;
  #olderAt = Number.NEGATIVE_INFINITY;

  /** Whether to use a map of this epoch from now on; `now` is milliseconds of a monotonic clock. */
  admits(epoch: number, now: number): boolean {
    if (epoch < this.#epoch) {
      // Answers that are far apart prove nothing about the time between them.
      if (now - this.#olderAt > ACCEPT_OLDER_AFTER_MS) this.#olderSince = now;
      this.#olderAt = now;
      if (now - this.#olderSince < ACCEPT_OLDER_AFTER_MS) return false;
    }
    this.#epoch = epoch;
    this.#olderAt = Number.NEGATIVE_INFINITY;
    return true;
  }
}

export interface LocatorOptions {
  readonly shared: Shared;
  bearer: Bearer;
  /** The metadata services, after so many failures in a row; null: the configuration names none any longer. */
  metadata(failures: number): Promise<Metadata | null>;
  /** `older`: its epoch is older than a previous answer's. */
  answered(names: readonly string[], answer: Located, older: boolean): void;
  unanswered(names: readonly string[]): void;
  /** `metadata` returned null. */
  abandon(): void;
  /** Nothing is due now. */
  idle(): void;
}

/** One request at a time. The clone that the first answer chose is kept for the life of the page. */
export class Locator {
  readonly #env: Environment;
  readonly #routes: Routes;
  readonly #options: LocatorOptions;
  readonly #backoff: Backoff;
  readonly #timer: ResettableTimer;
  /** Index of the metadata service to use, modulo their number; the next one after a failure or an older answer. */
  #next: number;
  #isOpen = false;
  #metadata: Metadata | null = null;
  #clone: number | null = null;
  readonly #epochs = new EpochGuard();
  #locating = false;
  /** No request before this time, after a failed one. */
  #notBefore = 0;
  #problem = "";
  #waiting: (() => void)[] = [];

  constructor(env: Environment, routes: Routes, options: LocatorOptions) {
    this.#env = env;
    this.#routes = routes;
    this.#options = options;
    this.#backoff = new options.shared.Backoff(env);
    this.#timer = new options.shared.ResettableTimer(env);
    this.#next = Math.floor(env.random() * 1_000);
  }

  /** Why something cannot be located; "" = no problem is known. */
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
    this.locate();
  }

  close(): void {
    this.#isOpen = false;
    this.#timer.clear();
    this.#backoff.failures = 0;
    this.#problem = "";
  }

  /** Locates due endpoints after this turn of the event loop. */
  locate(): void {
    if (this.#locating || !this.#isOpen) return;
    this.#locating = true;
    this.#env.microtask(() => void this.#locateDue());
  }

  /** Resolves once due endpoints are located, or after a timeout. */
  located(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#env.later(ANSWER_TIMEOUT_MS, resolve);
      this.#waiting.push(() => {
        this.#env.cancel(timer);
        resolve();
      });
      this.locate();
    });
  }

  /** The URL to dial for an owner that a server named; null if it is not trusted. */
  trustedUrl(owner: string | null): string | null {
    const known = owner !== null && this.#metadata !== null ? trustedUrl(owner, this.#metadata) : null;
    if (owner !== null && known === null) this.#problem = untrusted(owner);
    return known;
  }

  /** One request at a time, so that the first one chooses the clone. */
  async #locateDue(): Promise<void> {
    while (this.#isOpen && this.#env.now() >= this.#notBefore) {
      const names = this.#routes.toLocate(this.#env.now());
      if (names.length === 0) break;
      try {
        const answer = await this.#request(names);
        if (answer === null) break;
        this.#backoff.failures = 0;
        this.#clone = answer.clone ?? this.#clone;
        this.#problem = answer.untrusted === null ? "" : untrusted(answer.untrusted);
        const older = answer.epoch !== null && !this.#epochs.admits(answer.epoch, this.#env.now());
        if (older) this.#next += 1;
        this.#options.answered(names, answer, older);
      } catch (error) {
        this.#notBefore = this.#env.now() + this.#backoff.next() + ((error as Partial<DataError>).retryAfterMs ?? 0);
        this.#problem = "the metadata service does not answer";
        this.#next += 1;
        this.#options.unanswered(names);
      }
    }
    this.#locating = false;
    for (const resume of this.#waiting.splice(0)) resume();
    this.#timer.clear();
    const delay = this.due - this.#env.now();
    if (this.#isOpen && delay < Number.POSITIVE_INFINITY) this.#timer.set(delay, () => this.locate());
    this.#options.idle();
  }

  async #request(names: readonly string[]): Promise<Located | null> {
    const { failures } = this.#backoff;
    const metadata = await this.#options.metadata(failures);
    this.#metadata = metadata;
    if (metadata === null) {
      this.#options.abandon();
      return null;
    }
    const { services } = metadata;
    const base = services[this.#next % services.length] as string;
    return locate(this.#options.shared.request, this.#env, base, metadata, names, this.#clone, this.#options.bearer);
  }
}

const untrusted = (url: string): string => `refused a server that is on another host: ${url}`;
