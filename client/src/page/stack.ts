/** Generation by type, as layers on each other. Pure. */

import type { Step } from "./series.ts";

/** From the bottom up: what runs all day first, what comes and goes with the weather last. */
const ORDER = ["nuclear", "lignite", "coal", "oil", "gas", "biomass", "geothermal", "hydro", "wind", "solar"];
const RENEWABLE = new Set(["biomass", "geothermal", "hydro", "wind", "solar"]);

/** The types in the order of their layers, from the bottom up; unknown ones beneath all others, by name. */
export function layered(kinds: Iterable<string>): string[] {
  return [...kinds].sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b) || a.localeCompare(b));
}

/** Whether the page has a colour of its own for a type. */
export const known = (kind: string): boolean => ORDER.includes(kind);

export interface Slice {
  readonly start: number;
  readonly end: number;
  /** MW by type; null where the type has no value. */
  readonly values: ReadonlyMap<string, number | null>;
}

/** What all types say of each interval, in order. */
export function slices(series: ReadonlyMap<string, readonly Step[]>): Slice[] {
  const found = new Map<number, { start: number; end: number; values: Map<string, number | null> }>();
  for (const [kind, steps] of series) {
    for (const { start, end, value } of steps) {
      let slice = found.get(start);
      if (slice === undefined) found.set(start, (slice = { start, end, values: new Map() }));
      slice.end = Math.max(slice.end, end);
      slice.values.set(kind, value);
    }
  }
  return [...found.values()].sort((a, b) => a.start - b.start);
}

export interface Totals {
  readonly total: number;
  /** The share of the types that renew themselves, 0 to 1; null without generation. */
  readonly renewable: number | null;
}

export function totals({ values }: Slice): Totals {
  let total = 0;
  let green = 0;
  for (const [kind, value] of values) {
    total += value ?? 0;
    if (RENEWABLE.has(kind)) green += value ?? 0;
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
