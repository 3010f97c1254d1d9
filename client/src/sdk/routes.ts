/** Partitioned mode: which server each endpoint is subscribed at, how it moves, and what is to be located. */

import { jitter } from "./backoff.ts";
import type { Rejection } from "./messages.ts";

/** Names in one request at most. */
export const MAX_LOCATED = 1_000;

export interface Place {
  /** The WebSocket URL of who owns it; null = nobody now, or it is hot. */
  readonly owner: string | null;
  /** Every server has it. */
  readonly hot: boolean;
}

export interface Located {
  /** The group of servers that was chosen for this client: the next request names it. */
  readonly clone: number | null;
  readonly endpoints: ReadonlyMap<string, Place>;
  readonly rejected: Readonly<Record<string, Rejection>>;
  /** The servers of the clone, least loaded first. */
  readonly servers: readonly string[];
  /** An owner that was not trusted; null when there was none. */
  readonly foreign: string | null;
  /** Of the map that it goes by; NaN, which is older than none, when it does not say. */
  readonly epoch: number;
}

/** What is to be done with one endpoint at one server. A `join` of what is joined already asks again. */
export interface RoutingAction {
  readonly kind: "join" | "leave";
  readonly endpoint: string;
  readonly url: string;
}

/** Moves that servers ask for are followed at once this often; then there is a delay, and the metadata service is pending. */
const MAX_HOPS = 3;
/** What stayed this long has arrived: its hops are forgotten. */
const STAYED_MS = 1_000;

/** A new server is always joined before the old one is left. Pure: it is told the time (`now`, milliseconds). */
export class Route {
  readonly #endpoint: string;
  readonly #random: () => number;
  /** Where it is subscribed, or about to be; null = nobody has said where yet. */
  url: string | null = null;
  /** Whether that server has answered. */
  registered = false;
  #registeredAt = Number.POSITIVE_INFINITY;
  /** Where it is subscribed still, until `url` has answered. */
  old: string | null = null;
  /** Whether `old` was left by our own choice: it has given nothing away. */
  oldServes = false;
  /** How often servers have sent it on since it last stayed. */
  #hops = 0;
  /** When it is to be located; Infinity = not. */
  due: number;
  /** Its locate is under way, and nothing has overtaken it. */
  locating = false;
  /** The metadata service refused the name. */
  refused = false;
  /** Its server has no room for it, and no other one has it. */
  limited = false;

  constructor(endpoint: string, random: () => number, now: number) {
    this.#endpoint = endpoint;
    this.#random = random;
    this.due = now;
  }

