/** Partitioned mode: one line for each server that owns something wanted, kept in step with what the metadata service says. */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { DataError } from "./http.ts";
import type { Ear, Lines, Placing } from "./line.ts";
import type { LiveStatus } from "./live.ts";
import { OFFLINE, sameLive } from "./live.ts";
import type { Located, Metadata } from "./locate.ts";
import { Locator } from "./locator.ts";
import type { Rejection } from "./messages.ts";
import { Subject } from "./observable.ts";
import { Owners } from "./owners.ts";
import type { Step } from "./route.ts";
import { Routes } from "./routes.ts";
import { soon } from "./timers.ts";
import { sameStatus, together, togetherLive } from "./together.ts";

/**
 * Fails static: while the metadata service does not answer, everything stays where it is and is dialled where it was.
 */
export class Partitioned implements Lines {
  readonly #env: Environment;
  readonly #ear: Ear;
  readonly #routes: Routes;
  readonly #locator: Locator;
  readonly #owners: Owners;
  readonly status = new Subject<ConnectionStatus>(together([], ""));
  readonly live = new Subject<LiveStatus>(OFFLINE);
  readonly #tellSoon: () => void;
  #isOpen = false;

  /** `abandon` is called when the configuration names no metadata service any more. */
  constructor(
    env: Environment,
    ear: Ear,
    metadata: (failures: number) => Promise<Metadata | null>,
    abandon: () => void,
  ) {
    this.#env = env;
    this.#ear = ear;
    this.#routes = new Routes(() => env.random());
    this.#tellSoon = soon(env, () => this.#tell());
    this.#locator = new Locator(env, this.#routes, {
      metadata,
      answered: (names, answer, older) => this.#answered(names, answer, older),
      unanswered: (names) => this.#unanswered(names),
      abandon,
      rested: () => this.#tellSoon(),
    });
    this.#owners = new Owners(env, ear, {
      dial: (url, named) => this.#dial(url, named),
      placing: (url) => this.#placing(url),
      lost: (url) => this.#apply(this.#routes.lost(url)),
      doubted: (url) => this.#doubt(url),
      changed: () => this.#tellSoon(),
    });
  }

  want(endpoint: string): void {
    this.#routes.want(endpoint, this.#env.now());
    this.#locator.soon();
    this.#tellSoon();
  }

  release(endpoint: string): void {
    const steps = this.#routes.release(endpoint);
    if (steps.length > 0) this.#routes.retryLimited(this.#env.now());
    this.#apply(steps);
  }

  isRefused(endpoint: string): boolean {
    return this.#routes.isRefused(endpoint) || this.#owners.get(this.#routes.url(endpoint))?.isRefused(endpoint) === true;
  }

  isLive(endpoint: string): boolean {
    return this.#routes.isSettled(endpoint) && this.#owners.get(this.#routes.url(endpoint))?.isLive(endpoint) === true;
  }

  connect(): void {
    this.#isOpen = true;
    for (const [, line] of this.#owners.lines) line.connect();
    this.#locator.open();
    this.#tell();
  }

  close(): void {
    this.#isOpen = false;
    this.#locator.close();
    for (const [url] of this.#owners.lines) this.#owners.drop(url);
    this.#routes.restart(this.#env.now());
    this.#tell();
  }

  #answered(names: readonly string[], answer: Located, older: boolean): void {
    const open = this.#owners.lines.filter(([, line]) => line.status.value.state === "open");
    const live = new Map(open.map(([url, line]) => [url, line.live.value.live]));
    this.#apply(this.#routes.located(names, answer, live, this.#env.now(), older));
    if (!older) this.#named(names, answer);
    for (const name of names) {
      const rejection = answer.rejected[name];
      if (rejection && this.#routes.isRefused(name)) this.#ear.refused(name, rejection);
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
    for (const [url, isNamed] of servers) this.#owners.named(url, isNamed);
  }

  #apply(steps: readonly Step[]): void {
    for (const { kind, endpoint, url } of steps) {
      if (kind === "join") this.#owners.line(url).want(endpoint);
      else this.#owners.get(url)?.release(endpoint);
    }
    this.#owners.tidy((url) => this.#routes.uses(url));
    this.#locator.soon();
    this.#tellSoon();
  }

  #placing(url: string): Placing {
    const { now } = this.#env;
    return {
      subscribed: (names) => this.#apply(this.#routes.settled(url, names, now())),
      refused: (refused) => this.#refused(url, refused),
      moved: (names, owner) => this.#apply(this.#routes.moved(url, names, this.#locator.believe(owner), now())),
    };
  }

  /** Where to dial: before another attempt it is asked whether anything is still there. */
  async #dial(url: string, named: boolean): Promise<string> {
    if (!named) {
      this.#doubt(url);
      await this.#locator.rested();
      if (!this.#routes.uses(url)) throw new DataError("nothing is wanted there any more");
    }
    return url;
  }

  #refused(url: string, refused: readonly [string, Rejection][]): void {
    const steps = refused.flatMap(([endpoint, rejection]) => {
      if (rejection.code === "not_owner") {
        return this.#routes.notOwner(url, endpoint, this.#locator.believe(rejection.owner ?? null), this.#env.now());
      }
      // For what was refused for the limit before, the views know.
      const known = this.#routes.isRefused(endpoint);
      const isLimit = rejection.code === "limit";
      const steps = this.#routes[isLimit ? "overLimit" : "settled"](url, [endpoint], this.#env.now());
      if (!isLimit || (!known && this.#routes.isRefused(endpoint))) this.#ear.refused(endpoint, rejection);
      return steps;
    });
    this.#apply(steps);
  }

  #doubt(url: string): void {
    this.#routes.doubt(url, this.#env.now());
    this.#locator.soon();
  }

  #tell(): void {
    const status = this.#summary();
    if (!sameStatus(status, this.status.value)) this.status.set(status);
    const live = this.#isOpen ? togetherLive(this.#endpoints(), this.#owners.lines.map(([, line]) => line.live.value)) : OFFLINE;
    if (!sameLive(live, this.live.value)) this.live.set(live);
  }

  #summary(): ConnectionStatus {
    const { mode } = this.status.value;
    if (!this.#isOpen) return { ...together([], mode), state: "closed", code: 1000 };
    const needed = this.#owners.lines.filter(([url]) => this.#routes.uses(url)).map(([, line]) => line.status.value);
    if (this.#routes.homeless) needed.push(this.#searching());
    if (this.#routes.unsettled) needed.push(together([], mode)); // an open connection is not enough: its server has to answer
    return together(needed, mode);
  }

  /** What is not located yet counts as a connection that is not there yet. */
  #searching(): ConnectionStatus {
    const { due, trouble } = this.#locator;
    const retryAt = due > this.#env.now() && due < Number.POSITIVE_INFINITY ? due : null;
    const isFirst = trouble === "" && retryAt === null;
    const reason = trouble || (isFirst ? "" : "no server has some of the endpoints now");
    return { state: isFirst ? "connecting" : "reconnecting", code: null, reason, retryAt, server: "", mode: "" };
  }

  /** Every endpoint with whether its changes arrive as they happen. */
  *#endpoints(): Iterable<[string, boolean]> {
    for (const endpoint of this.#routes.endpoints) {
      yield [endpoint, this.isLive(endpoint)];
    }
  }
}
