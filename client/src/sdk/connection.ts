/** Keeps one WebSocket open: dials, detects silence, and reconnects by the protocol's close codes and delays. */

import { CLOSE_CODES, reconnects, retryWindow } from "./codes.ts";
import type { Environment, Socket } from "./environment.ts";
import type { DataError } from "./http.ts";
import type { ClientMessage, ServerFrame, WelcomeFrame } from "./messages.ts";
import { parseFrame } from "./messages.ts";
import { Subject } from "./observable.ts";
import { Backoff, CAP_MS } from "./backoff.ts";
import { ResettableTimer } from "./timers.ts";

/** `connecting` is the first dial only; `closed` is final until `open()` is called again. */
export type ConnectionState = "connecting" | "open" | "reconnecting" | "closed";

export interface ConnectionStatus {
  readonly state: ConnectionState;
  /** Close code of the last connection; null before that, and when it was never open. */
  readonly code: number | null;
  /** Why it is not open, for people; `origin: …`, `limit: …` and the like where servers refuse the page (`refusals.ts`). */
  readonly reason: string;
  /** When the next dial is due, on the clock of `Environment.now`; null when none is. */
  readonly retryAt: number | null;
  /** The server's name, and the mode it runs in. */
  readonly server: string;
  readonly mode: string;
  /** `poll` where updates come over HTTP, because no WebSocket gets through (`polling.ts`). */
  readonly transport?: "poll";
}

export interface ConnectionHandlers {
  /** The server has sent its `welcome`, and messages may be sent. */
  opened(welcome: WelcomeFrame): void;
  /** A frame was received; null stands for one that this SDK does not know. */
  frame(frame: ServerFrame | null): void;
  /** The open connection was closed. */
  lost(): void;
}

const WELCOME_MS = 10_000;
const STABLE_MS = 60_000;
/** An open connection of this age has ended the outage before it. */
const HELD_MS = 10_000;
/** A shorter interval that a server announces is taken for this one: networks are late by more. */
const MIN_HEARTBEAT_MS = 1_000;
/** Frames that wait behind a late timer are delivered within this. */
const LATE_MS = 500;

/** Without a frame for so long a server counts as hung: two of the intervals that it announces; `usualMs` without, and at most. */
export function silenceLimitMs(heartbeatMs: number, usualMs: number): number {
  return heartbeatMs > 0 ? Math.min(2 * Math.max(heartbeatMs, MIN_HEARTBEAT_MS), usualMs) : usualMs;
}

export class Connection {
  readonly #env: Environment;
  readonly #select: (failures: number) => Promise<() => Socket>;
  readonly #handlers: ConnectionHandlers;
  readonly #backoff: Backoff;
  /** Where the server does not announce that it sends frames more often. */
  readonly #usualSilenceMs: number;
  #silenceMs = 0;
  readonly status = new Subject<ConnectionStatus>({
    state: "closed", code: null, reason: "", retryAt: null, server: "", mode: "",
  });
  #socket: Socket | null = null;
  readonly #timer: ResettableTimer;
  /** When the last frame was received, on the clocks of `Environment.now` and `Environment.wall`. */
  #receivedAt = 0;
  #receivedOn = 0;
  #openedAt = 0;
  /** Counts dials: an answer to an earlier one is void. */
  #dial = 0;

  /** `select` chooses the server to dial after so many failures in a row; what it returns opens the socket. */
  constructor(
    env: Environment,
    select: (failures: number) => Promise<() => Socket>,
    handlers: ConnectionHandlers,
    silenceMs: number,
  ) {
    this.#usualSilenceMs = silenceMs;
    this.#env = env;
    this.#select = select;
    this.#handlers = handlers;
    this.#backoff = new Backoff(env);
    this.#timer = new ResettableTimer(env);
  }

  get isOpen(): boolean {
    return this.status.value.state === "open";
  }

