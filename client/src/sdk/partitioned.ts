/**
 * Partitioned mode: one session for each server that owns a subscribed endpoint (docs/protocol.md section 3.1). Loaded only in
 * mode z-client, with locator, pool and routes; of the rest of the SDK it imports types alone (`shared.ts`).
 */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { Listener, Transport, RoutingEvents } from "./session.ts";
import type { LiveStatus } from "./liveness.ts";
import type { Metadata } from "./locator.ts";
import { Locator } from "./locator.ts";
import type { Rejection, ServerFrame } from "./messages.ts";
import type { Subject } from "./observable.ts";
import { ServerPool } from "./pool.ts";
import type { Located, RoutingAction } from "./routes.ts";
import { Routes } from "./routes.ts";
import type { Shared } from "./shared.ts";

/**
 * Fails static: while the metadata service does not answer, everything stays where it is and is dialled where it was.
 */
export class PartitionedTransport implements Transport {
  readonly #shared: Shared;
  readonly #env: Environment;
  readonly #listener: Listener;
  readonly #routes: Routes;
  readonly #locator: Locator;
  readonly #pool: ServerPool;
  readonly status: Subject<ConnectionStatus>;
  readonly live: Subject<LiveStatus>;
  readonly #publishSoon: () => void;
  /** When the accepted token expires, which tells it from others; 0 = there is none. */
  #expires = 0;
  #isOpen = false;

  /** `abandon` is called when the configuration no longer names a metadata service. */
  constructor(
    shared: Shared,
    env: Environment,
    listener: Listener,
    metadata: (failures: number) => Promise<Metadata | null>,
    abandon: () => void,
  ) {
    this.#shared = shared;
    this.#env = env;
    this.#listener = listener;
    this.status = new shared.Subject(combinedStatus([], ""));
    this.live = new shared.Subject(shared.OFFLINE);
    this.#routes = new Routes((failures) => env.random() * shared.windowMs(failures));
    this.#publishSoon = shared.soon(env, () => this.#publish());
    this.#locator = new Locator(env, this.#routes, {
      shared,
      metadata,
      bearer: async () => (await listener.credentials?.())?.token,
      answered: (names, answer, older) => this.#answered(names, answer, older),
      unanswered: (names) => this.#unanswered(names),
      abandon,
      idle: () => this.#publishSoon(),
    });
    const frame = (frame: ServerFrame | null): void => {
      listener.frame(frame);
      if (frame?.type === "authenticated") this.#authenticated(frame.expires);
    };
    this.#pool = new ServerPool(shared, env, { ...listener, frame }, {
      select: (url, listed) => this.#select(url, listed),
      routing: (url) => this.#routing(url),
      lost: (url) => this.#apply(this.#routes.lost(url)),
      suspected: (url) => this.#suspect(url),
      changed: () => this.#publishSoon(),
    });
  }

  subscribe(endpoint: string): void {
    this.#routes.add(endpoint, this.#env.now());
    this.#locator.locate();
    this.#publishSoon();
  }

  unsubscribe(endpoint: string): void {
    this.#apply(this.#routes.remove(endpoint, this.#env.now()));
  }

  isRefused(endpoint: string): boolean {
    return this.#routes.isRefused(endpoint) || this.#pool.get(this.#routes.url(endpoint))?.isRefused(endpoint) === true;
  }

  isLive(endpoint: string): boolean {
    return this.#routes.isRegistered(endpoint) && this.#pool.get(this.#routes.url(endpoint))?.isLive(endpoint) === true;
  }

  connect(): void {
    this.#isOpen = true;
    for (const [, session] of this.#pool.sessions) session.connect();
    this.#locator.open();
    this.#publish();
  }

  close(): void {
    this.#isOpen = false;
    this.#locator.close();
    for (const [url] of this.#pool.sessions) this.#pool.drop(url);
    this.#routes.restart(this.#env.now());
    this.#publish();
  }

  #authenticated(expires: number): void {
    if (expires === this.#expires) return;
    this.#expires = expires;
    this.#routes.retryForbidden(this.#env.now());
    this.#locator.locate();
  }

  #answered(names: readonly string[], answer: Located, older: boolean): void {
    const open = this.#pool.sessions.filter(([, session]) => session.status.value.state === "open");
    const live = new Map(open.map(([url, session]) => [url, session.live.value.live]));
    this.#apply(this.#routes.located(names, answer, live, this.#env.now(), older));
    if (!older) this.#setListed(names, answer);
    for (const name of names) {
      const rejection = answer.rejected[name];
      if (rejection && this.#routes.isRefused(name)) this.#listener.refused(name, rejection);
    }
  }

  #unanswered(names: readonly string[]): void {
    this.#routes.unanswered(names, this.#env.now());
    this.#setListed(names, null);
  }

  /** Passes on to the servers of `names`, once each, whether an answer lists them. */
  #setListed(names: readonly string[], answer: Located | null): void {
    const servers = new Map<string, boolean>();
    for (const name of names) {
      const url = this.#routes.url(name);
      if (url === null) continue;
      const place = answer?.endpoints.get(name);
      const listed = place?.hot ? answer?.servers.includes(url) === true : place?.owner === url;
      servers.set(url, listed || servers.get(url) === true);
    }
    for (const [url, listed] of servers) this.#pool.setListed(url, listed);
  }

  #apply(actions: readonly RoutingAction[]): void {
    for (const { kind, endpoint, url } of actions) {
      if (kind === "join") this.#pool.session(url).subscribe(endpoint);
      else this.#pool.get(url)?.unsubscribe(endpoint);
    }
    this.#pool.closeIdle((url) => this.#routes.uses(url));
    this.#locator.locate();
    this.#publishSoon();
  }

  #routing(url: string): RoutingEvents {
    const { now } = this.#env;
    return {
      subscribed: (names) => this.#apply(this.#routes.registered(url, names, now())),
      refused: (refused) => this.#refused(url, refused),
      moved: (names, owner) => this.#apply(this.#routes.moved(url, names, this.#locator.trustedUrl(owner), now())),
    };
  }

  /** The URL to dial, after locating its endpoints unless the server was just listed. */
  async #select(url: string, listed: boolean): Promise<string> {
    if (!listed) {
      this.#suspect(url);
      await this.#locator.located();
      if (!this.#routes.uses(url)) throw new Error("no endpoint is there");
    }
    return url;
  }

  #refused(url: string, refused: readonly [string, Rejection][]): void {
    const actions = refused.flatMap(([endpoint, rejection]) => {
      if (rejection.code === "not_owner") {
        return this.#routes.notOwner(url, endpoint, this.#locator.trustedUrl(rejection.owner ?? null), this.#env.now());
      }
      // The views were notified when it was first refused for the limit.
      const known = this.#routes.isRefused(endpoint);
      const isLimit = rejection.code === "limit";
      const now = this.#env.now();
      const actions = isLimit ? this.#routes.overLimit(url, endpoint, now) : this.#routes.registered(url, [endpoint], now);
      if (!isLimit || (!known && this.#routes.isRefused(endpoint))) this.#listener.refused(endpoint, rejection);
      return actions;
    });
    this.#apply(actions);
  }

  #suspect(url: string): void {
    this.#routes.suspect(url, this.#env.now());
    this.#locator.locate();
  }

  #publish(): void {
    const { OFFLINE, sameLive } = this.#shared;
    const status = this.#summary();
    if (!sameStatus(status, this.status.value)) this.status.set(status);
    const live = this.#isOpen ? combinedLiveness(this.#endpoints(), this.#pool.sessions.map(([, session]) => session.live.value)) : OFFLINE;
    if (!sameLive(live, this.live.value)) this.live.set(live);
  }

  #summary(): ConnectionStatus {
    const { mode } = this.status.value;
    if (!this.#isOpen) return { ...combinedStatus([], mode), state: "closed", code: 1000 };
    const needed = this.#pool.sessions.filter(([url]) => this.#routes.uses(url)).map(([, session]) => session.status.value);
    if (this.#routes.hasUnplaced) needed.push(this.#locating());
    if (this.#routes.hasUnregistered) needed.push(combinedStatus([], mode)); // a connection that is open is not enough: its server has to answer
    return combinedStatus(needed, mode);
  }

  /** Unlocated endpoints count as a connection not open yet. */
  #locating(): ConnectionStatus {
    const { due, problem } = this.#locator;
    const retryAt = due > this.#env.now() && due < Number.POSITIVE_INFINITY ? due : null;
    const isFirst = problem === "" && retryAt === null;
    const reason = problem || (isFirst ? "" : "no server has some of the endpoints now");
    return { state: isFirst ? "connecting" : "reconnecting", code: null, reason, retryAt, server: "", mode: "" };
  }

  /** Every endpoint, and whether it is live. */
  *#endpoints(): Iterable<[string, boolean]> {
    for (const endpoint of this.#routes.endpoints) {
      yield [endpoint, this.isLive(endpoint)];
    }
  }
}

