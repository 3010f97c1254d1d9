/** Chooses the transport: one session with any server, or one with each owner, by the configuration at each dial. */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { Listener, Transport } from "./session.ts";
import { Session } from "./session.ts";
import type { LiveStatus } from "./liveness.ts";
import type { Metadata } from "./locator.ts";
import { Subject } from "./observable.ts";
import type { PartitionedTransport } from "./partitioned.ts";
import { SHARED } from "./shared.ts";

export interface TransportOptions {
  /** The server to dial after so many failures in a row. */
  server(failures: number): Promise<string>;
  /** The metadata services, after so many failures in a row; null, or no such function: every server serves everything. */
  metadata?(failures: number): Promise<Metadata | null>;
  /** A server has sent `moved` or `not_owner`: the configuration is out of date. */
  moved?(): void;
}

/** The transport in use. All subscriptions are handed over when it changes: the new one is observed before the old one is closed. */
export class TransportSwitch {
  readonly #env: Environment;
  readonly #listener: Listener;
  readonly #options: TransportOptions;
  readonly #wanted: () => Iterable<string>;
  readonly status: Subject<ConnectionStatus>;
  readonly live: Subject<LiveStatus>;
  current: Transport;
  #unobserve: () => void = () => undefined;

  /** `wanted` returns the endpoints that are subscribed. */
  constructor(env: Environment, listener: Listener, options: TransportOptions, wanted: () => Iterable<string>) {
    this.#env = env;
    this.#listener = listener;
    this.#options = options;
    this.#wanted = wanted;
    this.current = this.#single();
    this.status = new Subject(this.current.status.value);
    this.live = new Subject(this.current.live.value);
    this.#use(this.current);
  }

  #use(transport: Transport): void {
    this.#unobserve();
    this.current = transport;
    for (const endpoint of this.#wanted()) transport.subscribe(endpoint);
    const stop = transport.status.observe((status) => this.status.set(status));
    const stopLive = transport.live.observe((live) => this.live.set(live));
    this.#unobserve = () => {
      stop();
      stopLive();
    };
  }

  /** One connection to any server; each dial checks that the configuration still allows it. */
  #single(): Session {
    const { server, metadata, moved } = this.#options;
    const move = (): void => {
      moved?.();
      session.connection.redial("moved");
    };
    const select = async (failures: number): Promise<string> => {
      const url = await server(failures);
      if (metadata && (await metadata(0)) !== null) {
        const mode = await import("./partitioned.ts"); // a quarter of the SDK, which only this mode loads
        const isWanted = session === this.current && session.status.value.state !== "closed";
        if (isWanted) this.#replace(this.#partitioned(mode.PartitionedTransport, metadata));
      }
      return url;
    };
    const session: Session = new Session(this.#env, select, this.#listener, {
      subscribed: () => undefined,
      refused: (refused) => {
        for (const [endpoint, rejection] of refused) {
          if (rejection.code === "not_owner") return move();
          this.#listener.refused(endpoint, rejection);
        }
      },
      moved: (endpoints) => {
        if (endpoints.length === 0 || endpoints.some((endpoint) => session.has(endpoint))) move();
      },
    });
    return session;
  }

  /** One connection to each owner, until the configuration names no metadata service. */
  #partitioned(Mode: typeof PartitionedTransport, metadata: (failures: number) => Promise<Metadata | null>): Transport {
    const transport: Transport = new Mode(SHARED, this.#env, this.#listener, metadata, () => {
      if (transport === this.current) this.#replace(this.#single());
    });
    return transport;
  }

  #replace(transport: Transport): void {
    const before = this.current;
    transport.connect();
    this.#use(transport);
    before.close();
  }
}
