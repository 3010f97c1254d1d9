/** The UpdatesService: views subscribe to endpoints and are told of changes, whatever connections that takes. */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { Ear, Lines } from "./line.ts";
import { Line } from "./line.ts";
import type { LiveStatus } from "./live.ts";
import type { Metadata } from "./locate.ts";
import type { ServerFrame, UpdateFrame } from "./messages.ts";
import { isEndpoint } from "./messages.ts";
import type { Observable } from "./observable.ts";
import { Subject } from "./observable.ts";
import type { Partitioned } from "./partitioned.ts";
import type { Callback, View } from "./views.ts";
import { Views } from "./views.ts";

/** Ends the subscription; calling it again does nothing. */
export type Subscription = () => void;

export interface UpdatesOptions {
  /** The server to dial after so many failures in a row. */
  server(failures: number): Promise<string>;
  /** Who knows the owners, after so many failures in a row; null, and without this: every server serves everything. */
  metadata?(failures: number): Promise<Metadata | null>;
  /** The version of the data the client holds; 0 = none. */
  held(endpoint: string): number;
  /** The server says that configuration is out of date. */
  moved?(): void;
  /** Part of the data may be older than it seems: called before the views hear `resync`. */
  resynced?(endpoints: readonly string[]): void;
}

export class UpdatesService {
  readonly stats = { frames: 0, updateFrames: 0 };
  readonly #env: Environment;
  readonly #options: UpdatesOptions;
  readonly #views: Views;
  readonly #told = new Map<string, number>();
  readonly #ear: Ear;
  readonly #connection: Subject<ConnectionStatus>;
  readonly #live: Subject<LiveStatus>;
  #lines: Lines;
  #unfollow: () => void = () => undefined;

  constructor(env: Environment, options: UpdatesOptions) {
    this.#env = env;
    this.#options = options;
    this.#views = new Views((error) => env.report(error));
    this.#ear = {
      held: (endpoint) => options.held(endpoint),
      frame: (frame) => this.#count(frame),
      updated: (frame) => this.#updated(frame),
      resync: (endpoints) => this.#resync(endpoints),
      refused: (endpoint, rejection) => this.#views.notify(endpoint, { type: "rejected", endpoint, ...rejection }),
    };
    this.#lines = this.#single();
    this.#connection = new Subject(this.#lines.status.value);
    this.#live = new Subject(this.#lines.live.value);
    this.#use(this.#lines);
  }

  /** All that is needed as one: it is as bad as the worst connection. */
  get connection(): Observable<ConnectionStatus> {
    return this.#connection;
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
    return this.#views.size;
  }

  /** Whether a view is subscribed and will hear of changes, as far as anybody knows. */
  isWatched(endpoint: string): boolean {
    return this.#views.has(endpoint) && !this.#lines.isRefused(endpoint);
  }

  /** The latest version a view was told about; 0 = none. */
  told(endpoint: string): number {
    return this.#told.get(endpoint) ?? 0;
  }

  /** Connects, or dials now instead of waiting for the next attempt. Does nothing while connected. */
  connect(): void {
    this.#lines.connect();
  }

  /** Disconnects until `connect()`; subscriptions stay. */
  close(): void {
    this.#lines.close();
  }

  /**
   * Calls `callback` for every change of `endpoint` from now on, each with a greater version than the last. Any number
   * of views share one subscription at the server. Throws `TypeError` for what is no endpoint name.
   */
  subscribe(endpoint: string, callback: Callback): Subscription {
    if (!isEndpoint(endpoint)) throw new TypeError(`not an endpoint name: ${endpoint}`);
    const view: View = { callback };
    if (this.#views.add(endpoint, view)) this.#lines.want(endpoint);
    return () => this.#remove(endpoint, view);
  }

  /** Ends one subscription of `callback` to `endpoint`; without one, does nothing. */
  unsubscribe(endpoint: string, callback: Callback): void {
    const view = this.#views.find(endpoint, callback);
    if (view !== null) this.#remove(endpoint, view);
  }

  #remove(endpoint: string, view: View): void {
    if (!this.#views.remove(endpoint, view)) return;
    this.#lines.release(endpoint);
    this.#told.delete(endpoint); // the next subscription starts from what is held, or a told but never fetched version is lost
  }

  /** Follows these lines from now on, with everything that the views want. */
  #use(lines: Lines): void {
    this.#unfollow();
    this.#lines = lines;
    for (const endpoint of this.#views.endpoints) lines.want(endpoint);
    const stops = [
      lines.status.observe((status) => this.#connection.set(status)),
      lines.live.observe((live) => this.#live.set(live)),
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

  #count(frame: ServerFrame | null): void {
    this.stats.frames += 1;
    if (frame?.type === "update") this.stats.updateFrames += 1;
  }

  /** The drop rule: only what is wanted, and newer than what is held and than what was told. */
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
