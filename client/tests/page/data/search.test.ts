import { expect, test } from "vitest";
import { matching, newest, parentOf, searchable, slice } from "../../../src/page/data/search.ts";
import type { Listed } from "../../../src/page/zones.ts";

const CATALOGUE: Listed[] = [
  { endpoint: "/my/wind", gone: false, title: "Offshore Wind", area: "DE-LU", quantity: "generation", unit: "MW", version: 5 },
  { endpoint: "/my/gone", gone: true, version: 9 },
  { endpoint: "/a/price", gone: false, title: "Spot", area: "GR", quantity: "price", unit: "EUR/MWh", version: 7 },
  { endpoint: "/b/price", gone: false },
];
const KINDS: Listed[] = [
  { endpoint: "/game/42/score", gone: false, kind: "document", mediaType: "application/json" },
  { endpoint: "/game/42/logo", gone: false, kind: "bytes", mediaType: "image/png" },
  { endpoint: "/game/41/stats", gone: false, kind: "series", mediaType: "application/vnd.diem.series+json" },
];
const names = (query: string): string[] => matching(searchable(CATALOGUE), query).map(({ endpoint }) => endpoint);

test("all endpoints that exist, by name", () => {
  expect(names("")).toEqual(["/a/price", "/b/price", "/my/wind"]);
});

test("every word of the search is somewhere in name, title, area, quantity or unit", () => {
  expect(names("PRICE")).toEqual(["/a/price", "/b/price"]);
  expect(names("  wind  de ")).toEqual(["/my/wind"]);
  expect(names("eur")).toEqual(["/a/price"]);
  expect(names("generation mw")).toEqual(["/my/wind"]);
  expect(names("price wind")).toEqual([]);
});

test("kinds and media types are found; collections where they are asked for", () => {
  const found = (query: string): string[] => matching(searchable(KINDS), query).map(({ endpoint }) => endpoint);
  expect([found("document"), found("json"), found("image"), found("series 41")]).toEqual([["/game/42/score"], ["/game/42/score"], ["/game/42/logo"], ["/game/41/stats"]]);
  expect(found("game")).toEqual(["/game/41/stats", "/game/42/logo", "/game/42/score"]);
  expect(found("/game/42/")).toEqual(["/game/42/", "/game/42/logo", "/game/42/score"]);
  expect([found("collections"), found("collection 41")]).toEqual([["/game/", "/game/41/", "/game/42/"], ["/game/41/"]]);
  expect(["/game/42/score", "/game/42/", "/game/", "/game", ""].map(parentOf)).toEqual(["/game/42/", "/game/", "", "", ""]);
});

test("the endpoint that was written last, not one that was deleted", () => {
  expect(newest(CATALOGUE)).toBe("/a/price");
  expect(newest([{ endpoint: "/b", gone: false }, { endpoint: "/a", gone: false }])).toBe("/a");
  expect(newest([])).toBeNull();
});

test("a page of a list is within it", () => {
  expect(slice(10_000, 50, 199)).toEqual({ index: 199, pages: 200, from: 9_950, to: 10_000 });
  expect(slice(101, 50, 99)).toEqual({ index: 2, pages: 3, from: 100, to: 101 });
  expect(slice(0, 50, 3)).toEqual({ index: 0, pages: 1, from: 0, to: 0 });
});
