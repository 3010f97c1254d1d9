import { expect, test } from "vitest";
import { difference } from "../../../src/page/data/difference.ts";
import type { Row, Shape } from "../../../src/page/data/tree.ts";
import { MEMBERS, branchesWith, brief, isSmall, openAtFirst, rows } from "../../../src/page/data/tree.ts";

const ALL: Shape = { isOpen: () => true, members: () => MEMBERS };
const CLOSED: Shape = { isOpen: () => false, members: () => MEMBERS };
const line = ({ level, label, text, mark, before, hidden, isOpen }: Row): string =>
  `${"  ".repeat(level - 1)}${isOpen === null ? "" : isOpen ? "v " : "> "}${label}: ${text}${mark ? ` ${mark}` : ""}${before && ` was ${before}`}${hidden ? ` (${hidden})` : ""}`;
const lines = (value: unknown, shape = ALL, before = value): string[] => rows(value, difference(before, value).delta, shape).map(line);

test("a document as a tree", () => {
  const score = { home: 2, "a/b": null, events: [{ minute: 3 }], done: false, none: {} };
  expect(lines(score)).toEqual(["home: 2", "a/b: null", "v events: 1 item", "  v 0: 1 field", "    minute: 3", "done: false", "none: {}"]);
  expect(lines(score, CLOSED)).toEqual(["home: 2", "a/b: null", '> events: [{"minute": 3}]', "done: false", "none: {}"]);
  expect(rows(score, null, ALL).map(({ id, position, size }) => [id, position, size]).slice(1, 4)).toEqual([["/a~1b", 2, 5], ["/events", 3, 5], ["/events/0", 1, 1]]);
});

test("a value that has no members is one row", () => {
  expect([42, "text", null, true, [], {}].flatMap((value) => lines(value))).toEqual([": 42", ': "text"', ": null", ": true", ": []", ": {}"]);
});

test("marks are at their values, removed ones are where they were, and closed branches count theirs", () => {
  const before = { score: { home: 1, away: 0 }, list: [1, 2, 3], old: { a: 1 } };
  const after = { score: { home: 2, away: 0 }, list: [1, 3], more: "x" };
  expect(lines(after, ALL, before)).toEqual([
    "v score: 2 fields", "  home: 2 changed was 1", "  away: 0",
    "v list: 2 items", "  0: 1", "  1: 2 removed", "  1: 3",
    'old: {"a": 1} removed', 'more: "x" added',
  ]);
  expect(lines(after, CLOSED, before).slice(0, 2)).toEqual(['> score: {"home": 2, "away": 0} (1)', "> list: [1, 3] (1)"]);
  expect(new Set(rows(after, difference(before, after).delta, ALL).map(({ id }) => id)).size).toBe(9);
  expect(branchesWith(difference(before, after).delta!, 10)).toEqual(["/score", "/list"]);
  expect(branchesWith(difference(before, after).delta!, 1)).toEqual(["/score"]);
});

test("what became empty, or another type, is shown with what it was", () => {
  expect(lines({ a: {} }, ALL, { a: { b: 1 } })).toEqual(["v a: 0 fields", "  b: 1 removed"]);
  expect(lines({}, ALL, { b: 1 })).toEqual(["b: 1 removed"]);
  expect(lines({ a: [1] }, ALL, { a: "text" })).toEqual(['v a: 1 item changed was "text"', "  0: 1"]);
  expect(lines([1], ALL, 7)).toEqual(["v : 1 item changed was 7", "  0: 1"]);
});

test("of many members the first are shown, then those that differ, and how many more there are", () => {
  const before = Array.from({ length: 10_000 }, (_, index) => index);
  const after = before.with(5_000, -1);
  const made = lines(after, ALL, before);
  expect([made.length, made[99], ...made.slice(100)]).toEqual([103, "99: 99", ": 4,900 more", "5000: -1 changed was 5000", ": 4,999 more"]);
  expect(lines(after, { ...ALL, members: () => 200 }, before)[200]).toBe(": 4,800 more");
  const all = lines(before.map((value) => -value - 1), ALL, before);
  expect([all.length, all.at(-1)]).toEqual([121, ": 9,880 more (9880)"]);
});

test("a tree has a bound, and says so", () => {
  const wide = Array.from({ length: 90 }, () => Array.from({ length: 90 }, () => 0));
  const made = rows(wide, null, ALL);
  expect([made.length, made.at(-1)?.kind, made.at(-1)?.text]).toEqual([2_001, "end", "The rest is not shown: close a branch above"]);
});

test("a long text is cut, opens, and shows what is different in it", () => {
  const text = "x".repeat(200);
  expect(lines({ text }, CLOSED)).toEqual([`> text: "${"x".repeat(119)}…`]);
  expect(lines({ text })).toEqual([`v text: ${text}`]);
  expect(lines({ text: "y".repeat(10_500) })[0]?.slice(-22)).toBe("y… 500 more characters");
  expect(lines({ text: `${text}b` }, CLOSED, { text: `${text}a` })).toEqual([`> text: "…${"x".repeat(20)}b" changed was "…${"x".repeat(20)}a"`]);
  expect(lines({ text: "b" }, CLOSED, { text: "a" })).toEqual(['text: "b" changed was "a"']);
});

test("values in brief are not read to their end", () => {
  expect([brief({ a: [1, "x"], b: {} }), brief([]), brief("a\nb"), brief(1e300), brief(undefined)]).toEqual(['{"a": [1, "x"], "b": {}}', "[]", '"a\\nb"', "1e+300", "undefined"]);
  const hostile = { ...Array.from({ length: 50 }, () => 1), get last(): number {
    throw new Error("read");
  } };
  expect(brief(hostile, 10).length).toBe(11);
});

test("as many levels are open at first as there is room for; what comes later is open if it is small", () => {
  const small = { a: { b: { c: [1, 2] } }, d: [] };
  expect([...openAtFirst(small)]).toEqual(["", "/a", "/a/b", "/a/b/c"]);
  const large = { few: [1], many: Array.from({ length: 100 }, () => ({ x: 1 })) };
  expect([...openAtFirst(large)]).toEqual(["", "/few"]);
  expect([...openAtFirst(large.many)]).toEqual([""]);
  expect([isSmall([1]), isSmall(large.many), isSmall("long")]).toEqual([true, false, false]);
});
