/** The sessions with owners: opened for their first endpoint, suspected while not live, and closed when idle. */

import type { Environment } from "./environment.ts";
import type { Listener, RoutingEvents } from "./session.ts";
import type { Session } from "./session.ts";
import type { Shared } from "./shared.ts";
import type { ResettableTimer } from "./timers.ts";

/** A server that is not live is suspected after this and up to as much again, and then once more. */
const SUSPECT_AFTER_MS = 5_000;
/** Servers send their status every 25 s. Another server has the endpoints of one that hangs, so it is not waited for longer. */
const SILENCE_LIMIT_MS = 32_000;
/** A server that is listed again while it waits for its next attempt is dialled within this. */
const EXPEDITE_MS = 500;
/** The longest window for a server that the metadata service lists: it is expected back. */
const LISTED_CAP_MS = 5_000;
/** A connection that nothing needs is kept this long. */
const IDLE_MS = 5_000;

/** Receives the events of the sessions; `url` is their server. */
export interface ServerPoolHandlers {
  /** The URL to dial. `listed`: the metadata service has just listed the server, so its endpoints need not be located first. */
  select(url: string, listed: boolean): Promise<string>;
  routing(url: string): RoutingEvents;
  /** The connection is closed, and nothing is registered on it. */
  lost(url: string): void;
  /** The server has not been live for a while. */
  suspected(url: string): void;
  /** Its status or liveness has changed. */
  changed(): void;
}

interface PooledServer {
  readonly session: Session;
  /** True if the metadata service listed it since the last attempt. */
  listed: boolean;
  readonly suspectTimer: ResettableTimer;
  readonly closeTimer: ResettableTimer;
}

export class ServerPool {
  readonly #shared: Shared;
  readonly #env: Environment;
  readonly #listener: Listener;
  readonly #handlers: ServerPoolHandlers;
  readonly #servers = new Map<string, PooledServer>();

  constructor(shared: Shared, env: Environment, listener: Listener, handlers: ServerPoolHandlers) {
    this.#shared = shared;
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

  /** The session with this server, which dials if it is new. */
  session(url: string): Session {
    const known = this.get(url);
    if (known !== undefined) return known;
    const select = (): Promise<string> => {
      const { listed } = server;
      server.listed = false;
      return this.#handlers.select(url, listed);
    };
    const { ResettableTimer, Session } = this.#shared;
    const session = new Session(this.#env, select, this.#listener, this.#handlers.routing(url), SILENCE_LIMIT_MS);
    const server: PooledServer = { session, listed: true, suspectTimer: new ResettableTimer(this.#env), closeTimer: new ResettableTimer(this.#env) };
    this.#servers.set(url, server);
    session.connect();
    session.status.observe(({ state }) => this.#changed(url, server, state !== "open"));
    session.live.observe(() => this.#changed(url, server, false));
    return session;
  }

  /** The metadata service listed this server for its endpoints, or did not, or gave no answer. */
  setListed(url: string, listed: boolean): void {
    const server = this.#servers.get(url);
    server?.session.connection.cap(listed ? LISTED_CAP_MS : undefined);
    if (listed && server?.session.connection.expedite(EXPEDITE_MS)) server.listed = true;
  }

  /** Closes idle connections. A server that forbade reconnecting is dropped at once, and dialled anew when used. */
  closeIdle(uses: (url: string) => boolean): void {
    for (const [url, { closeTimer, session }] of this.#servers) {
      if (uses(url)) closeTimer.clear();
      else if (session.status.value.state === "closed") this.drop(url);
      else if (!closeTimer.isSet) closeTimer.set(IDLE_MS, () => this.drop(url));
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
