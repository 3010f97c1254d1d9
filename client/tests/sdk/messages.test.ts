import { expect, test } from "vitest";
import { parseFrame } from "../../src/sdk/messages.ts";

test("the literal frames of the protocol are understood", () => {
  expect(parseFrame('{"type":"update","endpoint":"/dam/prices/GR","version":1700000000456,"time":"2026-01-01T00:00:00.456Z"}')).toEqual({
    type: "update", endpoint: "/dam/prices/GR", version: 1700000000456, time: "2026-01-01T00:00:00.456Z", gone: false, size: 103,
  });
  expect(parseFrame('{"type":"update","endpoint":"/a","version":2,"time":"t","gone":true}')).toMatchObject({ gone: true });
  expect(
    parseFrame('{"type":"update","endpoint":"/a","version":2,"time":"t","data":{},"media_type":"application/json","traceparent":"00-a-b-01"}'),
  ).toMatchObject({ data: {}, mediaType: "application/json", traceparent: "00-a-b-01" });
  expect(
    parseFrame('{"type":"subscribed","id":2,"endpoints":{"/a":1},"rejected":{"/b":{"code":"forbidden","message":"no"}}}'),
  ).toEqual({ type: "subscribed", id: 2, endpoints: { "/a": 1 }, rejected: { "/b": { code: "forbidden", message: "no" } } });
  expect(parseFrame('{"type":"unsubscribed","id":3,"endpoints":["/a"]}')).toMatchObject({ id: 3, endpoints: ["/a"] });
  expect(parseFrame('{"type":"status","live":true,"since":"t"}')).toEqual({ type: "status", live: true, since: "t", endpoints: null });
  expect(parseFrame('{"type":"moved","endpoints":["/a"],"owner":"wss://x"}')).toEqual({ type: "moved", endpoints: ["/a"], owner: "wss://x" });
  expect(parseFrame('{"type":"moved","endpoints":["/a"]}')).toEqual({ type: "moved", endpoints: ["/a"], owner: null });
  expect(
    parseFrame('{"type":"subscribed","id":2,"endpoints":{},"rejected":{"/b":{"code":"not_owner","message":"no","owner":"ws://x"}}}'),
  ).toMatchObject({ rejected: { "/b": { code: "not_owner", message: "no", owner: "ws://x" } } });
  expect(parseFrame('{"type":"resync","endpoints":["/a"]}')).toEqual({ type: "resync", endpoints: ["/a"] });
  expect(parseFrame('{"type":"error","id":2,"code":"bad_name","message":"m"}')).toMatchObject({ id: 2, code: "bad_name" });
  expect(parseFrame('{"type":"error","code":"bad_json","message":"m"}')).toMatchObject({ id: null });
});

test.each([
  ["{", 7, null, "[]", "null", '{"type":"new"}', '{"type":"update","endpoint":"/a"}', '{"type":"update","endpoint":3,"version":1}',
    '{"type":"update","endpoint":"/a","version":1.5}', '{"type":"subscribed"}', '{"type":"unsubscribed"}'],
])("what is not well-formed is no frame", (...frames) => {
  for (const frame of frames) expect(parseFrame(frame), String(frame)).toBeNull();
});
