/** Search of the catalogue, and which part of a long list is shown. Pure. */

import type { Listed } from "../zones.ts";

/** An entry with the text that is searched. */
export interface Searchable {
  readonly entry: Listed;
  readonly text: string;
}

/** The entries that exist, by name. Their text is made once: 10,000 of them are searched at every key. */
export function searchable(catalogue: readonly Listed[]): Searchable[] {
  return catalogue
    .filter(({ gone }) => !gone)
    .map((entry) => ({ entry, text: textOf(entry) }))
    .sort((a, b) => (a.entry.endpoint < b.entry.endpoint ? -1 : 1));
}

const textOf = ({ endpoint, title, area, quantity, unit }: Listed): string =>
  [endpoint, title, area, quantity, unit].filter(Boolean).join("\n").toLowerCase();

/** The entries that have all words of the query, in name, title, area, quantity or unit. */
export function matching(all: readonly Searchable[], query: string): Listed[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter(({ text }) => words.every((word) => text.includes(word))).map(({ entry }) => entry);
}

/** The endpoint written last, the default selection. Null without endpoints. */
export function newest(catalogue: readonly Listed[]): string | null {
  const present = catalogue.filter(({ gone }) => !gone);
  const [first] = present.sort((a, b) => (b.version ?? 0) - (a.version ?? 0) || (a.endpoint < b.endpoint ? -1 : 1));
  return first?.endpoint ?? null;
}

export interface Slice {
  readonly index: number;
  readonly pages: number;
  /** The items `from` to `to` - 1. */
  readonly from: number;
  readonly to: number;
}

/** The part of `count` items that page `index` shows; the last one if there are fewer pages. */
export function slice(count: number, size: number, index: number): Slice {
  const pages = Math.max(1, Math.ceil(count / size));
  const shown = Math.min(Math.max(index, 0), pages - 1);
  return { index: shown, pages, from: shown * size, to: Math.min(count, (shown + 1) * size) };
}
