/** Partitioned mode: which endpoint is subscribed at which server, and what is to be located. */

import type { Located } from "./locate.ts";
import { MAX_LOCATED } from "./locate.ts";
import type { Step } from "./route.ts";
import { Route } from "./route.ts";

/**
 * Owners are hints: following a wrong one costs a hop, never an update. Pure: it is told the time (`now`, milliseconds), and
 * what it wants done it returns.
 */
export class Routes {
  readonly #routes = new Map<string, Route>();
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  want(endpoint: string, now: number): void {
    this.#routes.set(endpoint, new Route(endpoint, this.#random, now));
  }

  release(endpoint: string): Step[] {
    const route = this.#routes.get(endpoint);
    this.#routes.delete(endpoint);
    return [route?.url, route?.old].filter((url) => url != null).map((url) => ({ kind: "leave", endpoint, url }));
  }

  /** Everything is to be located anew: no connection is left. */
  restart(now: number): void {
    for (const endpoint of this.#routes.keys()) this.want(endpoint, now);
  }

  /** Where it is subscribed, or about to be; null = nowhere. */
  url(endpoint: string): string | null {
    return this.#routes.get(endpoint)?.url ?? null;
  }

  /** Whether its server has answered, and has not sent it on since. */
  isSettled(endpoint: string): boolean {
    return this.#routes.get(endpoint)?.settled === true;
  }

  /** Whether the metadata service refused the name, or its server has no room for it and no other one has it. */
  isRefused(endpoint: string): boolean {
    const route = this.#routes.get(endpoint);
    return route?.refused === true || route?.limited === true;
  }

  get endpoints(): Iterable<string> {
    return this.#routes.keys();
  }

  /** Whether any endpoint is at this server, or not gone from it yet. */
  uses(url: string): boolean {
    return this.#some((route) => route.url === url || route.old === url);
  }

  /** Whether an endpoint waits to be told where it is served. */
  get homeless(): boolean {
    return this.#some((route) => route.url === null && !route.refused && !route.limited);
  }

  /** Whether an endpoint is subscribed nowhere, and its server has yet to answer. */
  get unsettled(): boolean {
    return this.#some(({ url, old, settled, limited }) => url !== null && old === null && !settled && !limited);
  }

  /** When something is to be located; Infinity = never. */
  get nextDue(): number {
    return Math.min(...[...this.#routes.values()].map(({ due }) => due));
  }

  /** What is to be located now, as many as one request takes; it counts as asked. */
  toLocate(now: number): string[] {
    const names = [...this.#routes].filter(([, { due }]) => due <= now).slice(0, MAX_LOCATED);
    for (const [, route] of names) {
      route.due = Number.POSITIVE_INFINITY;
      route.asking = true;
    }
    return names.map(([endpoint]) => endpoint);
  }

  /** The request brought no answer: all stays where it is, and is still to be located. */
  unanswered(names: readonly string[], now: number): void {
    for (const endpoint of names) {
      const route = this.#routes.get(endpoint);
      if (!route?.asking) continue;
      route.asking = false;
      route.due = now;
    }
  }

  /**
   * The metadata service's answer about `names`. `open`: the servers with an open connection, and whether they are live.
   * `older`: the answer is good enough for what has no place, and no reason to leave one.
   */
  located(names: readonly string[], answer: Located, open: ReadonlyMap<string, boolean>, now: number, older = false): Step[] {
    const asked = names.filter((endpoint) => this.#routes.get(endpoint)?.asking);
    const isHot = (endpoint: string): boolean => answer.endpoints.get(endpoint)?.hot === true;
    // Hot ones last: they go where the others make connections.
    const ordered = [...asked.filter((endpoint) => !isHot(endpoint)), ...asked.filter(isHot)];
    return ordered.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint) as Route;
      route.asking = false;
      if (older && route.url !== null && !isHot(endpoint)) return [];
      if (endpoint in answer.rejected) {
        route.refused = true;
        return route.leave();
      }
      const owner = isHot(endpoint) ? this.#anywhere(route, open, answer.servers) : answer.endpoints.get(endpoint)?.owner;
      if (owner != null) return owner === route.url ? [] : route.join(owner);
      if (route.url === null) route.wait(now);
      return [];
    });
  }

  /** The server answered a subscribe: what was kept elsewhere until now is left. */
  settled(url: string, names: readonly string[], now: number): Step[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      return route?.url !== url || route.settled ? [] : route.settle(now);
    });
  }

  /** The server gives these away; it may go on serving them until they are left. */
  moved(url: string, names: readonly string[], owner: string | null, now: number): Step[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      if (route?.old === url) route.oldServes = false;
      if (route?.url !== url) return [];
      return route.settled ? route.moved(owner, now) : this.notOwner(url, endpoint, owner, now);
    });
  }

  /** The server refused to take it. */
  notOwner(url: string, endpoint: string, owner: string | null, now: number): Step[] {
    const route = this.#routes.get(endpoint);
    if (route?.old === url) return route.leaveOld();
    return route?.url === url ? route.sentOn(owner, now) : [];
  }

  /** The server has no room for it. */
  overLimit(url: string, names: readonly string[], now: number): Step[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      return route?.url === url ? route.overLimit(now) : [];
    });
  }

  /** There may be room again: what there was none for is to be located now. */
  retryLimited(now: number): void {
    for (const route of this.#routes.values()) if (route.limited) route.due = now;
  }

  /** The connection is gone, and all that was registered on it. */
  lost(url: string): Step[] {
    return [...this.#routes.values()].flatMap((route) => {
      if (route.url === url) route.settled = false;
      return route.old === url ? route.leaveOld() : [];
    });
  }

  /** What is at this server may be better off at another one: it is to be located now. */
  doubt(url: string, now: number): void {
    for (const route of this.#routes.values()) if (route.url === url) route.due = now;
  }

  /** A hot endpoint stays where it is live, else goes where that is so, else to a listed server, one in use before others. */
  #anywhere({ url: present }: Route, open: ReadonlyMap<string, boolean>, servers: readonly string[]): string | null {
    const live = [...open.keys()].filter((url) => open.get(url));
    const isListed = (url: string): boolean => servers.includes(url);
    if (present !== null && (open.get(present) || (live.length === 0 && open.has(present) && isListed(present)))) return present;
    const used = [...this.#routes.values()].flatMap(({ url }) => url ?? []);
    return [...live, ...used.filter(isListed), ...servers, ...used].find((url) => url !== present) ?? present;
  }

  #some(test: (route: Route) => boolean): boolean {
    for (const route of this.#routes.values()) if (test(route)) return true;
    return false;
  }
}
