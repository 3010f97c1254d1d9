import { expect, test } from "vitest";
import { CLOSE_CODES, ERROR_CODES, reconnects } from "../../src/sdk/codes.ts";

test("the table says the same as the function, and codes are unique", () => {
  for (const { code, reconnect } of Object.values(CLOSE_CODES)) expect(reconnects(code), String(code)).toBe(reconnect);
  const codes = Object.values(CLOSE_CODES).map(({ code }) => code);
  expect(new Set(codes).size).toBe(codes.length);
  expect(ERROR_CODES).toHaveLength(9);
});
