/** The UpdatesService: views subscribe to endpoints and are notified of changes, whatever connections that takes. */

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

/** Ends the subscription; calling it again does nothing. */
export type Subscription = () => void;

export interface UpdatesOptions extends TransportOptions {
  /** Presents a token to every server; without it, none is presented. */
  credentials?: Listener["credentials"];
  /** The version of the data the client holds; 0 = none. */
  held(endpoint: string): number;
  /** These endpoints must be fetched again: called before the views get `resync`. */
  resynced?(endpoints: readonly string[]): void;
}

export class UpdatesService {
  readonly stats = { frames: 0, updateFrames: 0 };
  readonly #options: UpdatesOptions;
  readonly #views: Subscribers;
  readonly #told = new Map<string, number>();
  readonly #transport: TransportSwitch;

  constructor(env: Environment, options: UpdatesOptions) {
    this.#options = options;
    this.#views = new Subscribers((error) => env.report(error));
    const listener: Listener = {
      credentials: options.credentials,
      held: (endpoint) => options.held(endpoint),
      frame: (frame) => this.#count(frame),
      updated: (frame) => this.#updated(frame),
      resync: (endpoints) => this.#resync(endpoints),
      refused: (endpoint, rejection) => this.#views.notify(endpoint, { type: "rejected", endpoint, ...rejection }),
    };
    this.#transport = new TransportSwitch(env, listener, options, () => this.#views.endpoints);
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

  /** Whether a view is subscribed and not refused, as far as is known. */
  isWatched(endpoint: string): boolean {
    return this.#views.has(endpoint) && !this.#transport.current.isRefused(endpoint);
  }

  /** The latest version that views were notified of; 0 = none. */
  told(endpoint: string): number {
    return this.#told.get(endpoint) ?? 0;
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
    this.#told.delete(endpoint); // the next subscription starts from what is held, or a version that was announced but never fetched is lost
  }

  #count(frame: ServerFrame | null): void {
    this.stats.frames += 1;
    if (frame?.type === "update") this.stats.updateFrames += 1;
  }

  /** The drop rule: only what is subscribed, and newer than what is held and what was announced. */
  #updated(frame: UpdateFrame): void {
    const { endpoint, version } = frame;
    if (!this.#views.has(endpoint)) return;
    if (version <= Math.max(this.#options.held(endpoint), this.told(endpoint))) return;
    this.#told.set(endpoint, version);
    this.#views.notify(endpoint, frame);
  }

  #resync(endpoints: readonly string[]): void {
    const wanted = endpoints.filter((endpoint) => this.#views.has(endpoint));
    this.#options.resynced?.(wanted);
    for (const endpoint of wanted) this.#views.notify(endpoint, { type: "resync", endpoint });
  }
}
