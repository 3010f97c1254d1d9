import { expect, test } from "vitest";
import { CLOSE_CODES, ERROR_CODES, reconnects, retryWindow } from "../../src/sdk/codes.ts";

test("ranges decide: 4000-4499 reconnect, 4500-4999 stop", () => {
  for (const { code, reconnect } of Object.values(CLOSE_CODES)) {
    if (code >= 4000) expect(reconnect, String(code)).toBe(code < 4500);
    expect(reconnects(code)).toBe(reconnect);
  }
});

test.each([
  [1000, false], [1001, true], [1002, false], [1003, false], [1006, true], [1007, false], [1008, false],
  [1009, false], [1011, true], [1012, true], [1013, true], [1014, true], [4499, true], [4500, false], [4999, false],
])("after %i reconnects: %s", (code, expected) => {
  expect(reconnects(code)).toBe(expected);
});

test("codes are unique, and error codes are those of the protocol", () => {
  const codes = Object.values(CLOSE_CODES).map(({ code }) => code);
  expect(new Set(codes).size).toBe(codes.length);
  expect(ERROR_CODES).toHaveLength(9);
});

test.each([
  ["restart retry=1500", 1500],
  ["retry=0", 0],
  ["rate retry=60000", 60_000],
  ["retry=99999999", 600_000],
  ["restart", null],
  ["retry=", null],
  ["noretry=5", null],
])("%j asks for the window %s", (reason, window) => {
  expect(retryWindow(reason)).toBe(window);
});
