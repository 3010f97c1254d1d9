/** The UpdatesService: views subscribe to endpoints and are notified of changes, whatever connections that takes. */

import type { Update } from "./cache.ts";
import type { TransportOptions } from "./transport.ts";
import { TransportSwitch } from "./transport.ts";
import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { Listener } from "./session.ts";
import type { LiveStatus } from "./liveness.ts";
import type { ServerFrame, UpdateFrame } from "./messages.ts";
import { isEndpoint } from "./messages.ts";
import type { Observable } from "./observable.ts";
import type { Callback, Subscriber } from "./subscribers.ts";
import { Subscribers } from "./subscribers.ts";

/** The reply to a subscription, with data, is waited for so long. */
const REPLY_MS = 2_000;

/** Ends the subscription; calling it again does nothing. */
export type Subscription = () => void;

export interface UpdatesOptions extends TransportOptions {
  /** Presents a token to every server; without it, none is presented. */
  credentials?: Listener["credentials"];
  /** The version of the data the client holds; 0 = none. */
  held(endpoint: string): number;
  /** These endpoints must be fetched again: called before the views get `resync`. */
  resynced?(endpoints: readonly string[]): void;
  /**
   * Called with an update before the views are, and when the reply to a subscription has no update after it: `version` is what
   * the server retains then, null if that is not known. Servers are asked for the data of updates if there is such a function.
   */
  updated?(update: Update): void;
}

export class UpdatesService {
  readonly stats = { frames: 0, updateFrames: 0 };
  readonly #env: Environment;
  readonly #options: UpdatesOptions;
  readonly #views: Subscribers;
  /** No entry: the subscription has had no reply yet. */
  readonly #told = new Map<string, number>();
  /** Endpoint -> milliseconds over which fetches are spread, as its server asks. */
  readonly #fetchWindows = new Map<string, number>();
  /** Endpoint -> ends the wait for the reply to its subscription. */
  readonly #waiting = new Map<string, () => void>();
  readonly #transport: TransportSwitch;