const SEVERITY = { open: 0, connecting: 1, reconnecting: 2, closed: 3 };

/** The worst of the statuses, `connecting` without any. `server` lists all servers, `mode` is the last known one by default. */
export function combinedStatus(needed: readonly ConnectionStatus[], mode: string): ConnectionStatus {
  const worst = needed.reduce((a, b) => (SEVERITY[b.state] > SEVERITY[a.state] ? b : a), needed[0] as ConnectionStatus);
  const retries = needed.flatMap(({ retryAt }) => retryAt ?? []);
  return {
    state: worst?.state ?? "connecting",
    code: worst?.code ?? null,
    reason: worst?.reason ?? "",
    retryAt: retries.length > 0 ? Math.min(...retries) : null,
    server: [...new Set(needed.map(({ server }) => server))].filter(Boolean).sort().join(", "),
    mode: needed.find((status) => status.mode)?.mode ?? mode,
  };
}

/** Live while any endpoint is; the others are the affected ones. `since` is that of the first session with the same liveness. */
export function combinedLiveness(endpoints: Iterable<[string, boolean]>, sessions: readonly LiveStatus[]): LiveStatus {
  const affected = new Set<string>();
  let count = 0;
  for (const [endpoint, isLive] of endpoints) {
    count += 1;
    if (!isLive) affected.add(endpoint);
  }
  const live = affected.size < count;
  const since = sessions.find((session) => session.live === live)?.since ?? null;
  return { live, since, affected: live ? affected : new Set() };
}

export function sameStatus(a: ConnectionStatus, b: ConnectionStatus): boolean {
  return (Object.keys(a) as (keyof ConnectionStatus)[]).every((key) => a[key] === b[key]);
}
