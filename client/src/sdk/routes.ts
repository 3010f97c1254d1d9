/**
 * Routing of endpoints to servers, for clients that know the servers of a group (docs/protocol.md section 3.1). Pure.
 *
 * tests/cases/routes.json has the cases that it passes.
 */

import type { Rejection } from "./messages.ts";

/** Names in one request to the metadata service. */
export const MAX_LOCATED = 1_000;

export interface Place {
  /** The WebSocket URL of its owner; null = it has no owner now, or it is hot. */
  readonly owner: string | null;
  /** True if every server has it. */
  readonly hot: boolean;
}

export interface Located {
  /** The group of servers that was chosen for this client: the next request names it. */
  readonly clone: number | null;
  readonly endpoints: ReadonlyMap<string, Place>;
  readonly rejected: Readonly<Record<string, Rejection>>;
  /** The servers of the clone, least loaded first. */
  readonly servers: readonly string[];
  /** A server on another host, which is left out; null when there was none. */
  readonly untrusted: string | null;
  /** The epoch of the map that it is based on; null when it has none. */
  readonly epoch: number | null;
}

/** Action for one endpoint at one server. A `join` of a subscribed endpoint subscribes again. */
export interface RoutingAction {
  readonly kind: "join" | "leave";
  readonly endpoint: string;
  readonly url: string;
}

/** Redirects followed at once; after them the endpoint is located with back-off. */
const MAX_HOPS = 3;
/** A stay of this length ends the count of hops. */
const STAYED_AFTER_MS = 1_000;

/**
 * Where one endpoint is subscribed, and when it is to be located. A new server is always joined before the old one is
 * left. `now` is milliseconds of a monotonic clock.
 */
class Route {
  readonly #endpoint: string;
  readonly #backoff: (failures: number) => number;
  /** The server of the current or next subscription; null until one is known. */
  url: string | null = null;
  /** True once that server has answered. */
  registered = false;
  #registeredAt = Number.POSITIVE_INFINITY;
  /** The server where it stays subscribed until `url` has answered. */
  old: string | null = null;
  /** True if the client left `old` by choice, so that it still serves the endpoint. */
  oldServes = false;
  /** Redirects since it last stayed at a server. */
  #hops = 0;
  /** When to locate it; Infinity: not at all. */
  due: number;
  /** True while a locate request is pending and its answer not superseded by an event. */
  locating = false;
  /** The code with which the metadata service rejected the name; "" = it did not. */
  refused = "";
  /** True if its server is full, and no other server has it. */
  limited = false;

  constructor(endpoint: string, backoff: (failures: number) => number, now: number) {
    this.#endpoint = endpoint;
    this.#backoff = backoff;
    this.due = now;
  }