  /** Dials now, unless a dial is pending, or there is a connection that has not been silent. */
  open(): void {
    const { state, retryAt } = this.status.value;
    if (state === "closed") {
      this.#backoff.failures = 0;
      this.#backoff.since = this.#env.now();
      this.#set({ state: "connecting", code: null, reason: "" });
    } else if (retryAt === null) {
      // While a machine is asleep its monotonic clock may stand still, and its timers with it.
      const silent = this.isOpen ? this.#env.wall() - this.#receivedOn : -1;
      if (silent >= this.#usualSilenceMs) this.redial("silence");
      else if (silent >= this.#silenceMs) this.#confirm();
      return;
    }
    void this.#connect();
  }

  /** Closes for good, until `open()`. */
  close(): void {
    this.#end({ state: "closed", code: 1000, reason: "", retryAt: null }, null);
  }

  /** Gives the connection up and dials again after the usual delay. */
  redial(reason: string): void {
    if (this.status.value.state !== "closed") this.#lost(null, reason);
  }

  /** Bounds the back-off window, as usual without `ms`; one that a server asks for may be longer. */
  cap(ms = CAP_MS): void {
    this.#backoff.capMs = ms;
  }

  /**
   * Forgets the failures and dials within `windowMs`, if the next attempt is waited for; returns whether it is. A server that
   * asked for the delay gets it, because it may be overloaded; one that restarts has nothing to spare.
   */
  expedite(windowMs: number): boolean {
    const { code, reason, retryAt } = this.status.value;
    if (retryAt === null) return false;
    if (code !== null && code !== CLOSE_CODES.RESTART.code && retryWindow(reason) !== null) return false;
    this.#backoff.failures = 0;
    const at = Math.min(retryAt, this.#env.now() + this.#env.random() * windowMs);
    this.#timer.set(at - this.#env.now(), () => void this.#connect());
    this.#set({ retryAt: at });
    return true;
  }

  /** Sends on the open connection; the caller has checked `isOpen`. */
  send(message: ClientMessage): void {
    this.#socket?.send(JSON.stringify(message));
  }

  async #connect(): Promise<void> {
    const dial = ++this.#dial;
    this.#timer.clear();
    this.#set({ retryAt: null });
    try {
      const socket = await this.#select(this.#backoff.failures);
      if (dial === this.#dial) this.#listen(socket());
    } catch (error) {
      // The configuration is read over HTTP, and a failure may have a Retry-After.
      if (dial === this.#dial) this.#lost(null, "no server to dial", (error as Partial<DataError>).retryAfterMs ?? 0);
    }
  }

  #listen(socket: Socket): void {
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#received(parseFrame(data));
    socket.onclose = ({ code, reason }) => this.#lost(code, reason);
    this.#timer.set(WELCOME_MS, () => this.#lost(null, "no welcome"));
  }

  #received(frame: ServerFrame | null): void {
    this.#receivedAt = this.#env.now();
    this.#receivedOn = this.#env.wall();
    if (frame?.type === "welcome" && !this.isOpen) {
      this.#openedAt = this.#receivedAt;
      this.#silenceMs = silenceLimitMs(frame.heartbeatMs, this.#usualSilenceMs);
      this.#watch(this.#silenceMs);
      this.#set({ state: "open", code: null, reason: "", server: frame.server, mode: frame.mode });
      this.#handlers.opened(frame);
    }
    this.#handlers.frame(frame);
  }

  /** A browser cannot see WebSocket pings: silence is the only sign of a dead line. */
  #watch(ms: number): void {
    this.#timer.set(ms, () => {
      const left = this.#receivedAt + this.#silenceMs - this.#env.now();
      if (left > 0) this.#watch(left);
      else this.#confirm();
    });
  }

  /** A page that was busy, hidden or asleep has late timers: frames may wait behind them. */
  #confirm(): void {
    const before = this.#receivedOn;
    this.#timer.set(LATE_MS, () => {
      if (this.#receivedOn === before) this.#lost(null, "silence");
      else this.#watch(this.#silenceMs);
    });
  }

  /** `atLeast`: `Retry-After` in milliseconds; the random delay comes on top of it. */
  #lost(code: number | null, reason: string, atLeast = 0): void {
    if (code !== null && !reconnects(code)) return this.#end({ state: "closed", code, reason, retryAt: null }, null);
    const lasted = this.isOpen ? this.#env.now() - this.#openedAt : 0;
    if (lasted >= HELD_MS) this.#backoff.since = this.#env.now();
    if (lasted >= STABLE_MS) this.#backoff.failures = 0;
    const delay = atLeast + this.#backoff.next(code === null ? null : retryWindow(reason));
    if (code === CLOSE_CODES.RESTART.code) this.#backoff.failures -= 1; // a restart is intended, and no failure
    this.#end({ state: "reconnecting", code, reason, retryAt: this.#env.now() + delay }, delay);
  }

  #end(status: Partial<ConnectionStatus>, redialMs: number | null): void {
    const wasOpen = this.isOpen;
    const socket = this.#socket;
    this.#dial += 1;
    this.#socket = null;
    this.#timer.clear();
    if (redialMs !== null) this.#timer.set(redialMs, () => void this.#connect());
    if (socket !== null) {
      socket.onmessage = socket.onclose = null; // its last events may come a minute late
      socket.close();
    }
    this.#set(status);
    if (wasOpen) this.#handlers.lost();
  }

  #set(change: Partial<ConnectionStatus>): void {
    this.status.set({ ...this.status.value, ...change });
  }
}
