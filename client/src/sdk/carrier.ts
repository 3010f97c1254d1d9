/** What carries the subscriptions: one line to any server, or one to each owner, as the configuration says at each dial. */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { Ear, Lines } from "./line.ts";
import { Line } from "./line.ts";
import type { LiveStatus } from "./live.ts";
import type { Metadata } from "./locate.ts";
import { Subject } from "./observable.ts";
import type { Partitioned } from "./partitioned.ts";

export interface CarrierOptions {
  /** The server to dial after so many failures in a row. */
  server(failures: number): Promise<string>;
  /** Who knows the owners, after so many failures in a row; null, and without this: every server serves everything. */
  metadata?(failures: number): Promise<Metadata | null>;
  /** The server says that configuration is out of date. */
  moved?(): void;
}

/** Changes over with everything that is wanted: the new lines are followed before the old ones are closed. */
export class Carrier implements Lines {
  readonly #env: Environment;
  readonly #ear: Ear;
  readonly #options: CarrierOptions;
  readonly #wanted = new Set<string>();
  readonly status: Subject<ConnectionStatus>;
  readonly live: Subject<LiveStatus>;
  #lines: Lines;
  #unfollow: () => void = () => undefined;

  constructor(env: Environment, ear: Ear, options: CarrierOptions) {
    this.#env = env;
    this.#ear = ear;
    this.#options = options;
    this.#lines = this.#single();
    this.status = new Subject(this.#lines.status.value);
    this.live = new Subject(this.#lines.live.value);
    this.#use(this.#lines);
  }

  want(endpoint: string): void {
    this.#wanted.add(endpoint);
    this.#lines.want(endpoint);
  }

  release(endpoint: string): void {
    this.#wanted.delete(endpoint);
    this.#lines.release(endpoint);
  }

  isRefused(endpoint: string): boolean {
    return this.#lines.isRefused(endpoint);
  }

  isLive(endpoint: string): boolean {
    return this.#lines.isLive(endpoint);
  }

  connect(): void {
    this.#lines.connect();
  }

  close(): void {
    this.#lines.close();
  }

  #use(lines: Lines): void {
    this.#unfollow();
    this.#lines = lines;
    for (const endpoint of this.#wanted) lines.want(endpoint);
    const stops = [
      lines.status.observe((status) => this.status.set(status)),
      lines.live.observe((live) => this.live.set(live)),
    ];
    this.#unfollow = () => stops.forEach((stop) => stop());
  }

  /** One connection to any server; it finds out at a dial when that has become the wrong thing. */
  #single(): Line {
    const { server, metadata, moved } = this.#options;
    const move = (): void => {
      moved?.();
      line.connection.redial("moved");
    };
    const find = async (failures: number): Promise<string> => {
      const url = await server(failures);
      if (metadata && (await metadata(0)) !== null) {
        const mode = await import("./partitioned.ts"); // a quarter of the SDK, which only this mode loads
        const isWanted = line === this.#lines && line.status.value.state !== "closed";
        if (isWanted) this.#replace(this.#partitioned(mode.Partitioned, metadata));
      }
      return url;
    };
    const line: Line = new Line(this.#env, find, this.#ear, {
      subscribed: () => undefined,
      refused: (refused) => {
        for (const [endpoint, rejection] of refused) {
          if (rejection.code === "not_owner") return move();
          this.#ear.refused(endpoint, rejection);
        }
      },
      moved: (endpoints) => {
        if (endpoints.length === 0 || endpoints.some((endpoint) => line.wants(endpoint))) move();
      },
    });
    return line;
  }

  /** One connection for each owner, until the configuration no longer says so. */
  #partitioned(Mode: typeof Partitioned, metadata: (failures: number) => Promise<Metadata | null>): Lines {
    const lines: Lines = new Mode(this.#env, this.#ear, metadata, () => {
      if (lines === this.#lines) this.#replace(this.#single());
    });
    return lines;
  }

  #replace(lines: Lines): void {
    const before = this.#lines;
    lines.connect();
    this.#use(lines);
    before.close();
  }
}
