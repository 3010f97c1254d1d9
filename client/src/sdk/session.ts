/** One connection and its subscription set: keeps the server's subscriptions equal to the wanted ones, within its rate limit. */

import { checkClock } from "./clock.ts";
import { CLOSE_CODES } from "./codes.ts";
import type { ConnectionStatus } from "./connection.ts";
import { Connection } from "./connection.ts";
import type { Environment, Socket } from "./environment.ts";
import { SubscriptionSet } from "./subscriptions.ts";
import type { LiveStatus } from "./liveness.ts";
import { OFFLINE, ONLINE, nextLive, sameLive } from "./liveness.ts";
import type { Rejection, ServerFrame, UpdateFrame, WelcomeFrame } from "./messages.ts";
import { SUBPROTOCOL } from "./messages.ts";
import type { Observable } from "./observable.ts";
import { Subject } from "./observable.ts";
import { Backoff, TokenBucket } from "./backoff.ts";
import { ResettableTimer, soon } from "./timers.ts";

/** Carries subscriptions over one session, or over one for each owner. */
export interface Transport {
  readonly status: Observable<ConnectionStatus>;
  readonly live: Observable<LiveStatus>;
  /** Subscribes; an endpoint that is subscribed already is requested again. */
  subscribe(endpoint: string): void;
  unsubscribe(endpoint: string): void;
  /** Whether the name is known to be refused. */
  isRefused(endpoint: string): boolean;
  /** Whether a server has registered it and is live. */
  isLive(endpoint: string): boolean;
  connect(): void;
  close(): void;
}

/** Presents a token to servers: `tokens.ts`, for pages with tokens. */
export interface Credentials {
  readonly token: string;
  /** Like the environment's; `welcome` is delivered after the server has accepted the token. */
  socket(url: string, protocol: string): Socket;
}

/** Shared by all sessions: receives servers' messages about data. */
export interface Listener {
  /** Missing where no token is presented. Rejects when there is none now. */
  credentials?: (() => Promise<Credentials>) | undefined;
  /** Servers are asked for the data of updates. */
  readonly data: boolean;
  /** The version of the data the client holds; 0 = none. */
  held(endpoint: string): number;
  /** Every frame, before it is dispatched; null for one that this SDK does not know. */
  frame(frame: ServerFrame | null): void;
  updated(frame: UpdateFrame): void;
  /**
   * A server has registered it and retains `version`, 0 for none: the update follows if that is greater than the one held. Null:
   * not known yet, because the server is not live, or behind; it is called again, if it gets known. Fetches of what it announces
   * are spread over `fetchWindowMs`.
   */
  registered(endpoint: string, version: number | null, fetchWindowMs: number): void;
  resync(endpoints: readonly string[]): void;
  refused(endpoint: string, rejection: Rejection): void;
}

/** Receives a server's messages about the endpoints it serves. */
export interface RoutingEvents {
  /** The server has registered these. */
  subscribed(endpoints: readonly string[]): void;
  /** These it refused, `not_owner` among other codes; none after most replies. */
  refused(refused: readonly [string, Rejection][]): void;
  moved(endpoints: readonly string[], owner: string | null): void;
}

/** A server that sends nothing for so long is not there, even if it announces nothing; it sends its status every 25 s. */
const SILENCE_MS = 60_000;
/** A live server that retains less than the client holds has so long to catch up. */
const GRACE_MS = 2_000;
/** Versions contain the time: one that is further ahead of this clock is not believed. */
const FUTURE_MS = 86_400_000;

