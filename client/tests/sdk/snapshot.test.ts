/** Snapshots of every kind: as servers send them, as the Data Service answers them, and as a device stores them. */

import { describe, expect, test } from "vitest";
import { fromText, toText } from "../../src/sdk/mirror.ts";
import { NOTICE, SERIES, isJson, readSnapshot } from "../../src/sdk/snapshot.ts";
import { tombstone } from "../../src/sdk/tombstone.ts";
import type { Content, Snapshot } from "../../src/sdk/snapshot.ts";
import { body } from "./world.ts";

const TIME = "2026-01-01T00:00:00.000Z";
const read = (content: Partial<Content>): Snapshot | null => readSnapshot("/a", { version: 5, time: TIME, ...content });
const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);
const utf8 = (value: string): Uint8Array => new TextEncoder().encode(value);
const series = { unit: "MW", resolution: "PT1H", points: [{ time: "2026-01-01T00:00:00Z", value: 5 }] };

const VALUES: [string, Partial<Content>, unknown][] = [
  ["a series, which has no media type", { data: body("/a", 5) }, series],
  ["a series with one", { mediaType: SERIES, data: body("/a", 5) }, series],
  ["a document", { mediaType: "application/json", data: { home: 2 } }, { home: 2 }],
  ["a document like a series", { mediaType: "application/json", data: body("/other", 7) }, body("/other", 7)],
  ["a document of another JSON type", { mediaType: "application/geo+json", data: [1] }, [1]],
  ...[null, false, 0, ""].map((data): [string, Partial<Content>, unknown] => [`the document ${JSON.stringify(data)}`, { mediaType: "application/json", data }, data]),
  ["text", { mediaType: "text/html", data: "<p>é" }, "<p>é"],
  ["no text", { mediaType: "text/plain", data: "" }, ""],
  ["text as bytes", { mediaType: "text/plain;charset=utf-8", data: utf8("é") }, "é"],
  ["text with a byte order mark", { mediaType: "text/csv", data: utf8("\ufeffa") }, "\ufeffa"],
  ["text in other names of UTF-8", { mediaType: "text/plain;charset=utf8", data: "é" }, "é"],
  ["text in ASCII", { mediaType: "text/plain;charset=us-ascii", data: utf8("e") }, "e"],
  ["text in another encoding", { mediaType: "text/plain;charset=iso-8859-1", data: bytes(0xe9) }, bytes(0xe9)],
  ["the same where it would be UTF-8, too", { mediaType: "text/plain;charset=utf-16", data: "h\0i\0" }, bytes(0x68, 0, 0x69, 0)],
  ["the same with an update", { mediaType: "text/plain;charset=iso-8859-1", data: "6Q==", encoding: "base64" }, bytes(0xe9)],
  ["bytes", { mediaType: "image/png", data: bytes(0, 255) }, bytes(0, 255)],
  ["bytes with an update", { mediaType: "image/png", data: "AP8=", encoding: "base64" }, bytes(0, 255)],
  ["bytes that are text in UTF-8", { mediaType: "image/svg+xml", data: "<svg/>é" }, utf8("<svg/>é")],
  ["no bytes", { mediaType: "image/png", data: bytes() }, bytes()],
  ["a notice", { mediaType: NOTICE, data: { endpoint: "/a", version: 5, time: TIME, url: "/orders/42" } }, { url: "/orders/42" }],
  ["a notice without a URL", { mediaType: NOTICE, data: { endpoint: "/a", version: 5, time: TIME } }, {}],
  ["a collection", { mediaType: "application/vnd.diem.collection+json", data: { endpoint: "/a", version: 5, time: TIME, members: ["/a/b"] } }, { members: ["/a/b"] }],
];

test.each(VALUES)("%s", (_what, content, value) => {
  expect(read(content)).toEqual({
    endpoint: "/a", version: 5, time: TIME, mediaType: content.mediaType ?? SERIES, gone: false, confirmed: true, value, ...(value === series && series),
  });
});

test.each<[string, Partial<Content>]>([
  ["another endpoint's series", { data: body("/b", 5) }],
  ["a series without points", { data: { endpoint: "/a", version: 5 } }],
  ["a series without a version", { data: { ...body("/a", 5), version: "5" } }],
  ["another endpoint's notice", { mediaType: NOTICE, data: { endpoint: "/b", version: 5, time: TIME } }],
  ["no object where there must be one", { mediaType: NOTICE, data: "/a" }],
  ["what is not base64", { mediaType: "image/png", data: "%", encoding: "base64" }],
  ["bytes that are none", { mediaType: "image/png", data: 5 }],
  ["text that is none", { mediaType: "text/plain", data: { a: 1 } }],
])("nothing is read from %s", (_what, content) => {
  expect(read(content)).toBeNull();
});

test.each([
  ["application/json", true], ["application/json;x=1", true], ["application/merge-patch+json", true], ["text/json", false],
  ["text/plain;of=a+json", false], ["application/jsonl", false], ["application/json-seq", false], ["image/svg+xml", false],
])("%s is JSON: %s", (mediaType, expected) => {
  expect(isJson(mediaType)).toBe(expected);
});

describe("on the device", () => {
  test.each(VALUES.filter(([, { mediaType }]) => mediaType !== NOTICE))("%s comes back unconfirmed", (_what, content) => {
    const kept = read(content) as Snapshot;
    expect(fromText("/a", toText(kept, 100) as string, readSnapshot)).toEqual({ ...kept, confirmed: false });
  });

  test.each(VALUES.filter(([, { mediaType }]) => mediaType !== NOTICE))("%s, deleted, comes back so", (_what, content) => {
    const kept = tombstone("/a", { version: 6 }, read(content) as Snapshot, 0);
    expect(kept).toMatchObject({ version: 6, gone: true, value: null });
    expect(fromText("/a", toText(kept, 100) as string, readSnapshot)).toEqual({ ...kept, confirmed: false });
  });

  test("a series has the text that earlier releases read and wrote", () => {
    const text = JSON.stringify({ ...body("/a", 5), gone: false, confirmed: true });
    expect(fromText("/a", text, readSnapshot)).toEqual({ ...read({ data: body("/a", 5) }), confirmed: false });
    expect(JSON.parse(toText(read({ data: body("/a", 5) }) as Snapshot, 100) as string)).toEqual(JSON.parse(text));
  });

  test("what a page has fetched with its own rights is not stored, nor what has no room", () => {
    expect(toText(read({ mediaType: NOTICE, data: { endpoint: "/a", version: 5, time: TIME } }) as Snapshot, 100)).toBeNull();
    expect(toText(read({ mediaType: "image/png", data: bytes(1, 2, 3) }) as Snapshot, 2)).toBeNull();
  });

  test.each(["{}", '{"mediaType":"text/plain","value":"a"}', '{"mediaType":"text/plain","value":"a","endpoint":"/b","version":1}'])("%s is nothing", (text) => {
    expect(fromText("/a", text, readSnapshot)).toBeNull();
  });
});

test("what was deleted before anything was held has the fields of a series, and no media type", () => {
  expect(tombstone("/a", null, undefined, 7)).toEqual({
    endpoint: "/a", version: 7, time: "", mediaType: "", value: null, unit: "", resolution: "", points: [], gone: true, confirmed: true,
  });
});
