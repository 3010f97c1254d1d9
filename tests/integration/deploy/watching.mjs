// Watches endpoints with `diem-client/node`, and writes each version as a line: watching.mjs MODULE CONFIG_URL ENDPOINT...
import { createRequire } from "node:module";

const [module, configUrl, ...endpoints] = process.argv.slice(2);
const { createDiem } = await import(module);
const WebSocket = globalThis.WebSocket ?? createRequire(module)("ws");
const diem = createDiem({ configUrl, WebSocket });
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
diem.updates.connection.observe(({ state, transport }) => write({ state, transport }));
process.stdin.on("end", () => diem.close()).resume();
await Promise.all(endpoints.map(async (endpoint) => {
  for await (const { version } of diem.watch(endpoint)) write({ endpoint, version });
}));