export class Session implements Transport {
  readonly #env: Environment;
  readonly #listener: Listener;
  readonly #routing: RoutingEvents;
  readonly connection: Connection;
  readonly live = new Subject(OFFLINE);
  /** The server's status; it does not cover unregistered endpoints. */
  #announced = OFFLINE;
  readonly #subscriptions = new SubscriptionSet();
  /** Endpoint -> the version that the server retains, where it was not live when it replied, or retains less than is held. */
  readonly #unverified = new Map<string, number>();
  readonly #grace: ResettableTimer;
  readonly #timer: ResettableTimer;
  readonly #flushSoon: () => void;
  #bucket!: TokenBucket;
  /** When the token expires, Unix time in seconds, which tells it from others; 0 = none was accepted. */
  #expires = 0;
  /** More of a `subscribe`: the page's identity in the first one, for a server that records traffic; `data` in each. */
  #more: { client?: string | undefined; data?: boolean | undefined } = {};
  #fetchWindowMs = 0;
  /** Of requests that failed for load. */
  readonly #backoff: Backoff;
  /** Nothing is requested before this time. */
  #notBefore = 0;

  /** `select` returns the URL to dial after so many failures in a row. */
  constructor(
    env: Environment,
    select: (failures: number) => Promise<string>,
    listener: Listener,
    routing: RoutingEvents,
    silenceMs = SILENCE_MS,
  ) {
    this.#env = env;
    this.#listener = listener;
    this.#routing = routing;
    this.#timer = new ResettableTimer(env);
    this.#grace = new ResettableTimer(env);
    this.#flushSoon = soon(env, () => this.#flush());
    this.#backoff = new Backoff(env);
    this.connection = new Connection(env, async (failures) => {
      const url = await select(failures);
      const sockets = (await listener.credentials?.()) ?? env;
      return () => sockets.socket(url, SUBPROTOCOL);
    }, {
      opened: (welcome) => this.#opened(welcome),
      frame: (frame) => this.#received(frame),
      lost: () => {
        if (this.status.value.code === CLOSE_CODES.RATE.code) this.#bucket.drain();
        this.#unverified.clear();
        this.#grace.clear();
        this.#setLiveness(OFFLINE);
      },
    }, silenceMs);
  }

  get status(): Observable<ConnectionStatus> {
    return this.connection.status;
  }

  has(endpoint: string): boolean {
    return this.#subscriptions.has(endpoint);
  }

  isRefused(endpoint: string): boolean {
    return this.#subscriptions.isRefused(endpoint);
  }

  isLive(endpoint: string): boolean {
    return this.#announced.live && this.#subscriptions.isConfirmed(endpoint) && !this.#announced.affected.has(endpoint);
  }

  subscribe(endpoint: string): void {
    this.#subscriptions.add(endpoint);
    this.#flushSoon();
  }

  unsubscribe(endpoint: string): void {
    this.#subscriptions.remove(endpoint);
    this.#flushSoon();
  }

  connect(): void {
    this.connection.open();
  }

  close(): void {
    this.connection.close();
  }

  #opened({ server, subscriptions, traffic, data, fetchWindowMs }: WelcomeFrame): void {
    this.#fetchWindowMs = fetchWindowMs;
    this.#more = { client: traffic ? this.#env.client : undefined, data: (data && this.#listener.data) || undefined };
    this.#subscriptions.reset(subscriptions);
    this.#bucket = new TokenBucket(this.#env, server, subscriptions);
    if (this.#expires) this.#bucket.charge(0); // its `auth`
    this.#announced = ONLINE;
    this.#flush();
  }

