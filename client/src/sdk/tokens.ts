/**
 * Client tokens (docs/protocol.md section 1.7): requested from the page before a dial and before they expire, and presented on
 * every connection. Loaded only by pages that have a `token` function. It imports types alone: what it shared with the rest
 * would make bundlers split that, which every page loads.
 *
 * The Python client has the same rules (diem/client/tokens.py); tests/cases/tokens.json has the cases that both pass.
 */

import type { Backoff } from "./backoff.ts";
import type { CLOSE_CODES } from "./codes.ts";
import type { Environment, Socket, Timer } from "./environment.ts";
import type { Credentials } from "./session.ts";

/** Returns a token (a JWT, RFC 7519). It may take its time, as one that has the user log in does. */
export type TokenFunction = () => Promise<string> | string;

/** A token is replaced this long before it expires, if it lives for twice as long. */
const MARGIN_MS = 30_000;
/** Servers send a `welcome` and a `status` before they are presented a token. */
const MAX_HELD = 16;
/** A server that replies with an `error`, and has not closed the connection after this, takes no tokens. */
const REFUSED_MS = 500;
/** The id of every `auth`; those of other requests begin at 1. */
const AUTH_ID = 0;
/** Close codes, with the values of the one table. */
const EXPIRED: (typeof CLOSE_CODES)["TOKEN_EXPIRED"]["code"] = 4001;
const REFUSED: (typeof CLOSE_CODES)["UNAUTHORISED"]["code"] = 4501;
const REVOKED: (typeof CLOSE_CODES)["LOGGED_OUT"]["code"] = 4503;

/**
 * Milliseconds until a token is replaced that lives for `life` and expires in `left`: at 80 % of its life, and 30 s before its
 * end, or at half of a life of less than a minute; one that is older than that, after half of what is left. `random` in [0, 1)
 * brings that forward by up to a quarter, so that clients that got their tokens together do not replace them together.
 */
export function refreshDelay(life: number, left: number, random: number): number {
  const age = Math.min(0.8 * life, Math.max(life - MARGIN_MS, life / 2));
  const delay = age - (life - left);
  return (delay > 0 ? delay : left / 2) * (1 - random / 4);
}

/**
 * The life of a token and what is left of it at Unix time `wall`, in milliseconds, by its claims `iat` and `exp`. A clock that
 * is outside of its life is wrong, or the server says so: the token then counts as new. Throws for what is not a JWT.
 */
export function lifetime(token: string, wall: number): { life: number; left: number } {
  const payload = (token.split(".")[1] ?? "").replace(/-/g, "+").replace(/_/g, "/");
  const { exp, iat } = JSON.parse(atob(payload)) as { exp: number; iat: number };
  const life = (exp - iat) * 1000;
  if (!(life > 0)) throw new Error("a token without a life");
  const left = exp * 1000 - wall;
  return { life, left: left > 0 && left < life ? left : life };
}

/** Counts close code 4501 (invalid token): a client tries once more with a new token, in all and at each server. */
export class Refusals {
  readonly #counts = new Map<string, number>();

  /** A server has accepted a token. */
  accepted(url: string): void {
    this.#counts.delete("");
    this.#counts.delete(url);
  }

  /** A server has refused a token; returns whether to give up. `isHeld`: there is no newer token yet. */
  refused(url: string, isHeld: boolean): boolean {
    const count = (key: string, by: number): number => {
      const sum = (this.#counts.get(key) ?? 0) + by;
      this.#counts.set(key, sum);
      return sum;
    };
    return Math.max(count("", isHeld ? 1 : 0), count(url, 1)) > 1;
  }
}

/** The token of a page, for all of its connections: one is requested at a time. */
export class TokenSource implements Credentials {
  /** "" = none. */
  token = "";
  readonly #env: Environment;
  readonly #request: TokenFunction;
  readonly #refusals = new Refusals();
  readonly #backoff: Backoff;
  #timer: Timer = null;
  readonly #sockets = new Set<TokenSocket>();
  #pending: Promise<void> | null = null;
  /** Times of the token's replacement and expiry, on the clock of `Environment.wall`. */
  #dueAt = 0;
  #expiresAt = 0;

  constructor(env: Environment, request: TokenFunction, backoff: Backoff) {
    this.#env = env;
    this.#request = request;
    this.#backoff = backoff;
  }

  /** Resolves when a token is held that has not expired. Rejects when there is none, and the function fails. */
  async ready(): Promise<this> {
    if (!this.token || this.#env.wall() >= this.#dueAt) {
      await this.#replace().catch((error: unknown) => {
        if (!this.token || this.#env.wall() >= this.#expiresAt) throw error;
      });
    }
    return this;
  }

