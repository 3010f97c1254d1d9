/** Partitioned mode: which endpoint is subscribed at which server, what is to be located, and how often it may be sent on. */

import type { Located } from "./locate.ts";
import { MAX_LOCATED } from "./locate.ts";
import { jitter } from "./pace.ts";

/** What is to be done with one endpoint at one server. A `join` of what is joined already asks again. */
export interface Step {
  readonly kind: "join" | "leave";
  readonly endpoint: string;
  readonly url: string;
}

interface Route {
  /** Where it is subscribed, or about to be; null = nobody has said where yet. */
  url: string | null;
  /** Whether that server has answered. */
  settled: boolean;
  settledAt: number;
  /** Where it is subscribed still, until `url` has answered. */
  old: string | null;
  /** How often servers have sent it on since it last stayed. */
  hops: number;
  /** When it is to be located; Infinity = not. */
  due: number;
  /** Its locate is under way, and nothing has overtaken it. */
  asking: boolean;
  refused: boolean;
}

/** Moves that servers ask for are followed at once this often; then there is a delay, and the metadata service is asked. */
export const MAX_HOPS = 3;
/** What stayed this long has arrived: its hops are forgotten. */
const STAYED_MS = 1_000;

/**
 * A new server is always joined before the old one is left. Owners are hints: following a wrong one costs a hop, never an
 * update. Pure: it is told the time (`now`, milliseconds), and what it wants done it returns.
 */
export class Routes {
  readonly #routes = new Map<string, Route>();
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  want(endpoint: string, now: number): void {
    this.#routes.set(endpoint, fresh(now));
  }

  release(endpoint: string): Step[] {
    const route = this.#routes.get(endpoint);
    this.#routes.delete(endpoint);
    return [route?.url, route?.old].filter((url) => url != null).map((url) => ({ kind: "leave", endpoint, url }));
  }

  /** Everything is to be located anew: no connection is left. */
  restart(now: number): void {
    for (const endpoint of this.#routes.keys()) this.#routes.set(endpoint, fresh(now));
  }

  /** Where it is subscribed, or about to be; null = nowhere. */
  url(endpoint: string): string | null {
    return this.#routes.get(endpoint)?.url ?? null;
  }

  /** Whether its server has answered, and has not sent it on since. */
  isSettled(endpoint: string): boolean {
    return this.#routes.get(endpoint)?.settled === true;
  }

  /** Whether the metadata service refused the name. */
  isRefused(endpoint: string): boolean {
    return this.#routes.get(endpoint)?.refused === true;
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
    return this.#some((route) => route.url === null && !route.refused);
  }

  /** Whether an endpoint is subscribed nowhere, and its server has yet to answer. */
  get unsettled(): boolean {
    return this.#some(({ url, old, settled }) => url !== null && old === null && !settled);
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

  /** The metadata service's answer about `names`. `open`: the servers with an open connection, and whether they are live. */
  located(names: readonly string[], answer: Located, open: ReadonlyMap<string, boolean>, now: number): Step[] {
    const asked = names.filter((endpoint) => this.#routes.get(endpoint)?.asking);
    const isHot = (endpoint: string): boolean => answer.endpoints.get(endpoint)?.hot === true;
    // Hot ones last: they go where the others make connections.
    const ordered = [...asked.filter((endpoint) => !isHot(endpoint)), ...asked.filter(isHot)];
    return ordered.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint) as Route;
      route.asking = false;
      if (endpoint in answer.rejected) {
        route.refused = true;
        return this.#leave(endpoint, route);
      }
      const owner = isHot(endpoint) ? this.#anywhere(route, open, answer.servers) : answer.endpoints.get(endpoint)?.owner;
      if (owner != null) return owner === route.url ? [] : this.#join(endpoint, route, owner);
      if (route.url === null) this.#delay(route, Math.max(route.hops, MAX_HOPS) + 1, now);
      return [];
    });
  }

  /** The server answered a subscribe: what was kept elsewhere until now is left. */
  settled(url: string, names: readonly string[], now: number): Step[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      if (route?.url !== url || route.settled) return [];
      route.settled = true;
      route.settledAt = now;
      return this.#leaveOld(endpoint, route);
    });
  }

  /** The server gives these away; it may go on serving them until they are left. */
  moved(url: string, names: readonly string[], owner: string | null, now: number): Step[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      if (route?.url !== url) return [];
      if (!route.settled) return this.notOwner(url, endpoint, owner, now);
      route.old = url;
      route.url = null;
      route.settled = false;
      return this.#hop(endpoint, route, owner, url, now);
    });
  }

  /** The server refused to take it. */
  notOwner(url: string, endpoint: string, owner: string | null, now: number): Step[] {
    const route = this.#routes.get(endpoint);
    if (route?.old === url) return this.#leaveOld(endpoint, route);
    if (route?.url !== url) return [];
    route.url = null;
    route.settled = false;
    return [{ kind: "leave", endpoint, url }, ...this.#hop(endpoint, route, owner, url, now)];
  }

  /** The connection is gone, and all that was registered on it. */
  lost(url: string): Step[] {
    return [...this.#routes].flatMap(([endpoint, route]) => {
      if (route.url === url) route.settled = false;
      return route.old === url ? this.#leaveOld(endpoint, route) : [];
    });
  }

  /** What is at this server may be better off at another one: it is to be located now. */
  doubt(url: string, now: number): void {
    for (const route of this.#routes.values()) if (route.url === url) route.due = now;
  }

  #hop(endpoint: string, route: Route, owner: string | null, from: string, now: number): Step[] {
    const hops = now - route.settledAt >= STAYED_MS ? 1 : route.hops + 1;
    route.settledAt = Number.POSITIVE_INFINITY; // a stay counts once, or refusals after it would go round for ever
    this.#delay(route, hops, now);
    return hops > MAX_HOPS || owner === null || owner === from ? [] : this.#join(endpoint, route, owner);
  }

  /** It is to be located at once, or after its hops with back-off. */
  #delay(route: Route, hops: number, now: number): void {
    route.hops = hops;
    route.asking = false; // an answer that is under way is older than what was just heard
    route.due = hops > MAX_HOPS ? now + jitter(this.#random, hops - MAX_HOPS - 1) : now;
  }

  #join(endpoint: string, route: Route, url: string): Step[] {
    const unsettled = route.settled ? null : route.url;
    if (route.settled) route.old = route.url;
    if (route.old === url) route.old = null;
    route.url = url;
    route.settled = false;
    route.due = Number.POSITIVE_INFINITY;
    const steps: Step[] = [{ kind: "join", endpoint, url }];
    if (unsettled !== null) steps.push({ kind: "leave", endpoint, url: unsettled });
    return steps;
  }

  #leave(endpoint: string, route: Route): Step[] {
    const steps = this.#leaveOld(endpoint, route);
    if (route.url !== null) steps.push({ kind: "leave", endpoint, url: route.url });
    route.url = null;
    route.settled = false;
    return steps;
  }

  #leaveOld(endpoint: string, route: Route): Step[] {
    const url = route.old;
    route.old = null;
    return url === null ? [] : [{ kind: "leave", endpoint, url }];
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

function fresh(now: number): Route {
  return {
    url: null, settled: false, settledAt: Number.POSITIVE_INFINITY, old: null, hops: 0, due: now, asking: false, refused: false,
  };
}
