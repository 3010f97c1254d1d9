/** Generation by type, as stacked layers. Pure. */

import type { Step } from "./series.ts";
import { beneath } from "./series.ts";

/** From the bottom up: constant types first, those that depend on the weather last. */
const ORDER = ["nuclear", "lignite", "coal", "oil", "gas", "biomass", "geothermal", "hydro", "wind", "solar"];
const RENEWABLE = new Set(["biomass", "geothermal", "hydro", "wind", "solar"]);

/** The types in the order of their layers, from the bottom up; unknown ones beneath all others, by name. */
export function layered(kinds: Iterable<string>): string[] {
  return [...kinds].sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b) || a.localeCompare(b));
}

/** Whether the page has a dedicated colour for a type. */
export const known = (kind: string): boolean => ORDER.includes(kind);

export interface Slice {
  readonly start: number;
  readonly end: number;
  /** Power by type; null where the type has no value. */
  readonly values: ReadonlyMap<string, number | null>;
}

/** The values of all types for each interval, in order; a longer interval of one type counts in each shorter one of another. */
export function slices(series: ReadonlyMap<string, readonly Step[]>): Slice[] {
  const starts = [...new Set([...series.values()].flatMap((steps) => steps.map(({ start }) => start)))].sort((a, b) => a - b);
  return starts.map((start, index) => {
    const found = [...series].flatMap(([kind, steps]): [string, Step][] => {
      const step = beneath(steps, start);
      return step ? [[kind, step]] : [];
    });
    const end = Math.min(Math.max(...found.map(([, step]) => step.end)), starts[index + 1] ?? Infinity);
    return { start, end, values: new Map(found.map(([kind, { value }]) => [kind, value])) };
  });
}

/** All up to the last interval that has every type of the one before: the types do not arrive at once. */
export function complete(all: readonly Slice[]): Slice[] {
  const kinds = ({ values }: Slice): string[] => [...values.keys()].filter((kind) => values.get(kind) !== null);
  const last = all.findLastIndex((slice, index) => {
    const before = all[index - 1];
    return before === undefined || kinds(before).every((kind) => slice.values.get(kind) != null);
  });
  return all.slice(0, last + 1);
}

export interface Totals {
  readonly total: number;
  /** The share of renewable types, 0 to 1; null without generation. Consumption of a type is not counted. */
  readonly renewable: number | null;
}

export function totals({ values }: Slice): Totals {
  let total = 0;
  let green = 0;
  for (const [kind, value] of values) {
    const made = Math.max(value ?? 0, 0);
    total += made;
    if (RENEWABLE.has(kind)) green += made;
  }
  return { total, renewable: total > 0 ? green / total : null };
}

/**
 * Columns for uPlot: times in Unix seconds, then for each of `kinds` the sum of it and all beneath it, highest layer first:
 * drawn in this order, each layer covers the lower part of the one before. The end of the last interval closes the layers.
 */
export function layers(all: readonly Slice[], kinds: readonly string[]): [number[], ...number[][]] {
  const last = all.at(-1);
  if (last === undefined) return [[], ...kinds.map((): number[] => [])];
  const closed = [...all, { ...last, start: last.end }];
  const sums = closed.map(() => 0);
  const columns = kinds.map((kind) =>
    closed.map(({ values }, index) => {
      sums[index] = (sums[index] ?? 0) + Math.max(values.get(kind) ?? 0, 0);
      return sums[index];
    }),
  );
  return [closed.map(({ start }) => start / 1_000), ...columns.reverse()];
}
