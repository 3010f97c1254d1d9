/** One connection and its book: keeps the server's set of subscriptions what is wanted of it, within the server's rate. */

import type { ConnectionStatus } from "./connection.ts";
import { Connection, SILENCE_MS } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { Ledger } from "./ledger.ts";
import type { LiveStatus } from "./live.ts";
import { OFFLINE, ONLINE, nextLive } from "./live.ts";
import type { Rejection, ServerFrame, UpdateFrame } from "./messages.ts";
import type { Observable } from "./observable.ts";
import { Subject } from "./observable.ts";
import { Permits } from "./pace.ts";
import { Alarm, soon } from "./timers.ts";

/** What carries subscriptions: one line, or as many as there are owners. */
export interface Lines {
  readonly status: Observable<ConnectionStatus>;
  readonly live: Observable<LiveStatus>;
  want(endpoint: string): void;
  release(endpoint: string): void;
  /** Whether the name was refused, as far as anybody knows now. */
  isRefused(endpoint: string): boolean;
  connect(): void;
  close(): void;
}

/** What the views' side hears, whichever line it comes from. */
export interface Ear {
  /** The version of the data the client holds; 0 = none. */
  held(endpoint: string): number;
  /** Every frame, before anything else hears of it; null stands for one that this SDK does not know. */
  frame(frame: ServerFrame | null): void;
  updated(frame: UpdateFrame): void;
  resync(endpoints: readonly string[]): void;
  refused(endpoint: string, rejection: Rejection): void;
}

/** What the server says about where it serves what. */
export interface Placing {
  /** The server answered for these. */
  subscribed(endpoints: readonly string[]): void;
  /** These it refused, `not_owner` among other codes. */
  refused(refused: readonly [string, Rejection][]): void;
  moved(endpoints: readonly string[], owner: string | null): void;
}

/** Below the server's allowance of 20 at once and 100 a minute. */
const BURST = 15;
const INTERVAL_MS = 700;

export class Line implements Lines {
  readonly #env: Environment;
  readonly #ear: Ear;
  readonly #placing: Placing;
  readonly connection: Connection;
  readonly live = new Subject(OFFLINE);
  readonly #ledger = new Ledger();
  readonly #alarm: Alarm;
  readonly #flushSoon: () => void;
  #permits: Permits;

  /** `server` gives the URL to dial after so many failures in a row. */
  constructor(
    env: Environment,
    server: (failures: number) => Promise<string>,
    ear: Ear,
    placing: Placing,
    silenceMs = SILENCE_MS,
  ) {
    this.#env = env;
    this.#ear = ear;
    this.#placing = placing;
    this.#alarm = new Alarm(env);
    this.#flushSoon = soon(env, () => this.#flush());
    this.#permits = new Permits(BURST, INTERVAL_MS, env.now());
    this.connection = new Connection(env, server, {
      opened: () => this.#opened(),
      frame: (frame) => this.#received(frame),
      lost: () => this.live.set(OFFLINE),
    }, silenceMs);
  }

  get status(): Observable<ConnectionStatus> {
    return this.connection.status;
  }

  wants(endpoint: string): boolean {
    return this.#ledger.wants(endpoint);
  }

  isRefused(endpoint: string): boolean {
    return this.#ledger.isRefused(endpoint);
  }

  /** Wants it here; what is wanted already is asked for again. */
  want(endpoint: string): void {
    if (this.#ledger.wants(endpoint)) this.#ledger.renew(endpoint);
    else this.#ledger.want(endpoint);
    this.#flushSoon();
  }

  release(endpoint: string): void {
    this.#ledger.release(endpoint);
    this.#flushSoon();
  }

  connect(): void {
    this.connection.open();
  }

  close(): void {
    this.connection.close();
  }

  #opened(): void {
    this.#ledger.reset();
    this.#permits = new Permits(BURST, INTERVAL_MS, this.#env.now());
    this.live.set(ONLINE);
    this.#flush();
  }

  /** Sends what is missing, as far as the pace allows; the rest waits, and shrinks when views change their mind. */
  #flush(): void {
    this.#alarm.clear();
    while (this.connection.isOpen && !this.#ledger.settled) {
      const wait = this.#permits.wait(this.#env.now());
      if (wait > 0) {
        return this.#alarm.set(wait, () => this.#flush());
      }
      const message = this.#ledger.next((endpoint) => this.#ear.held(endpoint));
      if (message === null) return;
      this.#permits.take();
      this.connection.send(message);
    }
  }

  #received(frame: ServerFrame | null): void {
    this.#ear.frame(frame);
    switch (frame?.type) {
      case "update":
        return this.#ear.updated(frame);
      case "subscribed":
        this.#placing.subscribed(Object.keys(frame.endpoints));
        return this.#refuse(this.#ledger.rejected(frame.id, frame.rejected));
      case "unsubscribed":
        this.#ledger.retryLimited();
        // What was said of them goes with them: a proxy says it again if they are asked for again.
        if (frame.endpoints.some((endpoint) => this.live.value.affected.has(endpoint))) {
          this.live.set(nextLive(this.live.value, { live: true, since: null, endpoints: frame.endpoints }));
        }
        return this.#flushSoon();
      case "status":
        return this.live.set(nextLive(this.live.value, frame));
      case "resync":
        return this.#ear.resync(frame.endpoints);
      case "moved":
        return this.#placing.moved(frame.endpoints, frame.owner);
      case "error":
        return this.#failed(frame.id, frame);
    }
  }

  #refuse(refused: readonly [string, Rejection][]): void {
    if (refused.length > 0) this.#placing.refused(refused);
  }

  /** An `error` reply: request `id` registered nothing. Without an id it belongs to no request of ours. */
  #failed(id: number | null, error: Rejection): void {
    if (id === null) return;
    const names = this.#ledger.askedWith(id);
    if (names.length === 0) return this.connection.redial(error.code); // an unsubscribe: a new connection restores agreement
    if (error.code === "rate") {
      this.#ledger.failed(id);
      this.#permits.drain();
      return this.#flushSoon();
    }
    const rejection = { code: error.code, message: error.message };
    this.#refuse(this.#ledger.rejected(id, Object.fromEntries(names.map((name) => [name, rejection]))));
  }
}
