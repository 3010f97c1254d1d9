/** One connection and its book: keeps the server's set of subscriptions what is wanted of it, within the server's rate. */

import { CLOSE_CODES } from "./codes.ts";
import type { ConnectionStatus } from "./connection.ts";
import { Connection, SILENCE_MS } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { Ledger } from "./ledger.ts";
import type { LiveStatus } from "./live.ts";
import { OFFLINE, ONLINE, nextLive, sameLive } from "./live.ts";
import type { Rejection, ServerFrame, UpdateFrame, WelcomeFrame } from "./messages.ts";
import type { Observable } from "./observable.ts";
import { Subject } from "./observable.ts";
import { Backoff, Permits } from "./pace.ts";
import { Alarm, soon } from "./timers.ts";

/** What carries subscriptions: one line, or as many as there are owners. */
export interface Lines {
  readonly status: Observable<ConnectionStatus>;
  readonly live: Observable<LiveStatus>;
  want(endpoint: string): void;
  release(endpoint: string): void;
  /** Whether the name was refused, as far as anybody knows now. */
  isRefused(endpoint: string): boolean;
  /** Whether a server has registered it, and says that what it delivers is current. */
  isLive(endpoint: string): boolean;
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
  /** The server has registered these. */
  subscribed(endpoints: readonly string[]): void;
  /** These it refused, `not_owner` among other codes. */
  refused(refused: readonly [string, Rejection][]): void;
  moved(endpoints: readonly string[], owner: string | null): void;
}

export class Line implements Lines {
  readonly #env: Environment;
  readonly #ear: Ear;
  readonly #placing: Placing;
  readonly connection: Connection;
  readonly live = new Subject(OFFLINE);
  /** What the server says; of what it has not registered it says nothing. */
  #said = OFFLINE;
  readonly #ledger = new Ledger();
  readonly #alarm: Alarm;
  readonly #flushSoon: () => void;
  #permits!: Permits;
  /** Of requests that failed for the moment. */
  readonly #backoff: Backoff;
  /** Nothing is asked for before. */
  #notBefore = 0;

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
    this.#backoff = new Backoff(env);
    this.connection = new Connection(env, server, {
      opened: (welcome) => this.#opened(welcome),
      frame: (frame) => this.#received(frame),
      lost: () => {
        if (this.status.value.code === CLOSE_CODES.RATE.code) this.#permits.drain();
        this.#say(OFFLINE);
      },
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

  isLive(endpoint: string): boolean {
    return this.#said.live && this.#ledger.isConfirmed(endpoint) && !this.#said.affected.has(endpoint);
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

  #opened({ server, subscriptions }: WelcomeFrame): void {
    this.#ledger.reset();
    this.#permits = new Permits(this.#env, server, subscriptions);
    this.#said = ONLINE;
    this.#flush();
  }

  /** What the server says, and what it has not registered yet, or refused: nothing of that is live. */
  #say(said: LiveStatus): void {
    this.#said = said;
    const live = said.live ? { ...said, affected: new Set([...said.affected, ...this.#ledger.unconfirmed]) } : said;
    if (!sameLive(live, this.live.value)) this.live.set(live);
  }

  /** Sends what is missing, as far as the pace allows; the rest waits, and shrinks when views change their mind. */
  #flush(): void {
    this.#alarm.clear();
    this.#say(this.#said);
    while (this.connection.isOpen && !this.#ledger.settled) {
      const wait = Math.max(this.#permits.wait, this.#notBefore - this.#env.now());
      if (wait > 0) return this.#alarm.set(wait, () => this.#flush());
      const message = this.#ledger.next((endpoint) => this.#ear.held(endpoint));
      if (message === null) return;
      this.#permits.take(Object.keys(message.endpoints).length);
      this.connection.send(message);
    }
  }

  #received(frame: ServerFrame | null): void {
    this.#ear.frame(frame);
    switch (frame?.type) {
      case "update":
        return this.#ear.updated(frame);
      case "subscribed":
        this.#backoff.reset();
        this.#placing.subscribed(this.#ledger.confirmed(frame.id, Object.keys(frame.endpoints)));
        this.#refuse(this.#ledger.rejected(frame.id, frame.rejected));
        return this.#say(this.#said);
      case "unsubscribed":
        this.#ledger.retryLimited();
        // What was said of them goes with them: a proxy says it again if they are asked for again.
        this.#say(nextLive(this.#said, { live: true, since: null, endpoints: frame.endpoints }));
        return this.#flushSoon();
      case "status":
        return this.#say(nextLive(this.#said, frame));
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
    if (error.code === "rate" || error.code === "limit") {
      // It says nothing about the names: a proxy has too much to do just now.
      this.#ledger.failed(id);
      this.#notBefore = this.#env.now() + this.#backoff.next();
      return this.#flushSoon();
    }
    const rejection = { code: error.code, message: error.message };
    this.#refuse(this.#ledger.rejected(id, Object.fromEntries(names.map((name) => [name, rejection]))));
  }
}
