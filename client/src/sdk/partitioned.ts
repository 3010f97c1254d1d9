/** Partitioned mode: one session for each server that owns something wanted, kept in step with what the metadata service says. */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { DataError } from "./http.ts";
import type { Listener, Transport, RoutingEvents } from "./session.ts";
import type { LiveStatus } from "./liveness.ts";
import { OFFLINE, sameLive } from "./liveness.ts";
import type { Metadata } from "./locator.ts";
import { Locator } from "./locator.ts";
import type { Rejection } from "./messages.ts";
import { Subject } from "./observable.ts";
import { ServerPool } from "./pool.ts";
import type { Located, RoutingAction } from "./routes.ts";
import { Routes } from "./routes.ts";
import { soon } from "./timers.ts";

/**
 * Fails static: while the metadata service does not answer, everything stays where it is and is dialled where it was.
 */
export class PartitionedTransport implements Transport {
  readonly #env: Environment;
  readonly #listener: Listener;
  readonly #routes: Routes;
  readonly #locator: Locator;
  readonly #pool: ServerPool;
  readonly status = new Subject<ConnectionStatus>(combinedStatus([], ""));
  readonly live = new Subject<LiveStatus>(OFFLINE);
  readonly #publishSoon: () => void;
  #isOpen = false;

  /** `abandon` is called when the configuration names no metadata service any more. */
  constructor(
    env: Environment,
    listener: Listener,
    metadata: (failures: number) => Promise<Metadata | null>,
    abandon: () => void,
  ) {
    this.#env = env;
    this.#listener = listener;
    this.#routes = new Routes(() => env.random());
    this.#publishSoon = soon(env, () => this.#publish());
    this.#locator = new Locator(env, this.#routes, {
      metadata,
      answered: (names, answer, older) => this.#answered(names, answer, older),
      unanswered: (names) => this.#unanswered(names),
      abandon,
      rested: () => this.#publishSoon(),
    });
    this.#pool = new ServerPool(env, listener, {
      dial: (url, named) => this.#dial(url, named),
      routing: (url) => this.#routing(url),
      lost: (url) => this.#apply(this.#routes.lost(url)),
      suspected: (url) => this.#suspect(url),
      changed: () => this.#publishSoon(),
    });
  }

  want(endpoint: string): void {
    this.#routes.want(endpoint, this.#env.now());
    this.#locator.soon();
    this.#publishSoon();
  }

  release(endpoint: string): void {
    const steps = this.#routes.release(endpoint);
    if (steps.length > 0) this.#routes.retryLimited(this.#env.now());
    this.#apply(steps);
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

  #answered(names: readonly string[], answer: Located, older: boolean): void {
    const open = this.#pool.sessions.filter(([, session]) => session.status.value.state === "open");
    const live = new Map(open.map(([url, session]) => [url, session.live.value.live]));
    this.#apply(this.#routes.located(names, answer, live, this.#env.now(), older));
    if (!older) this.#named(names, answer);
    for (const name of names) {
      const rejection = answer.rejected[name];
      if (rejection && this.#routes.isRefused(name)) this.#listener.refused(name, rejection);
    }
  }

  #unanswered(names: readonly string[]): void {
    this.#routes.unanswered(names, this.#env.now());
    this.#named(names, null);
  }

  /** Tells the servers of `names`, each once, whether an answer has named them. */
  #named(names: readonly string[], answer: Located | null): void {
    const servers = new Map<string, boolean>();
    for (const name of names) {
      const url = this.#routes.url(name);
      if (url === null) continue;
      const place = answer?.endpoints.get(name);
      const isNamed = place?.hot ? answer?.servers.includes(url) === true : place?.owner === url;
      servers.set(url, isNamed || servers.get(url) === true);
    }
    for (const [url, isNamed] of servers) this.#pool.named(url, isNamed);
  }

  #apply(steps: readonly RoutingAction[]): void {
    for (const { kind, endpoint, url } of steps) {
      if (kind === "join") this.#pool.session(url).want(endpoint);
      else this.#pool.get(url)?.release(endpoint);
    }
    this.#pool.tidy((url) => this.#routes.uses(url));
    this.#locator.soon();
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

  /** Where to dial: before another attempt it is asked whether anything is still there. */
  async #dial(url: string, named: boolean): Promise<string> {
    if (!named) {
      this.#suspect(url);
      await this.#locator.rested();
      if (!this.#routes.uses(url)) throw new DataError("nothing is wanted there any more");
    }
    return url;
  }

  #refused(url: string, refused: readonly [string, Rejection][]): void {
    const steps = refused.flatMap(([endpoint, rejection]) => {
      if (rejection.code === "not_owner") {
        return this.#routes.notOwner(url, endpoint, this.#locator.trustedUrl(rejection.owner ?? null), this.#env.now());
      }
      // For what was refused for the limit before, the views know.
      const known = this.#routes.isRefused(endpoint);
      const isLimit = rejection.code === "limit";
      const steps = this.#routes[isLimit ? "overLimit" : "registered"](url, [endpoint], this.#env.now());
      if (!isLimit || (!known && this.#routes.isRefused(endpoint))) this.#listener.refused(endpoint, rejection);
      return steps;
    });
    this.#apply(steps);
  }

  #suspect(url: string): void {
    this.#routes.suspect(url, this.#env.now());
    this.#locator.soon();
  }

  #publish(): void {
    const status = this.#summary();
    if (!sameStatus(status, this.status.value)) this.status.set(status);
    const live = this.#isOpen ? combinedLiveness(this.#endpoints(), this.#pool.sessions.map(([, session]) => session.live.value)) : OFFLINE;
    if (!sameLive(live, this.live.value)) this.live.set(live);
  }

  #summary(): ConnectionStatus {
    const { mode } = this.status.value;
    if (!this.#isOpen) return { ...combinedStatus([], mode), state: "closed", code: 1000 };
    const needed = this.#pool.sessions.filter(([url]) => this.#routes.uses(url)).map(([, session]) => session.status.value);
    if (this.#routes.hasUnplaced) needed.push(this.#searching());
    if (this.#routes.hasUnregistered) needed.push(combinedStatus([], mode)); // an open connection is not enough: its server has to answer
    return combinedStatus(needed, mode);
  }

  /** What is not located yet counts as a connection that is not there yet. */
  #searching(): ConnectionStatus {
    const { due, problem } = this.#locator;
    const retryAt = due > this.#env.now() && due < Number.POSITIVE_INFINITY ? due : null;
    const isFirst = problem === "" && retryAt === null;
    const reason = problem || (isFirst ? "" : "no server has some of the endpoints now");
    return { state: isFirst ? "connecting" : "reconnecting", code: null, reason, retryAt, server: "", mode: "" };
  }

  /** Every endpoint with whether its changes arrive as they happen. */
  *#endpoints(): Iterable<[string, boolean]> {
    for (const endpoint of this.#routes.endpoints) {
      yield [endpoint, this.isLive(endpoint)];
    }
  }
}

const BADNESS = { open: 0, connecting: 1, reconnecting: 2, closed: 3 };

/** As bad as the worst of them; without any, there is nothing yet. `server` lists all, `mode` is the last known without one. */
export function combinedStatus(needed: readonly ConnectionStatus[], mode: string): ConnectionStatus {
  const worst = needed.reduce((a, b) => (BADNESS[b.state] > BADNESS[a.state] ? b : a), needed[0] as ConnectionStatus);
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

/** Live while any endpoint is; the others are the affected ones. `sessions` say since when. */
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
