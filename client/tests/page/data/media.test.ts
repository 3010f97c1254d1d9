import { expect, test } from "vitest";
import { fileName, formOf, kindIn, kindOf, kindWords, sizeOf, sizeWords, textOf } from "../../../src/page/data/media.ts";
import { lines } from "../../../src/page/data/text.ts";

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);

test("the media type names the kind", () => {
  const kinds = ["application/vnd.diem.series+json", "application/json", "application/geo+json", "text/plain;charset=utf-8", "application/vnd.diem.notice+json", "application/vnd.diem.collection+json", ""];
  expect(kinds.map(kindOf)).toEqual(["series", "document", "document", "bytes", "notice", "collection", null]);
  expect([kindIn({ endpoint: "/a", gone: false }), kindIn({ endpoint: "/a", gone: false, kind: "bytes" })]).toEqual(["series", "bytes"]);
  expect([kindWords("series"), kindWords("document", "application/json"), kindWords("document", "application/geo+json"), kindWords("bytes", "text/html;charset=utf-8"), kindWords("notice"), kindWords("bytes")]).toEqual(
    ["", "JSON", "application/geo+json", "text/html", "notice", "bytes"],
  );
});

test("only images without scripts are images; what could run is text, and never more", () => {
  expect(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"].map(formOf)).toEqual(Array(5).fill("image"));
  expect(["text/plain", "text/html;charset=utf-8", "image/svg+xml", "application/xhtml+xml", "application/xml", "application/javascript", "application/yaml"].map(formOf)).toEqual(Array(7).fill("text"));
  expect(["application/octet-stream", "application/pdf", "video/mp4", "image/x-icon", "multipart/mixed", ""].map(formOf)).toEqual(Array(6).fill("file"));
});

test("text of any character set; what is none is no text", () => {
  expect(textOf(bytes(0xe9), "text/plain;charset=iso-8859-1")).toBe("é");
  expect(textOf(bytes(0x68, 0, 0x69, 0), "text/plain;charset=utf-16;x=1")).toBe("hi");
  expect([textOf(bytes(0x81), "text/plain;charset=shift_jis"), textOf(bytes(1), "text/plain;charset=klingon")]).toEqual([null, null]);
  expect([textOf("a"), textOf(bytes(0xc3, 0xa9)), textOf(bytes(0xff)), textOf(null)]).toEqual(["a", "é", null, null]);
});

test("sizes, and names of files", () => {
  expect([sizeOf("é"), sizeOf(bytes(1, 2, 3)), sizeOf(null)]).toEqual([2, 3, 0]);
  expect([0, 1_023, 1_536, 4 * 1_024 ** 2].map(sizeWords)).toEqual(["0 B", "1023 B", "1.5 KiB", "4.0 MiB"]);
  expect([fileName("/a/logo", "image/png"), fileName("/a/logo.v2", "image/png"), fileName("/a/notes", "text/plain;charset=utf-8"), fileName("/a/x", "image/svg+xml"), fileName("/a/x", "application/vnd.any")]).toEqual(
    ["logo.png", "logo.v2", "notes.txt", "x.svg", "x"],
  );
});

test("the lines of a text that were added and removed", () => {
  const marked = (before: string, after: string): string[] | undefined => lines(before, after)?.map(({ mark, text }) => `${mark === "added" ? "+" : mark === "removed" ? "-" : " "}${text}`);
  expect(marked("a\nb\nc", "a\nB\nc\nd")).toEqual([" a", "-b", "+B", " c", "+d"]);
  expect(marked("a\nb", "b")).toEqual(["-a", " b"]);
  expect(marked("a\nb", "a")).toEqual([" a", "-b"]);
  expect([lines("a", "a"), lines("a", "a\n".repeat(2_001))]).toEqual([null, null]);
});
