/** The sessions to owners: made when something goes there, suspected while not live, and closed when nothing is left. */

import type { Environment } from "./environment.ts";
import type { Listener, RoutingEvents } from "./session.ts";
import { Session } from "./session.ts";
import { CAP_MS } from "./backoff.ts";
import { ResettableTimer } from "./timers.ts";

/** A server that is not live is suspected after this long, and as long again at random; then once more, until it is live. */
const SUSPECT_AFTER_MS = 5_000;
/** Servers say every 25 s whether they are live; another one has what one that hangs had. */
const SILENCE_LIMIT_MS = 32_000;
/** A server that is named again is dialled within this. */
const SOON_MS = 500;
/** The most between two dials of a server that is named: it is expected back. */
const NAMED_CAP_MS = 5_000;
/** A connection that nothing needs any more is kept this long. */
const EMPTY_MS = 5_000;

/** What the sessions ask and tell; `url` says which one. */
export interface ServerPoolHandlers {
  /** `named`: nobody is to be asked whether the server is still the one. */
  dial(url: string, named: boolean): Promise<string>;
  routing(url: string): RoutingEvents;
  /** The connection is not open: what was registered on it is not. */
  lost(url: string): void;
  /** The server has not been live for a while. */
  suspected(url: string): void;
  /** Its status or liveness is another one. */
  changed(): void;
}

interface PooledServer {
  readonly session: Session;
  /** It is about to be dialled because it was named. */
  named: boolean;
  readonly suspectTimer: ResettableTimer;
  readonly closeTimer: ResettableTimer;
}

export class ServerPool {
  readonly #env: Environment;
  readonly #listener: Listener;
  readonly #handlers: ServerPoolHandlers;
  readonly #servers = new Map<string, PooledServer>();

  constructor(env: Environment, listener: Listener, handlers: ServerPoolHandlers) {
    this.#env = env;
    this.#listener = listener;
    this.#handlers = handlers;
  }

  get(url: string | null): Session | undefined {
    return url === null ? undefined : this.#servers.get(url)?.session;
  }

  get sessions(): [string, Session][] {
    return [...this.#servers].map(([url, { session }]) => [url, session]);
  }

  /** The session to this server; it is dialled when it is new. */
  session(url: string): Session {
    const known = this.get(url);
    if (known !== undefined) return known;
    const dial = (): Promise<string> => {
      const { named } = server;
      server.named = false;
      return this.#handlers.dial(url, named);
    };
    const session = new Session(this.#env, dial, this.#listener, this.#handlers.routing(url), SILENCE_LIMIT_MS);
    const server: PooledServer = { session, named: true, suspectTimer: new ResettableTimer(this.#env), closeTimer: new ResettableTimer(this.#env) };
    this.#servers.set(url, server);
    session.connect();
    session.status.observe(({ state }) => this.#changed(url, server, state !== "open"));
    session.live.observe(() => this.#changed(url, server, false));
    return session;
  }

  /** The metadata service was asked about this server: whether it answered, and named it. */
  named(url: string, isNamed: boolean): void {
    const server = this.#servers.get(url);
    server?.session.connection.cap(isNamed ? NAMED_CAP_MS : CAP_MS);
    if (isNamed && server?.session.connection.expedite(SOON_MS)) server.named = true;
  }

  /** Closes in a while what is not used; a server that wants this client no more is dialled when it is used again. */
  tidy(uses: (url: string) => boolean): void {
    for (const [url, { closeTimer, session }] of this.#servers) {
      if (uses(url)) closeTimer.clear();
      else if (session.status.value.state === "closed") this.drop(url);
      else if (!closeTimer.isSet) closeTimer.set(EMPTY_MS, () => this.drop(url));
    }
  }

  drop(url: string): void {
    const server = this.#servers.get(url);
    this.#servers.delete(url);
    server?.suspectTimer.clear();
    server?.closeTimer.clear();
    server?.session.close();
    this.#handlers.changed();
  }

  #changed(url: string, server: PooledServer, lost: boolean): void {
    if (this.#servers.get(url) !== server) return;
    const { session, suspectTimer } = server;
    if (lost) this.#handlers.lost(url);
    if (session.status.value.state === "closed" || session.live.value.live) suspectTimer.clear();
    else if (!suspectTimer.isSet) {
      suspectTimer.set(SUSPECT_AFTER_MS * (1 + this.#env.random()), () => {
        this.#handlers.suspected(url);
        this.#changed(url, server, false);
      });
    }
    this.#handlers.changed();
  }
}
