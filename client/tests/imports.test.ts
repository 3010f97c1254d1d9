/** Modules import each other in one direction: what goes round cannot be read, or loaded, from one end. */

import { readFileSync, readdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { expect, test } from "vitest";

const SOURCE = new URL("../src", import.meta.url).pathname;

/** What each module imports, types too. */
function imports(): Map<string, string[]> {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  return new Map(
    files.map((name) => {
      const path = resolve(SOURCE, name);
      const found = readFileSync(path, "utf8").matchAll(/(?:from|import\() ?"(\.[^"]+\.ts)"/g);
      return [path, [...found].map(([, target = ""]) => resolve(dirname(path), target))];
    }),
  );
}

/** The first way round, in order; null without one. */
function circle(graph: ReadonlyMap<string, readonly string[]>): string[] | null {
  const done = new Set<string>();
  const follow = (module: string, way: readonly string[]): string[] | null => {
    if (way.includes(module)) return [...way.slice(way.indexOf(module)), module];
    if (done.has(module)) return null;
    for (const next of graph.get(module) ?? []) {
      const found = follow(next, [...way, module]);
      if (found) return found;
    }
    done.add(module);
    return null;
  };
  for (const module of graph.keys()) {
    const found = follow(module, []);
    if (found) return found;
  }
  return null;
}

test("no module imports itself, over however many others", () => {
  expect(circle(new Map([["a", ["b", "c"]], ["b", ["d"]], ["c", []], ["d", ["b"]]]))).toEqual(["b", "d", "b"]);
  const graph = imports();
  expect(graph.size).toBeGreaterThan(40);
  expect(circle(graph)?.map((path) => path.slice(SOURCE.length))).toBeUndefined();
});