  /** Applies the server's status; unregistered and refused endpoints are not live either. */
  #setLiveness(announced: LiveStatus): void {
    this.#announced = announced;
    for (const name of this.#unverified.keys()) this.#verify(name);
    const live = announced.live ? { ...announced, affected: new Set([...announced.affected, ...this.#subscriptions.unconfirmed]) } : announced;
    if (!sameLive(live, this.live.value)) this.live.set(live);
  }

  /** Sends missing requests within the server's rate; those that accumulate meanwhile become one message. */
  #flush(): void {
    this.#timer.clear();
    const excess = this.connection.isOpen ? this.#subscriptions.refuseExcess() : [];
    if (excess.length > 0) this.#routing.refused(excess);
    this.#setLiveness(this.#announced);
    while (this.connection.isOpen && !this.#subscriptions.isSynced) {
      const wait = Math.max(this.#bucket.wait, this.#notBefore - this.#env.now());
      if (wait > 0) return this.#timer.set(wait, () => this.#flush());
      const message = this.#subscriptions.next((endpoint) => this.#listener.held(endpoint));
      if (message === null) return;
      this.#bucket.charge(Object.keys(message.endpoints).length);
      this.connection.send(message.type === "subscribe" ? { ...message, ...this.#more } : message);
      this.#more.client = undefined;
    }
  }

  #received(frame: ServerFrame | null): void {
    this.#listener.frame(frame);
    switch (frame?.type) {
      case "update":
        // A version from the future would block all later ones: it is forged, or this clock is wrong, so it is fetched instead.
        if (frame.version > this.#env.wall()) checkClock(this.#env, frame.version);
        if (frame.version > this.#env.wall() + FUTURE_MS) return this.#listener.resync([frame.endpoint]);
        if (this.#unverified.has(frame.endpoint)) this.#unverified.set(frame.endpoint, frame.version);
        return this.#listener.updated(frame);
      case "authenticated":
        if (this.#expires !== frame.expires) this.#subscriptions.retry("forbidden");
        this.#expires = frame.expires;
        return this.#flushSoon();
      case "subscribed":
        this.#backoff.failures = 0;
        this.#registered(this.#subscriptions.confirmed(frame.id, Object.keys(frame.endpoints)), frame.endpoints);
        this.#routing.refused(this.#subscriptions.rejected(frame.id, frame.rejected));
        return this.#setLiveness(this.#announced);
      case "unsubscribed":
        this.#subscriptions.retry("limit", frame.endpoints.length); // as many as there are places now
        // Their status goes with them: a proxy sends it again when they are subscribed again.
        this.#setLiveness(nextLive(this.#announced, { live: true, since: null, endpoints: frame.endpoints }));
        return this.#flushSoon();
      case "status":
        return this.#setLiveness(nextLive(this.#announced, frame));
      case "resync":
        return this.#listener.resync(frame.endpoints);
      case "moved":
        return this.#routing.moved(frame.endpoints, frame.owner);
      case "error":
        return this.#failed(frame.id, frame);
    }
  }

  #registered(names: readonly string[], versions: Record<string, number | null>): void {
    this.#routing.subscribed(names);
    for (const name of names) {
      const version = versions[name] ?? null;
      if (version !== null || this.isLive(name)) this.#unverified.set(name, version ?? 0);
      if (!this.#verify(name)) this.#listener.registered(name, null, this.#fetchWindowMs);
    }
  }

  /**
   * Passes on what the server retains, if that says something: the server is live, and has what the client holds. A server that
   * is behind reads on; `isLate`: it had the time to catch up.
   */
  #verify(name: string, isLate = false): boolean {
    const version = this.#unverified.get(name);
    if (version === undefined || !this.isLive(name)) return false;
    if (!isLate && version < this.#listener.held(name)) {
      if (!this.#grace.isSet) this.#grace.set(GRACE_MS, () => [...this.#unverified.keys()].forEach((each) => this.#verify(each, true)));
      return false;
    }
    this.#unverified.delete(name);
    this.#listener.registered(name, version, this.#fetchWindowMs);
    return true;
  }

  /** An `error` reply: request `id` registered nothing. Without an id it belongs to no request of this client. */
  #failed(id: number | null, error: Rejection): void {
    if (id === null) return;
    const names = this.#subscriptions.requestedBy(id);
    if (names.length === 0) return this.connection.redial(error.code); // an unsubscribe: a new connection restores agreement
    if (error.code === "rate" || error.code === "limit") {
      // Unrelated to the names: the server, or a proxy, is overloaded.
      this.#subscriptions.failed(id);
      this.#notBefore = this.#env.now() + this.#backoff.next();
      return this.#flushSoon();
    }
    const rejection = { code: error.code, message: error.message };
    this.#routing.refused(this.#subscriptions.rejected(id, Object.fromEntries(names.map((name) => [name, rejection]))));
  }
}