  /** Goes to `url`. */
  join(url: string): RoutingAction[] {
    const unregistered = this.registered ? null : this.url;
    if (this.registered) {
      this.old = this.url;
      this.oldServes = true;
    }
    if (this.old === url) this.old = null;
    this.url = url;
    this.registered = false;
    this.due = Number.POSITIVE_INFINITY;
    return [this.#step("join", url), ...(unregistered === null ? [] : [this.#step("leave", unregistered)])];
  }

  /** Is nowhere any more. */
  leave(): RoutingAction[] {
    const steps = this.leaveOld();
    if (this.url !== null) steps.push(this.#step("leave", this.url));
    this.url = null;
    this.registered = false;
    return steps;
  }

  leaveOld(): RoutingAction[] {
    const url = this.old;
    this.old = null;
    return url === null ? [] : [this.#step("leave", url)];
  }

  /** Its server has answered. */
  register(now: number): RoutingAction[] {
    this.registered = true;
    this.limited = false;
    this.#registeredAt = now;
    return this.leaveOld();
  }

  /** Its server gives it away, and may go on serving it until it is left. */
  moved(owner: string | null, now: number): RoutingAction[] {
    const from = this.url;
    this.old = from;
    this.oldServes = false;
    this.url = null;
    this.registered = false;
    return this.#hop(owner, from, now);
  }

  /** Its server refused to take it. */
  redirected(owner: string | null, now: number): RoutingAction[] {
    const from = this.url;
    this.url = null;
    this.registered = false;
    return [...(from === null ? [] : [this.#step("leave", from)]), ...this.#hop(owner, from, now)];
  }

  /** Its server has no room for it: it stays where it still is, and is located again after a delay. */
  overLimit(now: number): RoutingAction[] {
    const steps = this.url === null ? [] : [this.#step("leave", this.url)];
    this.url = this.oldServes ? this.old : null;
    this.registered = this.url !== null;
    if (this.registered) this.old = null;
    this.limited = this.url === null && this.old === null;
    this.wait(now);
    return steps;
  }

  /** Nobody has it now: it is located again, after a delay. */
  wait(now: number): void {
    this.#delay(Math.max(this.#hops, MAX_HOPS) + 1, now);
  }

  #hop(owner: string | null, from: string | null, now: number): RoutingAction[] {
    const hops = now - this.#registeredAt >= STAYED_MS ? 1 : this.#hops + 1;
    this.#registeredAt = Number.POSITIVE_INFINITY; // a stay counts once, or refusals after it would go round for ever
    this.#delay(hops, now);
    return hops > MAX_HOPS || owner === null || owner === from ? [] : this.join(owner);
  }

  /** It is to be located at once, or after its hops with back-off. */
  #delay(hops: number, now: number): void {
    this.#hops = hops;
    this.locating = false; // an answer that is under way is older than what was just heard
    this.due = hops > MAX_HOPS ? now + jitter(this.#random, hops - MAX_HOPS - 1) : now;
  }

  #step(kind: RoutingAction["kind"], url: string): RoutingAction {
    return { kind, endpoint: this.#endpoint, url };
  }
}

/**
 * ServerPool are hints: following a wrong one costs a hop, never an update. Pure: it is told the time (`now`, milliseconds), and
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

  release(endpoint: string): RoutingAction[] {
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
  isRegistered(endpoint: string): boolean {
    return this.#routes.get(endpoint)?.registered === true;
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
  get hasUnplaced(): boolean {
    return this.#some((route) => route.url === null && !route.refused && !route.limited);
  }

  /** Whether an endpoint is subscribed nowhere, and its server has yet to answer. */
  get hasUnregistered(): boolean {
    return this.#some(({ url, old, registered, limited }) => url !== null && old === null && !registered && !limited);
  }

  /** When something is to be located; Infinity = never. */
  get nextDue(): number {
    return Math.min(...[...this.#routes.values()].map(({ due }) => due));
  }

  /** What is to be located now, as many as one request takes; it counts as pending. */
  toLocate(now: number): string[] {
    const names = [...this.#routes].filter(([, { due }]) => due <= now).slice(0, MAX_LOCATED);
    for (const [, route] of names) {
      route.due = Number.POSITIVE_INFINITY;
      route.locating = true;
    }
    return names.map(([endpoint]) => endpoint);
  }

  /** The request brought no answer: all stays where it is, and is still to be located. */
  unanswered(names: readonly string[], now: number): void {
    for (const endpoint of names) {
      const route = this.#routes.get(endpoint);
      if (!route?.locating) continue;
      route.locating = false;
      route.due = now;
    }
  }

  /**
   * The metadata service's answer about `names`. `open`: the servers with an open connection, and whether they are live.
   * `older`: the answer is good enough for what has no place, and no reason to leave one.
   */
  located(names: readonly string[], answer: Located, open: ReadonlyMap<string, boolean>, now: number, older = false): RoutingAction[] {
    const pending = names.filter((endpoint) => this.#routes.get(endpoint)?.locating);
    const isHot = (endpoint: string): boolean => answer.endpoints.get(endpoint)?.hot === true;
    // Hot ones last: they go where the others make connections.
    const ordered = [...pending.filter((endpoint) => !isHot(endpoint)), ...pending.filter(isHot)];
    return ordered.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint) as Route;
      route.locating = false;
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
  registered(url: string, names: readonly string[], now: number): RoutingAction[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      return route?.url !== url || route.registered ? [] : route.register(now);
    });
  }

  /** The server gives these away; it may go on serving them until they are left. */
  moved(url: string, names: readonly string[], owner: string | null, now: number): RoutingAction[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      if (route?.old === url) route.oldServes = false;
      if (route?.url !== url) return [];
      return route.registered ? route.moved(owner, now) : this.notOwner(url, endpoint, owner, now);
    });
  }

  /** The server refused to take it. */
  notOwner(url: string, endpoint: string, owner: string | null, now: number): RoutingAction[] {
    const route = this.#routes.get(endpoint);
    if (route?.old === url) return route.leaveOld();
    return route?.url === url ? route.redirected(owner, now) : [];
  }

  /** The server has no room for it. */
  overLimit(url: string, names: readonly string[], now: number): RoutingAction[] {
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
  lost(url: string): RoutingAction[] {
    return [...this.#routes.values()].flatMap((route) => {
      if (route.url === url) route.registered = false;
      return route.old === url ? route.leaveOld() : [];
    });
  }

  /** What is at this server may be better off at another one: it is to be located now. */
  suspect(url: string, now: number): void {
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
