/** A partitioned deployment for the SDK: a metadata service that answers by itself, and servers that answer when told. */

import type { FakeSocket } from "./world.ts";
import { World } from "./world.ts";

export const url = (server: string): string => `ws://${server}.diem.test/ws`;

export class Cluster {
  readonly world = new World();
  /** endpoint -> server; null = nobody, "hot" = all. */
  readonly owners = new Map<string, string | null>();
  servers = ["a", "b", "c"];
  mode = "z-client";
  metadataUp = true;
  epoch = 0;
  retryAfter: Record<string, string> = {};
  clone = 2;
  /** The questions that reached the metadata service. */
  readonly asked: { endpoints: string[]; clone?: number }[] = [];
  /** The services that were asked. */
  readonly hosts: string[] = [];
  readonly #served = new Map<FakeSocket, number>();

  constructor() {
    this.world.auto = (address, body) => {
      if (address.endsWith("/config.json")) return { status: 200, body: this.#config() };
      if (!address.endsWith("/v1/locate")) return { status: 404 };
      this.hosts.push(new URL(address).host);
      if (!this.metadataUp) return { status: 503, headers: this.retryAfter };
      return { status: 200, body: this.#locate(body as { endpoints: string[]; clone?: number }) };
    };
  }

  /** The latest connection to a server, or undefined. */
  at(server: string): FakeSocket | undefined {
    return this.world.sockets.filter((socket) => socket.url === url(server)).at(-1);
  }

  /** Connections that this side has not closed. */
  get connected(): string[] {
    return this.world.sockets.filter(({ closed }) => !closed).map((socket) => socket.url[5] as string);
  }

  /** The server welcomes whoever dialled it, and takes what it is asked for; `refuse` gives the owners it refuses with, or "limit". */
  async serve(server: string, refuse: Record<string, string | null> = {}): Promise<void> {
    await this.world.advance();
    const socket = this.at(server) as FakeSocket;
    const from = this.#served.get(socket);
    if (from === undefined) {
      socket.frame({ type: "welcome", session: "s", server, mode: "z-client", authenticated: true, limits: {} });
      socket.frame({ type: "status", live: true, since: "t" });
      await this.world.advance();
    }
    for (const { type, id, endpoints } of socket.sent.slice(from ?? 0)) {
      if (type !== "subscribe") continue;
      const taken: Record<string, null> = {};
      const rejected: Record<string, object> = {};
      for (const name of Object.keys(endpoints as object)) {
        const owner = refuse[name];
        if (owner === undefined) taken[name] = null;
        else if (owner === "limit") rejected[name] = { code: "limit", message: "more than 128 subscriptions" };
        else rejected[name] = { code: "not_owner", message: "", ...(owner && { owner: url(owner) }) };
      }
      socket.frame({ type: "subscribed", id, endpoints: taken, rejected });
    }
    this.#served.set(socket, socket.sent.length);
    await this.world.advance();
  }

  /** Time passes, and servers say every 25 s that they are live. */
  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 25_000) {
      await this.world.advance(Math.min(left, 25_000));
      for (const socket of this.#served.keys()) if (!socket.closed) socket.frame({ type: "status", live: true, since: "t" });
    }
  }

  /** What a server was sent since the connection began, as "+/a" and "-/a". */
  sent(server: string): string[] {
    return (this.at(server)?.sent ?? []).flatMap(({ type, endpoints }) =>
      type === "subscribe" ? Object.keys(endpoints as object).map((name) => `+${name}`) : (endpoints as string[]).map((name) => `-${name}`),
    );
  }

  #config(): object {
    const servers = ["a", "b", "c"].map((server) => ({ url: url(server) }));
    return { mode: this.mode, servers, rest: "/v1", metadata: [8400, 8401].map((port) => ({ port, path: "/v1" })) };
  }

  #locate(question: { endpoints: string[]; clone?: number }): object {
    this.asked.push(question);
    const place = (owner: string | null | undefined): object =>
      owner === "hot" ? { owner: null, hot: true } : { owner: owner ? (owner.includes(":") ? owner : url(owner)) : null };
    const endpoints = Object.fromEntries(question.endpoints.map((name) => [name, place(this.owners.get(name))]));
    return { clone: this.clone, epoch: this.epoch, endpoints, rejected: {}, servers: this.servers.map(url) };
  }
}