  /** Moves to `url`. */
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
    return [{ kind: "join", endpoint: this.#endpoint, url }, ...this.#leave(unregistered)];
  }

  /** Leaves every server. */
  leave(): RoutingAction[] {
    const { url } = this;
    this.url = null;
    this.registered = false;
    return [...this.#leave(url), ...this.leaveOld()];
  }

  /** Leaves the server that was kept until the new one answered. */
  leaveOld(): RoutingAction[] {
    const url = this.old;
    this.old = null;
    return this.#leave(url);
  }

  /** Its server has answered. */
  register(now: number): RoutingAction[] {
    this.registered = true;
    this.limited = false;
    this.#registeredAt = now;
    return this.leaveOld();
  }

  /** Its server gives it away, and may serve it until it is left. */
  moved(owner: string | null, now: number): RoutingAction[] {
    const origin = this.url;
    this.old = origin;
    this.oldServes = false;
    this.url = null;
    this.registered = false;
    return this.#hop(owner, origin, now);
  }

  /** Its server refused to take it. */
  redirected(owner: string | null, now: number): RoutingAction[] {
    const origin = this.url;
    this.url = null;
    this.registered = false;
    return [...this.#leave(origin), ...this.#hop(owner, origin, now)];
  }

  /** Its server has no room for it: it stays where it is served, and is located again after a delay. */
  overLimit(now: number): RoutingAction[] {
    const actions = this.#leave(this.url);
    this.url = this.oldServes ? this.old : null;
    this.registered = this.url !== null;
    if (this.registered) this.old = null;
    this.limited = this.url === null && this.old === null;
    this.wait(now);
    return actions;
  }

  /** Locates it again after a delay, because no server has it now. */
  wait(now: number): void {
    this.#delay(Math.max(this.#hops, MAX_HOPS) + 1, now);
  }

  #hop(owner: string | null, origin: string | null, now: number): RoutingAction[] {
    const hops = now - this.#registeredAt >= STAYED_AFTER_MS ? 1 : this.#hops + 1;
    this.#registeredAt = Number.POSITIVE_INFINITY; // a stay counts once, or refusals after it would redirect it endlessly
    this.#delay(hops, now);
    return hops > MAX_HOPS || owner === null || owner === origin ? [] : this.join(owner);
  }

  /** Locates it at once, or with back-off after too many hops. */
  #delay(hops: number, now: number): void {
    this.#hops = hops;
    this.locating = false; // the pending answer is older than this event
    this.due = hops > MAX_HOPS ? now + this.#backoff(hops - MAX_HOPS - 1) : now;
  }

  #leave(url: string | null): RoutingAction[] {
    return url === null ? [] : [{ kind: "leave", endpoint: this.#endpoint, url }];
  }
}

/**
 * The routes of all endpoints. Every event is a method that returns the actions which follow from it, in order. Owners are
 * hints: following a wrong one costs a hop, never an update. `now` is milliseconds of a monotonic clock.
 */
export class Routes {
  readonly #routes = new Map<string, Route>();
  readonly #backoff: (failures: number) => number;

  /** `backoff` returns the delay in milliseconds after so many failures in a row. */
  constructor(backoff: (failures: number) => number) {
    this.#backoff = backoff;
  }

  /** Starts routing an endpoint by locating it. */
  add(endpoint: string, now: number): void {
    this.#routes.set(endpoint, new Route(endpoint, this.#backoff, now));
  }

  /** Leaves an endpoint everywhere; if this frees a place, endpoints without one are located now. */
  remove(endpoint: string, now: number): RoutingAction[] {
    const route = this.#routes.get(endpoint);
    this.#routes.delete(endpoint);
    if (route?.registered || route?.old) for (const other of this.#routes.values()) if (other.limited) other.due = now;
    return route?.leave() ?? [];
  }

  /** Locates everything anew, because no connection is left. */
  restart(now: number): void {
    for (const endpoint of this.#routes.keys()) this.add(endpoint, now);
  }

  /** The server of the current or next subscription; null = none. */
  url(endpoint: string): string | null {
    return this.#routes.get(endpoint)?.url ?? null;
  }

  /** Whether its server has answered, and has not redirected it since. */
  isRegistered(endpoint: string): boolean {
    return this.#routes.get(endpoint)?.registered === true;
  }

  /** Whether the metadata service rejected the name, or its server has no room for it and no other one has it. */
  isRefused(endpoint: string): boolean {
    const route = this.#routes.get(endpoint);
    return Boolean(route?.refused) || route?.limited === true;
  }

  /** Locates endpoints that the previous token did not cover. The Python client drops such names. */
  retryForbidden(now: number): void {
    for (const route of this.#routes.values()) {
      if (route.refused !== "forbidden") continue;
      route.refused = "";
      route.due = now;
    }
  }

  get endpoints(): Iterable<string> {
    return this.#routes.keys();
  }

  /** Whether any endpoint is subscribed at this server, or still leaving it. */
  uses(url: string): boolean {
    return this.#some((route) => route.url === url || route.old === url);
  }

  /** Whether the server of any endpoint is unknown. */
  get hasUnplaced(): boolean {
    return this.#some((route) => route.url === null && !route.refused && !route.limited);
  }

  /** Whether any endpoint is subscribed nowhere, and its server has yet to answer. */
  get hasUnregistered(): boolean {
    return this.#some(({ url, old, registered, limited }) => url !== null && old === null && !registered && !limited);
  }

  /** Time at which to locate the next endpoint; Infinity: none. */
  get nextDue(): number {
    return Math.min(...[...this.#routes.values()].map(({ due }) => due));
  }

  /** The endpoints to locate now, as many as one request takes; they count as pending. */
  toLocate(now: number): string[] {
    const names = [...this.#routes].filter(([, { due }]) => due <= now).slice(0, MAX_LOCATED);
    for (const [, route] of names) {
      route.due = Number.POSITIVE_INFINITY;
      route.locating = true;
    }
    return names.map(([endpoint]) => endpoint);
  }

  /** The request failed: all endpoints stay at their servers, and must still be located. */
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
   * `older`: its epoch is older than a previous answer's: it places what has no place, and moves nothing that has one.
   */
  located(names: readonly string[], answer: Located, open: ReadonlyMap<string, boolean>, now: number, older = false): RoutingAction[] {
    const pending = names.filter((endpoint) => this.#routes.get(endpoint)?.locating);
    const isHot = (endpoint: string): boolean => answer.endpoints.get(endpoint)?.hot === true;
    // Hot ones last: they go where the others make connections.
    const ordered = [...pending.filter((endpoint) => !isHot(endpoint)), ...pending.filter(isHot)];
    return ordered.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint) as Route;
      route.locating = false;
      const rejection = answer.rejected[endpoint];
      if (rejection) {
        route.refused = rejection.code;
        return route.leave();
      }
      if (older && route.url !== null && !isHot(endpoint)) return [];
      const owner = isHot(endpoint) ? this.#anyServer(route.url, open, answer.servers) : answer.endpoints.get(endpoint)?.owner;
      if (owner != null) return owner === route.url ? [] : route.join(owner);
      if (route.url === null) route.wait(now);
      return [];
    });
  }

  /** The server answered a subscribe: the servers that were kept until now are left. */
  registered(url: string, names: readonly string[], now: number): RoutingAction[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      return route?.url !== url || route.registered ? [] : route.register(now);
    });
  }

  /** The server gives endpoints away; it may serve them until they are left. */
  moved(url: string, names: readonly string[], owner: string | null, now: number): RoutingAction[] {
    return names.flatMap((endpoint) => {
      const route = this.#routes.get(endpoint);
      if (route?.old === url) route.oldServes = false;
      if (route?.url !== url) return [];
      return route[route.registered ? "moved" : "redirected"](owner, now);
    });
  }

  /** The server refused to take an endpoint. */
  notOwner(url: string, endpoint: string, owner: string | null, now: number): RoutingAction[] {
    const route = this.#routes.get(endpoint);
    if (route?.old === url) return route.leaveOld();
    return route?.url === url ? route.redirected(owner, now) : [];
  }

  /** The server has no room for an endpoint. */
  overLimit(url: string, endpoint: string, now: number): RoutingAction[] {
    const route = this.#routes.get(endpoint);
    return route?.url === url ? route.overLimit(now) : [];
  }

  /** The connection is closed, and nothing is registered on it. */
  lost(url: string): RoutingAction[] {
    return [...this.#routes.values()].flatMap((route) => {
      if (route.url === url) route.registered = false;
      return route.old === url ? route.leaveOld() : [];
    });
  }

  /** Locates a server's endpoints now, because another one may have them. */
  suspect(url: string, now: number): void {
    for (const route of this.#routes.values()) if (route.url === url) route.due = now;
  }

  /**
   * Chooses a server for a hot endpoint: it stays where it is live, else goes to a live server, else to a listed one,
   * preferably one in use.
   */
  #anyServer(present: string | null, open: ReadonlyMap<string, boolean>, servers: readonly string[]): string | null {
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
