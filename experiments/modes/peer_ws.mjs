// A peer: a server on the `ws` package as applications write it: a set of sockets for each endpoint, one `send` each.
// Run by peers.py in client/, where `ws` is installed: peer_ws.mjs [PORT]. It prints its port, and ends with its standard input.
// Clients send {"subscribe":[...],"unsubscribe":[...]}; POST / has {"updates":[{"endpoint":...},...]}.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const { WebSocketServer } = createRequire(join(process.cwd(), "package.json"))("ws");
const subscribers = new Map();

const http = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    for (const update of JSON.parse(Buffer.concat(chunks)).updates) {
      const frame = Buffer.from(JSON.stringify(update));
      for (const socket of subscribers.get(update.endpoint) ?? []) socket.send(frame, { binary: false });
    }
    response.writeHead(204).end();
  });
});

const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on("connection", (socket) => {
  const own = new Set();
  const drop = (endpoint) => {
    own.delete(endpoint);
    subscribers.get(endpoint)?.delete(socket);
  };
  socket.on("error", () => {});
  socket.on("message", (data) => {
    const { subscribe = [], unsubscribe = [] } = JSON.parse(data);
    unsubscribe.forEach(drop);
    for (const endpoint of subscribe) {
      own.add(endpoint);
      if (!subscribers.has(endpoint)) subscribers.set(endpoint, new Set());
      subscribers.get(endpoint).add(socket);
    }
  });
  socket.on("close", () => [...own].forEach(drop));
});

http.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => console.log(http.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
