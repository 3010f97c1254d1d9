import { expect, test } from "vitest";
import { between, clock, count, rate, span } from "../../src/admin/format.ts";

test("counts and rates", () => {
  expect([count(0), count(12345), count(null), count(undefined)]).toEqual(["0", "12,345", "–", "–"]);
  expect([rate(0), rate(0.26), rate(9.96), rate(12345.6), rate(null)]).toEqual(["0", "0.3", "10.0", "12,346", "–"]);
});

test("spans have their two largest units, and are never negative", () => {
  const s = 1000, min = 60 * s, h = 60 * min;
  expect([-5 * s, 8.9 * s, 3 * min + 59 * s, 2 * h + 5 * min, 2 * h, 99 * h, 48 * h].map(span)).toEqual([
    "0 s", "8 s", "3 min", "2 h 5 min", "2 h", "4 d 3 h", "2 d",
  ]);
  expect(between("2026-01-02T03:00:00Z", "2026-01-02T03:00:30Z")).toBe("30 s");
  expect(between(null, "2026-01-02T03:00:30Z")).toBe("–");
});

test("times of another day have their date", () => {
  const at = new Date(2026, 0, 2, 3, 4, 5), later = new Date(2026, 0, 2, 23, 0, 0), tomorrow = new Date(2026, 0, 3, 1, 0, 0);
  expect(clock(at.toISOString(), later.toISOString())).toBe("03:04:05");
  expect(clock(at.toISOString(), tomorrow.toISOString())).toBe("2 Jan 03:04:05");
});