  /** Opens a socket that delivers `welcome` when the server has accepted the token. */
  socket(url: string, protocol: string): Socket {
    const socket = new TokenSocket(this.#env, this, url, this.#env.socket(url, protocol));
    this.#sockets.add(socket);
    this.#schedule();
    return socket;
  }

  /** A server has accepted the token. */
  accepted(url: string): void {
    this.#refusals.accepted(url);
  }

  /** The socket is closed; returns the code for its owner: 4001 in place of a 4501 after which to try a new token. */
  closed(socket: TokenSocket, url: string, token: string, code: number): number {
    this.#sockets.delete(socket);
    if (this.#sockets.size === 0) this.#env.cancel(this.#timer);
    if (code !== EXPIRED && code !== REFUSED && code !== REVOKED) return code;
    const isHeld = token === this.token;
    if (isHeld) this.token = "";
    return code === REFUSED && !this.#refusals.refused(url, isHeld) ? EXPIRED : code;
  }

  #replace(): Promise<void> {
    this.#pending ??= this.#obtain().finally(() => (this.#pending = null));
    return this.#pending;
  }

  async #obtain(): Promise<void> {
    const token = await this.#request();
    const wall = this.#env.wall();
    const { life, left } = lifetime(token, wall);
    if (token === this.token) throw new Error("the token that is held already");
    this.token = token;
    this.#dueAt = wall + refreshDelay(life, left, this.#env.random());
    this.#expiresAt = wall + left;
    this.#backoff.failures = 0;
    this.#schedule();
    for (const socket of this.#sockets) socket.refresh();
  }

  /** Replaces the token when it is due, while there are connections; a dial sees to that itself. */
  #schedule(ms = this.#dueAt - this.#env.wall()): void {
    if (this.#sockets.size === 0) return;
    this.#env.cancel(this.#timer);
    this.#timer = this.#env.later(ms, () => {
      this.#replace().catch(() => this.#schedule(this.#backoff.next()));
    });
  }
}

/** A socket that presents the token: after `welcome`, and whenever there is a new one. Other frames pass through it. */
class TokenSocket implements Socket {
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  readonly #env: Environment;
  readonly #source: TokenSource;
  readonly #url: string;
  readonly #socket: Socket;
  /** Frames that wait for the reply to the first `auth`; null: it has come. */
  #held: { data: unknown }[] | null = [];
  /** The token that was presented last; "" before. */
  #token = "";
  #timer: Timer = null;

  constructor(env: Environment, source: TokenSource, url: string, socket: Socket) {
    this.#env = env;
    this.#source = source;
    this.#url = url;
    this.#socket = socket;
    socket.onmessage = (event) => this.#received(event);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason);
  }

  send(text: string): void {
    this.#socket.send(text);
  }

  close(): void {
    this.#env.cancel(this.#timer);
    this.#source.closed(this, this.#url, this.#token, 1000);
    this.#socket.onmessage = this.#socket.onclose = null; // its last events may come a minute late
    this.#socket.close();
  }

  /** Handles a new token: presents it, unless the first one is still pending. */
  refresh(): void {
    if (!this.#token) return;
    this.#token = this.#source.token;
    this.#socket.send(JSON.stringify({ type: "auth", id: AUTH_ID, token: this.#token }));
  }

  #received(event: { data: unknown }): void {
    const reply = replyOf(event.data);
    const held = this.#held;
    if (reply === "refused") {
      // A server that does not accept the token closes now; one that takes none serves all the same.
      if (held !== null) this.#timer = this.#env.later(REFUSED_MS, () => this.#open());
    } else if (reply === "accepted") {
      this.#source.accepted(this.#url);
      this.onmessage?.(event); // before `welcome`, so that what an earlier token was refused is requested with the first message
      this.#open();
    } else if (held === null) this.onmessage?.(event);
    else if (held.push(event) === 1) void this.#authenticate();
    else if (held.length > MAX_HELD) this.#fail("no reply to the token");
  }

  #open(): void {
    const held = this.#held ?? [];
    this.#held = null;
    for (const event of held) this.onmessage?.(event);
  }

  async #authenticate(): Promise<void> {
    try {
      ({ token: this.#token } = await this.#source.ready());
      this.refresh();
    } catch {
      this.#fail("no token");
    }
  }

  #fail(reason: string): void {
    this.close();
    this.onclose?.({ code: 1006, reason });
  }

  #closed(code: number, reason: string): void {
    this.#env.cancel(this.#timer);
    this.onclose?.({ code: this.#source.closed(this, this.#url, this.#token, code), reason });
  }
}

/** The result of the last `auth` in a frame; null: none. */
function replyOf(data: unknown): "accepted" | "refused" | null {
  if (typeof data !== "string") return null;
  if (data.startsWith('{"type":"authenticated"')) return "accepted";
  const isError = data.startsWith('{"type":"error"') && (JSON.parse(data) as { id?: unknown }).id === AUTH_ID;
  return isError ? "refused" : null;
}
