/** Search of the catalogue, and which part of a long list is shown. Pure. */

import type { Listed } from "../zones.ts";
import { isSeries } from "../zones.ts";

/** The kind of a collection. */
export const COLLECTION = "collection";

/** An entry with the text that is searched. */
export interface Searchable {
  readonly entry: Listed;
  readonly text: string;
}

/**
 * The entries that exist and the collections that they are in, by name. Their text is made once: 10,000 of them are searched at
 * every key.
 */
export function searchable(catalogue: readonly Listed[]): Searchable[] {
  const present = catalogue.filter(({ gone }) => !gone);
  const collections = new Set<string>();
  for (const { endpoint } of present) {
    for (let name = parentOf(endpoint); name !== "" && !collections.has(name); name = parentOf(name)) collections.add(name);
  }
  return [...present, ...[...collections].map((endpoint): Listed => ({ endpoint, gone: false, kind: COLLECTION }))]
    .map((entry) => ({ entry, text: textOf(entry) }))
    .sort((a, b) => (a.entry.endpoint < b.entry.endpoint ? -1 : 1));
}

/** The collection that an endpoint, or a collection, is a member of; "" without one. */
export const parentOf = (endpoint: string): string => /^(\/.*\/)[^/]+\/?$/.exec(endpoint)?.[1] ?? "";

/** The text of an entry. All series have one media type, in which nobody searches "json". */
const textOf = (entry: Listed): string => {
  const { endpoint, title, area, quantity, unit, kind, mediaType } = entry;
  return [endpoint, title, area, quantity, unit, kind, isSeries(entry) ? "" : mediaType].filter(Boolean).join("\n").toLowerCase();
};

/**
 * The entries that have all words of the query, in name, title, area, quantity, unit, kind or media type; collections if their kind or
 * a name with a slash at its end is searched.
 */
export function matching(all: readonly Searchable[], query: string): Listed[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const hasCollections = words.some((word) => word.endsWith("/") || word.startsWith(COLLECTION));
  return all
    .filter(({ entry, text }) => (hasCollections || entry.kind !== COLLECTION) && words.every((word) => text.includes(word.replace(/^collections$/, COLLECTION))))
    .map(({ entry }) => entry);
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
