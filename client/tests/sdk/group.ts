/**
 * A group of servers for random walks: each registers, delivers, refuses and sends away as docs/protocol.md says, answers
 * when it is told to, and keeps a list of what a client must not do. What the SDK is told arrives at once.
 */

import { LoadedWorld } from "./loaded.ts";
import type { FakeSocket } from "./world.ts";
import { body, etag } from "./world.ts";

export const SERVERS = ["a", "b", "c"] as const;
export type Name = (typeof SERVERS)[number];
type Mode = "x" | "z-client";
/** What a server is to an endpoint: it delivers what is moving away, and takes no new subscriber. */
type Role = "serves" | "delivers" | "foreign";

/** A step of a random walk that concerns the group alone. */
export type GroupAction =
  | { kind: "wait"; ms: number }
  | { kind: "answer" | "toggle" | "stall" | "freeze"; server: Name }
  | { kind: "move" | "take"; names: string[]; server: Name; hinted: boolean }
  | { kind: "retire" | "service" }
  | { kind: "cut"; server: Name; close: [number, string] }
  | { kind: "drop" | "resync"; names: string[] }
  | { kind: "metadata"; metadata: Group["metadata"] };

const url = (server: string): string => `ws://${server}.diem.test/ws`;

interface Registered {
  readonly at: number;
  readonly visit: number;
  /** Whether its updates have data. */
  readonly data: boolean;
  /** Messages that the client had sent when it was told so. */
  readonly sent: number;
}

/** What a server takes of a connection: 20 messages at once, 100 a minute. The address gets it back, as far as it is left. */
class Allowance {
  isLent = true;
  #level = 20;
  #at = 0;

  level(now: number): number {
    this.#level = Math.min(20, this.#level + (now - this.#at) / 600);
    this.#at = now;
    return this.#level;
  }

  charge(names: number): void {
    this.#level -= 1 + Math.floor(names / 50);
  }
}

interface Client {
  readonly socket: FakeSocket;
  /** Endpoint -> when it was registered, and how often the page had given it up by then. */
  readonly subscribed: Map<string, Registered>;
  /** Whom it has been sent away from while they still deliver: at the end of the move they are closed. */
  readonly announced: Set<string>;
  readonly allowance: Allowance;
  welcomed: boolean;
  /** Messages that were answered. */
  read: number;
  /** For each message that was sent, how often the page had given up its endpoints by then. */
  readonly visits: number[][];
}

export class Group {
  readonly world = new LoadedWorld();
  readonly versions = new Map<string, number>();
  /** What the client did that it must not. */
  readonly faults: string[] = [];
  metadata: "up" | "away" | "busy" | "behind" = "up";
  /** Answers in parts, and says everything twice, as proxies may. */
  repeats = false;
  limit = Number.POSITIVE_INFINITY;
  /** The interval of heartbeats that servers announce; 0 = they announce and send none. */
  heartbeatMs = 0;
  /** Whether servers offer data with updates. */
  data = false;
  /** Endpoints whose retained data servers have dropped, until the next update. */
  readonly dropped = new Set<string>();
  /** Whether the Data Service answers. */
  service = true;
  /** What servers send as the data of a version. */
  body: (name: string, version: number) => unknown = body;
  /** What the Data Service answers; the same, if the system is sound. */
  stored = this.body;
  /** Media types of what is no series. */
  readonly mediaTypes = new Map<string, string>();
  /** Endpoints that are deleted at their version. */
  readonly gone = new Set<string>();
  /** How often the page has given up an endpoint. */
  visits = (_name: string): number => 0;
  #registrations = 0;
  /** Endpoint -> server -> when it was last registered there. */
  readonly #registered = new Map<string, Map<string, number>>();
  readonly #mode: Mode;
  readonly #homes = new Map<string, Name>();
  #older = new Map<string, Name>();
  readonly #roles = new Map<string, Role>();
  readonly #clients = new Map<FakeSocket, Client>();
  /** Address -> allowances that were given back. */
  readonly #free = new Map<string, Allowance[]>();
  readonly #down = new Set<Name>();
  readonly #stalled = new Set<Name>();
  /** Servers that nothing reaches and nothing leaves, and since when. */
  readonly #frozen = new Map<Name, number>();
  /** What waits to leave them. */
  #held: [Name, () => void][] = [];
  #heartbeat = 0;
  #epoch = 0;

