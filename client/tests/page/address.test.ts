import { expect, test } from "vitest";
import { pageOf, pageSearch, readAddress } from "../../src/page/address.ts";

test("the address names the page, and what is no endpoint name is left out", () => {
  expect(readAddress("?view=data&endpoint=/my/series", "")).toEqual({ page: "data", endpoint: "/my/series" });
  expect(readAddress("?endpoint=/my/series", "")).toEqual({ page: "data", endpoint: "/my/series" });
  expect(readAddress("?view=market&zone=GR", "")).toEqual({ page: "market", endpoint: null });
  expect(readAddress("?view=data&endpoint=javascript:1", "")).toEqual({ page: "data", endpoint: null });
  expect(readAddress("?endpoint=/game/42/", "").endpoint).toBe("/game/42/");
  expect([readAddress("?endpoint=/", "").endpoint, readAddress("?endpoint=/a//", "").endpoint]).toEqual([null, null]);
  expect(readAddress("?view=other", "")).toEqual({ page: null, endpoint: null });
});

test("what only a market has leads to it", () => {
  for (const [search, hash] of [["?zone=GR", ""], ["?price=/p", ""], ["?load=/l", ""], ["", "#zone=GR"]] as const) {
    expect(readAddress(search, hash).page, search + hash).toBe("market");
  }
  expect(readAddress("?data=off", "#day=2026-11-21").page).toBeNull();
});

test("without a wish the catalogue decides, once it is known", () => {
  const free = { page: null, endpoint: null };
  expect([null, true, false].map((hasMarket) => pageOf(free, hasMarket))).toEqual([null, "market", "data"]);
  expect(pageOf({ page: "market", endpoint: null }, false)).toBe("market");
  expect(pageOf({ page: "data", endpoint: null }, true)).toBe("data");
});

test("a link to an endpoint can be read again, and keeps what else the address has", () => {
  expect(pageSearch("", "data")).toBe("?view=data");
  expect(pageSearch("?data=off&view=market", "data", "/my/series")).toBe("?view=data&endpoint=/my/series&data=off");
  expect(pageSearch("?view=data&endpoint=/a", "market")).toBe("?view=market");
  for (const name of ["/a+b=c;d", "/it's/(1)/~x!$&".replace("&", "*"), "/x:y@z,1"]) {
    expect(readAddress(pageSearch("?data=off", "data", name), "").endpoint).toBe(name);
  }
});
