import fc from "fast-check";
import { expect, test } from "vitest";
import type { Delta } from "../../../src/page/data/difference.ts";
import { difference, isArray, isObject, tally } from "../../../src/page/data/difference.ts";

/** The marks of a difference: "/a changed 1", the older values too. */
function marks(before: unknown, after: unknown): string[] {
  const found: string[] = [];
  const walk = (path: string, delta: Delta): void => {
    if (delta.mark) found.push(`${path} ${delta.mark}${delta.mark === "changed" ? ` ${JSON.stringify(delta.before)}` : ""}`);
    for (const { key, value, at } of delta.removed) found.push(`${path}/${key} removed ${JSON.stringify(value)} at ${at}`);
    for (const [key, member] of delta.members) walk(`${path}/${key}`, member);
  };
  const { delta } = difference(before, after);
  if (delta) walk("", delta);
  return found;
}

test("equal values have no marks, whatever the order of their fields", () => {
  expect(marks({ a: 1, b: [1, { c: null }] }, { b: [1, { c: null }], a: 1 })).toEqual([]);
  expect(difference([], [])).toEqual({ delta: null, isComplete: true });
});

test("fields that were added, changed and removed", () => {
  expect(marks({ home: 1, gone: true, away: 0, deep: { x: [1] } }, { home: 2, away: 0, deep: { x: [1], y: "" }, fresh: {} })).toEqual([
    "/gone removed true at 1",
    "/home changed 1",
    "/deep/y added",
    "/fresh added",
  ]);
  expect(marks({ a: 1 }, [1])).toEqual([' changed {"a":1}']);
  expect(marks(1, null)).toEqual([" changed 1"]);
  expect(marks({ a: null }, {})).toEqual(["/a removed null at 0"]);
  expect(marks({}, { constructor: 1, __proto__: 2 })).toEqual(["/constructor added"]);
  expect(marks({}, JSON.parse('{"__proto__":2}'))).toEqual(["/__proto__ added"]);
});

test("items that are inserted or deleted do not mark those behind them", () => {
  expect(marks([1, 2, 3], [0, 1, 2, 3])).toEqual(["/0 added"]);
  expect(marks([1, 2, 3], [1, 3])).toEqual(["/1 removed 2 at 1"]);
  expect(marks([1, 2, 3, 4], [2, 3, 4, 5])).toEqual(["/0 removed 1 at 0", "/3 added"]); // a window that moves
  expect(marks([[10, 1], [11, 2], [12, 3]], [[10, 1], [10.5, 7], [11, 5], [12, 3]])).toEqual(["/1/0 changed 11", "/1/1 changed 2", "/2 added"]);
  expect(marks([{ id: 1, at: 0 }, { id: 2, at: 0 }], [{ id: 1, at: 5 }, { id: 2, at: 0 }])).toEqual(["/0/at changed 0"]);
});

test("no more items than needed are inserted or deleted", () => {
  const items = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 30 });
  fc.assert(
    fc.property(items, items, (before, after) => {
      const { changed, removed } = tally(difference(before, after).delta);
      expect(before.length - changed - removed).toBe(longest(before, after));
    }),
    { numRuns: 300 },
  );
});

/** The length of the longest common subsequence, by its definition. */
function longest(a: readonly number[], b: readonly number[]): number {
  const lengths = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  a.forEach((item, i) => b.forEach((other, j) => {
    lengths[i + 1]![j + 1] = item === other ? lengths[i]![j]! + 1 : Math.max(lengths[i]![j + 1]!, lengths[i + 1]![j]!);
  }));
  return lengths[a.length]![b.length]!;
}

test("one item of very many that is deleted, and one that is changed, are two marks", () => {
  const before = Array.from({ length: 20_000 }, (_, index) => [index, index % 7]);
  const after = before.filter((_, index) => index !== 3).map((item) => (item[0] === 7_000 ? [7_000, -1] : item));
  expect(marks(before, after)).toEqual(["/3 removed [3,3] at 3", "/6999/1 changed 0"]);
});

test("long arrays with differences everywhere are compared item by item", () => {
  const numbers = (from: number): number[] => Array.from({ length: 2_000 }, (_, index) => index + from);
  const { delta, isComplete } = difference(numbers(0), numbers(5_000));
  expect([delta?.count, isComplete]).toEqual([2_000, true]);
});

test("beyond the bound nothing is marked, and that is known", () => {
  const before = Array.from({ length: 100 }, (_, index) => ({ index }));
  const after = before.map(({ index }) => ({ index: -1 - index }));
  expect(difference(before, after, 50)).toMatchObject({ isComplete: false });
  expect(difference(before, after, 10_000).isComplete).toBe(true);
});

test("deeply nested arrays cost no more than their size", () => {
  const nest = (value: unknown, depth = 32): unknown => (depth === 0 ? value : [nest(value, depth - 1)]);
  expect(difference(nest(1), nest(2)).isComplete).toBe(true);
  expect(tally(difference(nest(1), nest(2)).delta)).toEqual({ added: 0, changed: 1, removed: 0 });
});

test("a value with all its members counts once", () => {
  expect(tally(difference({ a: 1, b: { c: [1, 2, 3] }, d: [5] }, { a: 2, e: { f: [1, 2, 3] }, d: [5, 6, 7] }).delta)).toEqual({ added: 3, changed: 1, removed: 1 });
  expect(tally(null)).toEqual({ added: 0, changed: 0, removed: 0 });
});

/** The older value, made of the newer one and the marks. */
function undone(after: unknown, delta: Delta | null): unknown {
  if (delta === null) return after;
  if (delta.mark === "changed") return delta.before;
  const keys: (string | number)[] = isArray(after) ? [...after.keys()] : Object.keys(after as object);
  const members: [string | number, unknown][] = [];
  const removed = [...delta.removed];
  keys.forEach((key, index) => {
    while (removed[0] && removed[0].at <= index) members.push([removed[0].key, removed.shift()?.value]);
    const member = delta.members.get(key) ?? null;
    if (member?.mark !== "added") members.push([key, undone((after as Record<string | number, unknown>)[key], member)]);
  });
  for (const { key, value } of removed) members.push([key, value]);
  return isObject(after) ? Object.fromEntries(members) : members.map(([, value]) => value);
}

test("the marks and the newer value give the older one", () => {
  const leaf = fc.oneof(fc.constant(null), fc.boolean(), fc.integer({ min: 0, max: 3 }), fc.constantFrom("", "a", "b"));
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof({ maxDepth: 4 }, leaf, fc.array(tie("value"), { maxLength: 5 }), fc.dictionary(fc.constantFrom("a", "b", "c", "~/"), tie("value"))),
  }));
  fc.assert(
    fc.property(value, value, (before, after) => {
      const { delta, isComplete } = difference(before, after);
      expect(isComplete).toBe(true);
      expect(undone(after, delta)).toEqual(before);
      expect(delta === null).toBe(JSON.stringify(sorted(before)) === JSON.stringify(sorted(after)));
    }),
    { numRuns: 500 },
  );
});

const sorted = (value: unknown): unknown =>
  isArray(value) ? value.map(sorted) : isObject(value) ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])])) : value;
