/** A deployment of DIEM for the examples: it answers the page's own `fetch` and `WebSocket`, and changes data when told. */

import { vi } from "vitest";
import { CONFIG, body, etag } from "../sdk/world.ts";

vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 }); // frameworks start slowly on a busy machine

/** Waits until `check` throws no more. */
export const eventually = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 60_000 });

export class FakeServer {
  /** endpoint -> version, which is its value too. */
  readonly data = new Map<string, number>();
  /** Endpoint -> what its version is, of those that are no series: the media type, and the JSON of an answer. */
  readonly contents = new Map<string, [mediaType: string, value: unknown]>();
  /** Endpoints that no token covers. */
  readonly forbidden = new Set<string>();
  /** Whether requests for data are refused, because the reader has made as many as it may. */
  usedUp = false;
  /** Tokens that were presented. */
  readonly tokens: string[] = [];
  readonly #sockets = new Set<FakeWebSocket>();

  /** Takes the place of the host's functions, until `vi.unstubAllGlobals()`. */
  install(): this {
    const server = this;
    vi.stubGlobal("fetch", (url: string) => Promise.resolve(this.#answer(new URL(url).pathname)));
    vi.stubGlobal("WebSocket", class extends FakeWebSocket {
      constructor() {
        super(server, server.#sockets);
      }
    });
    return this;
  }

  change(endpoint: string, version: number): void {
    this.data.set(endpoint, version);
    for (const socket of this.#sockets) {
      if (socket.subscribed.has(endpoint)) socket.frame({ type: "update", endpoint, version, time: "2026-01-01T00:00:00Z" });
    }
  }

  /** Closes all connections. */
  end(code: number): void {
    for (const socket of this.#sockets) socket.onclose?.({ code, reason: "" });
  }

  /** The endpoints that anybody is subscribed to. */
  get subscribed(): string[] {
    return [...this.#sockets].flatMap(({ subscribed }) => [...subscribed]);
  }

  get connections(): number {
    return this.#sockets.size;
  }

  #answer(path: string): Response {
    if (path === "/config.json") return Response.json(CONFIG);
    const endpoint = path.slice("/v1/data".length);
    if (this.forbidden.has(endpoint)) return Response.json({}, { status: 403 });
    if (this.usedUp) return Response.json({}, { status: 429, headers: { "Retry-After": "0" } });
    const version = this.data.get(endpoint);
    const [mediaType, value] = this.contents.get(endpoint) ?? [];
    if (mediaType) return Response.json(value, { headers: { ...etag(version ?? 0), "Content-Type": mediaType, "Diem-Version": `${version}` } });
    return version === undefined
      ? Response.json({ detail: "no such endpoint" }, { status: 404 })
      : Response.json(body(endpoint, version), { headers: etag(version) });
  }
}

class FakeWebSocket {
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly subscribed = new Set<string>();
  readonly #server: FakeServer;
  readonly #all: Set<FakeWebSocket>;

  constructor(server: FakeServer, all: Set<FakeWebSocket>) {
    this.#server = server;
    this.#all = all;
    all.add(this);
    queueMicrotask(() => this.frame({ type: "welcome", session: "s", server: "websocket-1", mode: "single" }));
  }

  frame(frame: object): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  send(text: string): void {
    const { type, id, endpoints, token } = JSON.parse(text) as {
      type: string; id: number; endpoints: Record<string, number> | string[]; token: string;
    };
    if (type === "auth") {
      this.#server.tokens.push(token);
      return this.frame({ type: "authenticated", id, expires: Date.now() / 1000 + 900 });
    }
    if (Array.isArray(endpoints)) {
      for (const name of endpoints) this.subscribed.delete(name);
      return this.frame({ type: "unsubscribed", id, endpoints });
    }
    const isCovered = ([name]: [string, unknown]): boolean => !this.#server.forbidden.has(name);
    const registered = Object.fromEntries(Object.entries(endpoints).filter(isCovered));
    const others = Object.keys(endpoints).filter((name) => !(name in registered));
    for (const name of Object.keys(registered)) this.subscribed.add(name);
    const rejected = Object.fromEntries(others.map((name) => [name, { code: "forbidden", message: "" }]));
    this.frame({ type: "subscribed", id, endpoints: registered, rejected });
  }

  close(): void {
    this.#all.delete(this);
  }
}