  constructor(env: Environment, options: UpdatesOptions) {
    this.#env = env;
    this.#options = options;
    this.#views = new Subscribers((error) => env.report(error));
    const listener: Listener = {
      credentials: options.credentials,
      data: !!options.updated,
      held: (endpoint) => options.held(endpoint),
      frame: (frame) => this.#count(frame),
      updated: (frame) => this.#updated(frame),
      resync: (endpoints) => {
        for (const endpoint of endpoints) if (this.#told.has(endpoint)) this.#told.set(endpoint, 0);
        this.#resync(endpoints);
      },
      registered: (endpoint, version, fetchWindowMs) => {
        this.#fetchWindows.set(endpoint, fetchWindowMs);
        const held = options.held(endpoint);
        if (version !== null && version < held) {
          // The held data no longer exists, or this server lags: a request decides.
          this.#told.set(endpoint, version);
          this.#resync([endpoint]);
        } else if ((version ?? 0) <= held) this.#replied({ endpoint, version });
      },
      refused: (endpoint, rejection) => {
        this.#replied({ endpoint, version: null });
        this.#views.notify(endpoint, { type: "rejected", endpoint, ...rejection });
      },
    };
    this.#transport = new TransportSwitch(env, listener, options, () => this.#views.endpoints);
    this.connection.observe(() => {
      if (!this.#isSoon) for (const done of this.#waiting.values()) done();
    });
  }

  /** The status of all connections as one: that of the worst. */
  get connection(): Observable<ConnectionStatus> {
    return this.#transport.status;
  }

  get live(): Observable<LiveStatus> {
    return this.#transport.live;
  }

  /** Whether updates of this endpoint are current: it is subscribed, a server has registered it, and that server is live. */
  isLive(endpoint: string): boolean {
    return this.#transport.current.isLive(endpoint);
  }

  /** Endpoints with at least one view. */
  get subscriptions(): number {
    return this.#views.size;
  }

  /** Whether a view is subscribed and not known to be refused. */
  isWatched(endpoint: string): boolean {
    return this.#views.has(endpoint) && !this.#transport.current.isRefused(endpoint);
  }

  /** The latest version that views were notified of; 0 = none. */
  told(endpoint: string): number {
    return this.#told.get(endpoint) ?? 0;
  }

  /** Window in milliseconds for spreading fetches after announcements, set by the endpoint's server. */
  fetchWindowMs(endpoint: string): number {
    return this.#fetchWindows.get(endpoint) ?? 0;
  }

  /**
   * Resolves when the server has replied to the subscription, with data if it has any; after two seconds at the latest, or when
   * there is no connection. Undefined: it has replied, or data is not asked for.
   */
  replied(endpoint: string): Promise<void> | undefined {
    if (!this.#options.updated || this.#told.has(endpoint) || !this.isWatched(endpoint) || !this.#isSoon) return;
    return new Promise((resolve) => {
      const done = (): void => {
        this.#env.cancel(timer);
        this.#waiting.delete(endpoint);
        resolve();
      };
      const timer = this.#env.later(REPLY_MS, done);
      this.#waiting.set(endpoint, done);
    });
  }

  /** Connects, or dials now instead of waiting for the next attempt. Does nothing while connected, unless that was silent for long. */
  connect(): void {
    this.#transport.current.connect();
  }

  /** Disconnects until `connect()`; subscriptions stay. */
  close(): void {
    this.#transport.current.close();
  }

  /**
   * Calls `callback` for every change of `endpoint` from now on, each with a greater version than the last. Any number
   * of views share one subscription at the server. Throws `TypeError` for what is no endpoint name.
   */
  subscribe(endpoint: string, callback: Callback): Subscription {
    if (!isEndpoint(endpoint)) throw new TypeError(`not an endpoint name: ${endpoint}`);
    const view: Subscriber = { callback };
    if (this.#views.add(endpoint, view)) this.#transport.current.subscribe(endpoint);
    return () => this.#remove(endpoint, view);
  }

  /** Ends one subscription of `callback` to `endpoint`; without one, does nothing. */
  unsubscribe(endpoint: string, callback: Callback): void {
    const view = this.#views.find(endpoint, callback);
    if (view !== null) this.#remove(endpoint, view);
  }

  #remove(endpoint: string, view: Subscriber): void {
    if (!this.#views.remove(endpoint, view)) return;
    this.#transport.current.unsubscribe(endpoint);
    this.#fetchWindows.delete(endpoint);
    this.#told.delete(endpoint); // the next subscription starts from what is held, or a version that was announced but never fetched is lost
  }

  #count(frame: ServerFrame | null): void {
    this.stats.frames += 1;
    if (frame?.type === "update") this.stats.updateFrames += 1;
  }

  /** Whether a reply to a subscription can be expected. */
  get #isSoon(): boolean {
    return /^(?:connecting|open)$/.test(this.connection.value.state);
  }

  /** A server has replied to the subscription, with an update or without. */
  #replied(update: Update): void {
    const { endpoint, version } = update;
    if (!this.#views.has(endpoint)) return;
    this.#told.set(endpoint, Math.max(this.told(endpoint), version ?? 0));
    this.#options.updated?.(update);
    this.#waiting.get(endpoint)?.();
  }

  /** The drop rule: only subscribed updates newer than the held version; views get those newer than announced. */
  #updated(frame: UpdateFrame): void {
    const { endpoint, version } = frame;
    const told = this.told(endpoint);
    if (!this.#views.has(endpoint) || version <= this.#options.held(endpoint)) return;
    this.#replied(frame);
    if (version <= told) return;
    this.#views.notify(endpoint, frame);
  }

  #resync(endpoints: readonly string[]): void {
    const wanted = endpoints.filter((endpoint) => this.#views.has(endpoint));
    this.#options.resynced?.(wanted);
    for (const endpoint of wanted) {
      this.#waiting.get(endpoint)?.();
      this.#views.notify(endpoint, { type: "resync", endpoint });
    }
  }
}