  constructor(mode: Mode, names: readonly string[]) {
    this.#mode = mode;
    const dial = this.world.socket.bind(this.world);
    this.world.socket = (address) => this.#dialled(dial(address));
    this.world.auto = (address, body) => this.#http(address, body as { endpoints: string[] });
    names.forEach((name, n) => {
      this.versions.set(name, 0);
      this.#home(name, SERVERS[n % SERVERS.length] as Name);
    });
    this.#older = new Map(this.#homes);
  }

  /** Whether a server has registered it, and delivers. */
  isRegistered(name: string): boolean {
    return [...this.#clients.values()].some(({ socket, subscribed }) => !socket.closed && subscribed.has(name));
  }

  /** Whether there would be a place for one more at the server that has it. */
  hasRoom(name: string): boolean {
    const servers = this.#mode === "x" ? SERVERS : [this.#homes.get(name) as Name];
    const held = servers.flatMap((server) => this.#of(server)).map(({ subscribed }) => subscribed.size);
    return Math.max(0, ...held) < this.limit;
  }

  publish(name: string): void {
    this.dropped.delete(name);
    this.versions.set(name, 1_700_000_000_000 + (this.versions.get(name) as number) % 1_700_000_000_000 + 1);
    for (const server of SERVERS) if (!this.#stalled.has(server)) this.#deliver(server, name);
  }

  /** A server answers what it was sent since. */
  answer(server: Name): void {
    if (this.#frozen.has(server)) return;
    for (const client of this.#of(server)) this.#serve(server, client);
  }

  /** Endpoints will move: both servers have them. */
  prepare(names: readonly string[], to: Name): void {
    if (this.#mode === "z-client") for (const name of names) this.#roles.set(`${to} ${name}`, "serves");
  }

  /** They move: the old server refuses new subscribers, and delivers until all moves are over; `hinted`: it says where they are. */
  move(names: readonly string[], to: Name, hinted: boolean): void {
    if (this.#mode === "x") return;
    this.prepare(names, to);
    this.#epoch += 1;
    this.#older = new Map(this.#homes);
    for (const name of names) {
      const from = this.#homes.get(name) as Name;
      if (from !== to) {
        this.#homes.set(name, to);
        this.#roles.set(`${from} ${name}`, "delivers");
        for (const client of this.#of(from)) {
          if (!client.subscribed.has(name)) continue;
          client.announced.add(name);
          this.#moved(client, name, hinted);
        }
      }
    }
  }

  /** All moves are over: who was told, and has not left, is closed. */
  retire(): void {
    for (const server of SERVERS) {
      for (const [name] of this.versions) {
        if (this.#role(server, name) === "delivers" || (this.#homes.get(name) !== server && this.#mode !== "x")) this.#lose(server, name, true);
      }
      for (const client of this.#of(server)) {
        if ([...client.announced].some((name) => client.subscribed.has(name))) this.#end(client, 4000, "retry=2000");
        client.announced.clear();
      }
    }
  }

  /** A rebalance: from one moment to the next another server has them. */
  take(names: readonly string[], to: Name, hinted: boolean): void {
    if (this.#mode === "x") return;
    this.#epoch += 1;
    this.#older = new Map(this.#homes);
    for (const name of names) {
      this.#home(name, to);
      for (const server of SERVERS) if (server !== to) this.#lose(server, name, hinted);
    }
  }

  /** The connections to a server are lost. */
  cut(server: Name, code: number, reason: string): void {
    for (const client of this.#of(server)) this.#end(client, code, reason);
  }

  /** A server goes, or comes back. */
  toggle(server: Name): void {
    if (this.#down.delete(server)) return;
    this.#down.add(server);
    this.cut(server, 1006, "");
  }

  /** A server hears nothing any more, and says so; or hears again. */
  stall(server: Name): void {
    const live = this.#stalled.delete(server);
    if (!live) this.#stalled.add(server);
    else for (const [name] of this.versions) this.#deliver(server, name);
    for (const { socket, welcomed } of this.#of(server)) if (welcomed) socket.frame({ type: "status", live, since: "t" });
  }

  /** A server is cut off, without a close; or reachable again, and what it has sent meanwhile arrives. */
  freeze(server: Name): void {
    if (!this.#frozen.delete(server)) {
      this.#frozen.set(server, this.world.now());
      return;
    }
    const late = this.#held.filter(([from]) => from === server);
    this.#held = this.#held.filter(([from]) => from !== server);
    for (const [, arrive] of late) arrive();
  }

  /** Begins to send heartbeats, if servers announce them; `stop` ends them. */
  start(): void {
    if (this.heartbeatMs === 0) return;
    this.#heartbeat = this.world.later(this.heartbeatMs, () => {
      for (const server of SERVERS) {
        for (const { socket, welcomed } of this.#of(server)) {
          if (welcomed) socket.frame({ type: "status", live: !this.#stalled.has(server), since: "t", endpoints: [] });
        }
      }
      this.start();
    });
  }

  stop(): void {
    this.world.cancel(this.#heartbeat);
  }

  /** Whether a server is cut off: the page cannot know what it does. */
  get isCut(): boolean {
    return this.#frozen.size > 0;
  }

  /** Servers that have been cut off for `ms`, and that the client is still connected to. */
  trusted(ms: number): Name[] {
    return [...this.#frozen].filter(([server, since]) => this.world.now() - since >= ms && this.#of(server).some(({ welcomed }) => welcomed)).map(([server]) => server);
  }

  /** All servers name it in a `resync`, and have its data no longer. */
  resync(name: string): void {
    this.dropped.add(name);
    for (const server of SERVERS) {
      for (const { socket, subscribed } of this.#of(server)) if (subscribed.has(name)) socket.frame({ type: "resync", endpoints: [name] });
    }
  }

  /** Everything works, and time passes. */
  async rest(ms: number): Promise<void> {
    this.metadata = "up";
    this.service = true;
    this.#older = new Map(this.#homes);
    for (const server of [...this.#down]) this.toggle(server);
    for (const server of [...this.#stalled]) this.stall(server);
    for (const server of [...this.#frozen.keys()]) this.freeze(server);
    this.retire();
    for (let passed = 0; passed < ms; passed += 500) {
      await this.world.advance(500);
      for (const server of SERVERS) {
        this.answer(server);
        if (passed % 25_000 === 0) for (const { socket, welcomed } of this.#of(server)) if (welcomed) socket.frame({ type: "status", live: true, since: "t" });
      }
      await this.world.advance();
    }
  }

  /** Take a step of a walk. */
  act(next: GroupAction): Promise<void> | void {
    switch (next.kind) {
      case "wait":
        return this.world.advance(next.ms);
      case "answer":
      case "toggle":
      case "stall":
      case "freeze":
        return this[next.kind](next.server);
      case "move":
      case "take":
        return this[next.kind](next.names, next.server, next.hinted);
      case "retire":
        return this.retire();
      case "cut":
        return this.cut(next.server, ...next.close);
      case "drop":
        return next.names.forEach((name) => this.dropped.add(name));
      case "resync":
        return next.names.forEach((name) => this.resync(name));
      case "service":
        this.service = !this.service;
        return;
      case "metadata":
        this.metadata = next.metadata;
    }
  }

  #dialled(socket: FakeSocket): FakeSocket {
    const allowance = this.#lend(socket.url);
    const visits: number[][] = [];
    const send = socket.send.bind(socket);
    socket.send = (text) => {
      send(text);
      const { endpoints } = socket.sent.at(-1) as { endpoints: object };
      visits.push((Array.isArray(endpoints) ? (endpoints as string[]) : Object.keys(endpoints)).map((name) => this.visits(name)));
    };
    const server = SERVERS.find((name) => url(name) === socket.url) as Name;
    const arrive = { frame: socket.frame.bind(socket), end: socket.end.bind(socket) };
    const later = (run: () => void): void => void (this.#frozen.has(server) ? this.#held.push([server, run]) : run());
    socket.frame = (frame) => later(() => arrive.frame(frame));
    socket.end = (code, reason) => later(() => arrive.end(code, reason));
    this.#clients.set(socket, { socket, subscribed: new Map(), announced: new Set(), allowance, welcomed: false, read: 0, visits });
    return socket;
  }

  /** The fullest of those that were given back; with less than a quarter of one the connection is refused. */
  #lend(address: string): Allowance {
    const now = this.world.now();
    const back = [...this.#clients.values()].filter(({ socket, allowance }) => socket.closed && socket.url === address && allowance.isLent);
    for (const { allowance } of back) allowance.isLent = false;
    const free = this.#free.get(address) ?? [];
    free.push(...back.map(({ allowance }) => allowance));
    this.#free.set(address, free.sort((a, b) => a.level(now) - b.level(now)));
    const allowance = free.pop() ?? new Allowance();
    allowance.isLent = true;
    return allowance;
  }

  #of(server: Name): Client[] {
    for (const [socket, client] of this.#clients) if (socket.closed) client.subscribed.clear();
    return [...this.#clients.values()].filter(({ socket }) => !socket.closed && socket.url === url(server));
  }

  #role(server: Name, name: string): Role {
    return this.#mode === "x" ? "serves" : (this.#roles.get(`${server} ${name}`) ?? "foreign");
  }

  #home(name: string, server: Name): void {
    this.#homes.set(name, server);
    this.#roles.set(`${server} ${name}`, "serves");
  }

  #lose(server: Name, name: string, hinted: boolean): void {
    this.#roles.delete(`${server} ${name}`);
    for (const client of this.#of(server)) if (client.subscribed.has(name)) {
      if (client.announced.has(name)) continue; // closed, when the move is over
      client.subscribed.delete(name);
      this.#moved(client, name, hinted);
    }
  }

  #moved({ socket }: Client, name: string, hinted: boolean): void {
    socket.frame({ type: "moved", endpoints: [name], ...(hinted && { owner: url(this.#homes.get(name) as Name) }) });
  }

  #deliver(server: Name, name: string): void {
    if (this.#role(server, name) === "foreign") return;
    for (const { socket, subscribed } of this.#of(server)) {
      const registered = subscribed.get(name);
      if (registered) this.#update(socket, name, registered.data);
    }
  }

  /** With data, what is repeated is followed by the version before it. */
  #update(socket: FakeSocket, name: string, data: boolean): void {
    const version = this.versions.get(name) as number;
    if (version === 0) return;
    const isGone = this.gone.has(name);
    const sent = this.repeats ? [version, version, ...(data && !isGone && version > 1_700_000_000_001 ? [version - 1] : [])] : [version];
    const mediaType = this.mediaTypes.get(name);
    for (const each of sent) {
      const withData = data && !this.dropped.has(name) ? { data: this.body(name, each), ...(mediaType && { media_type: mediaType }) } : {};
      socket.update(name, each, isGone ? { gone: true } : withData);
    }
  }

  #end(client: Client, code: number, reason: string): void {
    client.subscribed.clear();
    client.socket.closed = true;
    client.socket.end(code, reason);
  }

  #serve(server: Name, client: Client): void {
    const { socket, allowance } = client;
    const now = this.world.now();
    const isUsedUp = !client.welcomed && allowance.level(now) < 5;
    if (this.#down.has(server) || isUsedUp) return this.#end(client, 1006, "");
    if (!client.welcomed) {
      client.welcomed = true;
      socket.frame({ type: "welcome", session: "s", server, mode: this.#mode, authenticated: true, limits: {}, ...(this.data && { data: true }), heartbeat_ms: this.heartbeatMs });
      socket.frame({ type: "status", live: !this.#stalled.has(server), since: "t" });
    }
    while (client.read < socket.sent.length && !socket.closed) {
      const message = socket.sent[client.read] as { type: string; id: number; endpoints: object; data?: boolean };
      const visits = client.visits[client.read] as number[];
      client.read += 1;
      if (allowance.level(now) < 1) this.faults.push(`${server}: more messages than the server takes`);
      allowance.charge(visits.length);
      if (message.type === "subscribe") this.#subscribe(server, client, message.id, message.endpoints as Record<string, number | null>, message.data === true, visits);
      else this.#unsubscribe(server, client, message.id, message.endpoints as string[], visits);
    }
  }

  #subscribe(
    server: Name, { socket, subscribed }: Client, id: number, known: Record<string, number | null>, data: boolean, visits: number[],
  ): void {
    const taken: Record<string, number | null> = {};
    const rejected: Record<string, object> = {};
    for (const [n, name] of Object.keys(known).entries()) {
      if (this.#role(server, name) !== "serves") rejected[name] = { code: "not_owner", message: "" };
      else if (subscribed.size >= this.limit && !subscribed.has(name)) rejected[name] = { code: "limit", message: "" };
      else {
        const at = (this.#registrations += 1);
        subscribed.set(name, { at, visit: visits[n] as number, data, sent: socket.sent.length });
        this.#registered.set(name, (this.#registered.get(name) ?? new Map<string, number>()).set(server, at));
        taken[name] = this.versions.get(name) || null;
      }
    }
    const parts = this.repeats ? [{}, taken, {}] : [taken];
    parts.forEach((endpoints, n) => socket.frame({ type: "subscribed", id, endpoints, ...(n === 0 && { rejected }) }));
    if (this.#stalled.has(server)) return;
    for (const name of Object.keys(taken)) if ((this.versions.get(name) ?? 0) > (known[name] ?? 0)) this.#update(socket, name, data);
  }

  #unsubscribe(server: Name, { socket, subscribed, announced, read }: Client, id: number, endpoints: readonly string[], visits: number[]): void {
    for (const [n, name] of endpoints.entries()) {
      const { at, visit, sent } = subscribed.get(name) ?? { at: 0, visit: -1, sent: 0 };
      const later = [...(this.#registered.get(name) ?? [])].some(([other, when]) => other !== server && when > at);
      // One that it did not know to be registered when it left is not kept for it.
      if (visit === visits[n] && read > sent && !later) this.faults.push(`${name} has left ${server}, and no other server had answered`);
      subscribed.delete(name);
      announced.delete(name);
    }
    socket.frame({ type: "unsubscribed", id, endpoints });
  }

  #http(address: string, question: { endpoints: string[] }): { status: number; body?: unknown; headers?: Record<string, string> } {
    if (address.endsWith("/config.json")) {
      const metadata = this.#mode === "x" ? {} : { metadata: [8400, 8401].map((port) => ({ port, path: "/v1" })) };
      return { status: 200, body: { mode: this.#mode, servers: SERVERS.map((server) => ({ url: url(server) })), rest: "/v1", ...metadata } };
    }
    if (address.includes("/v1/data/")) {
      const [name = "", named] = address.slice(address.indexOf("/v1/data/") + 8).replace(/\?latest=.*/, "").split("?version=");
      const version = this.versions.get(name);
      if (!this.service) return { status: 503 };
      if (!version || (named !== undefined && Number(named) !== version)) return { status: 404 };
      if (this.gone.has(name)) return { status: 410, body: { version } };
      const mediaType = this.mediaTypes.get(name);
      const fields = mediaType ? { "Content-Type": mediaType, "Diem-Version": `${version}`, "Diem-Time": "2026-01-01T00:00:00.000Z" } : {};
      return { status: 200, body: this.stored(name, version), headers: { ...etag(version), ...fields } };
    }
    if (address.endsWith("/ws")) return { status: 426 }; // a page that asks why it was refused: it was not
    if (this.metadata === "away") return { status: 500 };
    if (this.metadata === "busy") return { status: 503, headers: { "Retry-After": "3" } };
    const behind = this.metadata === "behind";
    const homes = behind ? this.#older : this.#homes;
    const endpoints = Object.fromEntries(question.endpoints.map((name) => [name, { owner: url(homes.get(name) as Name) }]));
    return { status: 200, body: { clone: 1, epoch: this.#epoch - Number(behind), endpoints, rejected: {}, servers: SERVERS.map(url) } };
  }
}
