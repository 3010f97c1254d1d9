/** The example for Node, over real sockets: HTTP, and the WebSocket of `ws`. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
// @ts-expect-error: it has no types.
import * as ws from "ws";
import { print } from "../../examples/node.ts";
import { createDiem } from "../../src/sdk/node.ts";

interface Connection {
  send(text: string): void;
  close(code: number, reason: string): void;
  terminate(): void;
  on(event: "message", listener: (text: unknown) => void): void;
}

interface Server {
  readonly clients: Set<Connection>;
  handleUpgrade(request: unknown, socket: unknown, head: unknown, done: (connection: Connection) => void): void;
}

const { WebSocket, WebSocketServer } = ws as { WebSocket: unknown; WebSocketServer: new (options: { noServer: true }) => Server };
const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

interface Served {
  configUrl: string;
  sockets: Server;
  down(): void;
  up(): Promise<void>;
  change(version: number): void;
}

async function served(rejected = false): Promise<Served> {
  const sockets = new WebSocketServer({ noServer: true });
  const http = createServer((_, response) => {
    const { port } = http.address() as AddressInfo;
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify({ mode: "single", rest: "v1", servers: [{ url: `ws://127.0.0.1:${port}/ws` }] }));
  });
  const update = (version: number): string => JSON.stringify(
    { type: "update", endpoint: "/a", version, time: "2026-01-01T00:00:00Z", media_type: "application/json", data: { version } },
  );
  http.on("upgrade", (request, socket, head) => sockets.handleUpgrade(request, socket, head, (connection) => {
    connection.send(JSON.stringify({ type: "welcome", server: "s", data: true, limits: { subscriptions: 10 } }));
    connection.send(JSON.stringify({ type: "status", live: true, since: "2026-01-01T00:00:00Z" }));
    connection.on("message", (text) => {
      const { type, id } = JSON.parse(String(text)) as { type: string; id: number };
      if (type !== "subscribe") return;
      const refusal = { "/a": { code: "forbidden", message: "not covered by the token" } };
      connection.send(JSON.stringify({ type: "subscribed", id, endpoints: rejected ? {} : { "/a": 1 }, rejected: rejected ? refusal : {} }));
      if (!rejected) connection.send(update(1));
    });
  }));
  const up = (port = 0): Promise<void> => new Promise<void>((resolve) => http.listen(port, "127.0.0.1", resolve));
  const down = (): void => {
    http.closeAllConnections();
    http.close();
    for (const each of sockets.clients) each.terminate();
  };
  await up();
  stops.push(down);
  const { port } = http.address() as AddressInfo;
  return {
    configUrl: `http://127.0.0.1:${port}/config.json`,
    sockets,
    down,
    up: () => up(port),
    change: (version) => sockets.clients.forEach((each) => each.send(update(version))),
  };
}

test("a program gets each change, also after a lost connection, and disconnects when it stops", async () => {
  const server = await served();
  const lines: string[] = [];
  const stop = new AbortController();
  const printing = print(server.configUrl, "/a", (line) => lines.push(line), stop.signal, WebSocket);
  await vi.waitFor(() => expect(lines).toEqual(['1 {"version":1}']), 10_000);
  for (const each of server.sockets.clients) each.close(1012, "retry=1");
  await vi.waitFor(() => {
    server.change(2);
    expect(lines.at(-1)).toBe('2 {"version":2}');
  }, 10_000);
  stop.abort();
  await printing;
  await vi.waitFor(() => expect(server.sockets.clients.size).toBe(0), 10_000);
});

test("connections that nobody accepts end no program, and the watch goes on after them", async () => {
  const server = await served();
  const diem = createDiem({ configUrl: server.configUrl, WebSocket });
  const versions = diem.watch("/a");
  expect((await versions.next()).value).toMatchObject({ version: 1 });
  const attempts = new Set<number>();
  diem.updates.connection.observe(({ retryAt }) => retryAt && attempts.add(retryAt));
  server.down();
  await vi.waitFor(() => expect(attempts.size).toBeGreaterThan(2), 10_000); // the first two follow the loss and a refusal
  await server.up();
  await vi.waitFor(() => expect(diem.updates.connection.value.state).toBe("open"), 10_000);
  server.change(2);
  expect((await versions.next()).value).toMatchObject({ version: 2 });
  diem.close();
});

test("a refused subscription is thrown, and close() ends the loops", async () => {
  const { configUrl } = await served(true);
  const diem = createDiem({ configUrl, WebSocket });
  await expect(diem.watch("/a").next()).rejects.toThrow("/a: not covered by the token");
  const waiting = diem.watch("/b").next();
  diem.close();
  expect((await waiting).done).toBe(true);
});
