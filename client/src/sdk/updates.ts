/** The UpdatesService: views subscribe to endpoints and are told of changes, over one connection for the whole tab. */

import type { ConnectionStatus } from "./connection.ts";
import { Connection } from "./connection.ts";
import type { Environment, Timer } from "./environment.ts";
import { Ledger } from "./ledger.ts";
import type { LiveStatus } from "./live.ts";
import { OFFLINE, ONLINE, nextLive } from "./live.ts";
import type { Rejection, ServerFrame, UpdateFrame } from "./messages.ts";
import { isEndpoint } from "./messages.ts";
import type { Observable } from "./observable.ts";
import { Subject } from "./observable.ts";
import { Permits } from "./pace.ts";
import type { Callback, View } from "./views.ts";
import { Views } from "./views.ts";

/** Ends the subscription; calling it again does nothing. */
export type Subscription = () => void;

export interface UpdatesOptions {
  /** The server to dial after so many failures in a row. */
  server(failures: number): Promise<string>;
  /** The version of the data the client holds; 0 = none. */
  held(endpoint: string): number;
  /** The server says that configuration is out of date. */
  moved?(): void;
  /** Part of the data may be older than it seems: called before the views hear `resync`. */
  resynced?(endpoints: readonly string[]): void;
}

/** Below the server's allowance of 20 at once and 100 a minute. */
const BURST = 15;
const INTERVAL_MS = 700;

export class UpdatesService {
  readonly stats = { frames: 0, updateFrames: 0 };
  readonly #env: Environment;
  readonly #options: UpdatesOptions;
  readonly #connection: Connection;
  readonly #live = new Subject(OFFLINE);
  readonly #ledger = new Ledger();
  readonly #views: Views;
  readonly #told = new Map<string, number>();
  #permits: Permits;
  #flushing = false;
  #timer: Timer = null;

  constructor(env: Environment, options: UpdatesOptions) {
    this.#env = env;
    this.#options = options;
    this.#views = new Views((error) => env.report(error));
    this.#permits = new Permits(BURST, INTERVAL_MS, env.now());
    this.#connection = new Connection(env, options.server, {
      opened: () => this.#opened(),
      frame: (frame) => this.#received(frame),
      lost: () => this.#live.set(OFFLINE),
    });
  }

  get connection(): Observable<ConnectionStatus> {
    return this.#connection.status;
  }

  get live(): Observable<LiveStatus> {
    return this.#live;
  }

  /** Whether changes of this endpoint arrive as they happen. */
  isLive(endpoint: string): boolean {
    return this.#live.value.live && !this.#live.value.affected.has(endpoint);
  }

  /** Endpoints with at least one view. */
  get subscriptions(): number {
    return this.#ledger.size;
  }

  /** Whether a view is subscribed and will hear of changes, as far as anybody knows. */
  isWatched(endpoint: string): boolean {
    return this.#ledger.wants(endpoint) && !this.#ledger.isRefused(endpoint);
  }

  /** The latest version a view was told about; 0 = none. */
  told(endpoint: string): number {
    return this.#told.get(endpoint) ?? 0;
  }

  /** Connects, or dials now instead of waiting for the next attempt. Does nothing while connected. */
  connect(): void {
    this.#connection.open();
  }

  /** Disconnects until `connect()`; subscriptions stay. */
  close(): void {
    this.#connection.close();
  }

  /**
   * Calls `callback` for every change of `endpoint` from now on, each with a greater version than the last. Any number
   * of views share one subscription at the server. Throws `TypeError` for what is no endpoint name.
   */
  subscribe(endpoint: string, callback: Callback): Subscription {
    if (!isEndpoint(endpoint)) throw new TypeError(`not an endpoint name: ${endpoint}`);
    const view: View = { callback };
    if (this.#views.add(endpoint, view)) {
      this.#ledger.want(endpoint);
      this.#flushSoon();
    }
    return () => this.#remove(endpoint, view);
  }

  /** Ends one subscription of `callback` to `endpoint`; without one, does nothing. */
  unsubscribe(endpoint: string, callback: Callback): void {
    const view = this.#views.find(endpoint, callback);
    if (view !== null) this.#remove(endpoint, view);
  }

  #remove(endpoint: string, view: View): void {
    if (!this.#views.remove(endpoint, view)) return;
    this.#ledger.release(endpoint);
    this.#told.delete(endpoint); // the next subscription starts from what is held, or a told but never fetched version is lost
    this.#flushSoon();
  }

  #opened(): void {
    this.#ledger.reset();
    this.#permits = new Permits(BURST, INTERVAL_MS, this.#env.now());
    this.#live.set(ONLINE);
    this.#flush();
  }

  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#env.microtask(() => this.#flush());
  }

  /** Sends what is missing, as far as the pace allows; the rest waits, and shrinks when views change their mind. */
  #flush(): void {
    this.#flushing = false;
    this.#env.cancel(this.#timer);
    while (this.#connection.isOpen && !this.#ledger.settled) {
      const wait = this.#permits.wait(this.#env.now());
      if (wait > 0) {
        this.#timer = this.#env.later(wait, () => this.#flush());
        return;
      }
      const message = this.#ledger.next((endpoint) => this.#options.held(endpoint));
      if (message === null) return;
      this.#permits.take();
      this.#connection.send(message);
    }
  }

  #received(frame: ServerFrame | null): void {
    this.stats.frames += 1;
    switch (frame?.type) {
      case "update":
        this.stats.updateFrames += 1;
        return this.#updated(frame);
      case "subscribed":
        return this.#refuse(this.#ledger.rejected(frame.id, frame.rejected));
      case "unsubscribed":
        this.#ledger.retryLimited();
        return this.#flushSoon();
      case "status":
        return this.#live.set(nextLive(this.#live.value, frame));
      case "resync": {
        const wanted = frame.endpoints.filter((endpoint) => this.#ledger.wants(endpoint));
        this.#options.resynced?.(wanted);
        for (const endpoint of wanted) this.#views.notify(endpoint, { type: "resync", endpoint });
        return;
      }
      case "moved":
        return this.#move();
      case "error":
        return this.#failed(frame.id, frame);
    }
  }

  /** The drop rule: only what is wanted, and newer than what is held and than what was told. */
  #updated(frame: UpdateFrame): void {
    const { endpoint, version } = frame;
    if (!this.#ledger.wants(endpoint)) return;
    if (version <= Math.max(this.#options.held(endpoint), this.told(endpoint))) return;
    this.#told.set(endpoint, version);
    this.#views.notify(endpoint, frame);
  }

  #refuse(refused: [string, Rejection][]): void {
    for (const [endpoint, rejection] of refused) {
      if (rejection.code === "not_owner") return this.#move();
      this.#views.notify(endpoint, { type: "rejected", endpoint, ...rejection });
    }
  }

  /** An `error` reply: request `id` registered nothing. Without an id it belongs to no request of ours. */
  #failed(id: number | null, error: Rejection): void {
    if (id === null) return;
    const names = this.#ledger.askedWith(id);
    if (names.length === 0) return this.#connection.redial(error.code); // an unsubscribe: a new connection restores agreement
    if (error.code === "rate") {
      this.#ledger.failed(id);
      this.#permits.drain();
      return this.#flushSoon();
    }
    const rejection = { code: error.code, message: error.message };
    this.#refuse(this.#ledger.rejected(id, Object.fromEntries(names.map((name) => [name, rejection]))));
  }

  #move(): void {
    this.#options.moved?.();
    this.#connection.redial("moved");
  }
}
