import { expect, test } from "vitest";
import { parseConfig } from "../../src/sdk/config.ts";
import type { Metadata } from "../../src/sdk/locator.ts";
import { locate, parseLocated } from "../../src/sdk/locator.ts";
import { request } from "../../src/sdk/http.ts";
import { World } from "./world.ts";

const SERVERS = [{ port: 8101, path: "/ws" }, { url: "wss://edge.test/ws" }];
const CONFIG = { mode: "z-client", servers: SERVERS, rest: "/v1", metadata: [{ port: 8400, path: "/v1" }, { url: "https://meta.test/v1" }] };
const metadataOf = (source: string, config: object = CONFIG): Metadata | undefined => parseConfig(config, new URL(source)).metadata;
const METADATA = metadataOf("http://diem.test:8080/config.json") as Metadata;

test("only z-client with metadata services is partitioned", () => {
  expect(METADATA.services).toEqual(["http://diem.test:8400/v1", "https://meta.test/v1"]);
  expect([...METADATA.hosts].sort()).toEqual(["diem.test", "edge.test", "meta.test"]);
  expect(metadataOf("https://diem.test/config.json")?.services[0]).toBe("https://diem.test:8400/v1");
  for (const config of [{ ...CONFIG, mode: "z-proxy" }, { ...CONFIG, metadata: [] }, { ...CONFIG, metadata: undefined }]) {
    expect(metadataOf("http://diem.test/config.json", config)).toBeUndefined();
  }
});

test("the literal answer of the protocol is understood", () => {
  const owner = "ws://diem.test:8101/ws";
  const body = {
    clone: 2, epoch: 0, servers: [owner],
    endpoints: { "/a": { owner }, "/hot": { owner: null, hot: true }, "/nobody": { owner: null } },
    rejected: { bad: { code: "bad_name", message: "m" } },
  };
  const answer = parseLocated(body, METADATA);
  expect(Object.fromEntries(answer.endpoints)).toEqual({
    "/a": { owner, hot: false }, "/hot": { owner: null, hot: true }, "/nobody": { owner: null, hot: false },
  });
  expect(answer).toMatchObject({ clone: 2, epoch: 0, servers: [owner], untrusted: null, rejected: { bad: { code: "bad_name" } } });
});

test("an owner on another host is left out, and named", () => {
  const answer = parseLocated({ endpoints: { "/a": { owner: "wss://evil.test/ws" } }, servers: ["wss://evil.test/ws", 7] }, METADATA);
  expect([answer.endpoints.get("/a")?.owner, answer.servers, answer.untrusted]).toEqual([null, [], "wss://evil.test/ws"]);
});

test.each([[7, 7], [0, 0], [null, null], ["7", null], [undefined, null]])("an epoch %j is read as %j", (epoch, expected) => {
  expect(parseLocated({ endpoints: {}, epoch }, METADATA).epoch).toBe(expected);
});

test.each([null, {}, { endpoints: 3 }])("%j is no answer", (body) => {
  expect(() => parseLocated(body, METADATA)).toThrow("not an answer");
});

test("a question is a POST of the names, with the clone once there is one", async () => {
  const world = new World();
  world.auto = () => ({ status: 200, body: { endpoints: {} } });
  for (const clone of [null, 3]) await locate(request, world, "http://diem.test:8400/v1", METADATA, ["/a"], clone);
  expect(world.requests.map(({ url, body }) => [url, body])).toEqual([
    ["http://diem.test:8400/v1/locate", { endpoints: ["/a"] }],
    ["http://diem.test:8400/v1/locate", { endpoints: ["/a"], clone: 3 }],
  ]);
});
