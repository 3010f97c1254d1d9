/**
 * Reads the catalogue: all endpoints of the Data Service. Loaded when it is asked for; like `tokens.ts`, it imports types
 * alone.
 */

import type { Answer } from "./http.ts";
import type { CatalogueEntry } from "./snapshot.ts";

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The endpoints of the API at `rest`: one request for each 5,000. Throws what `get` throws. */
export async function readCatalogue(rest: string, get: (url: string) => Promise<Answer>): Promise<CatalogueEntry[]> {
  const url = `${rest}/endpoints`;
  const entries: CatalogueEntry[] = [];
  for (let after = ""; ; ) {
    const { body } = await get(url + (after && `?after=${encodeURIComponent(after)}`));
    entries.push(...parseCatalogue(body));
    const { next } = (body ?? {}) as { next?: unknown };
    // Without this check, a name that is not a later one would be requested endlessly.
    if (typeof next !== "string" || next <= after) return entries;
    after = next;
  }
}

/** The entries of a `/v1/endpoints` body; what is not well-formed is left out. */
export function parseCatalogue(body: unknown): CatalogueEntry[] {
  const { endpoints } = (body ?? {}) as { endpoints?: unknown };
  if (!Array.isArray(endpoints)) return [];
  return (endpoints as Record<string, unknown>[])
    .filter((entry) => typeof entry.endpoint === "string")
    .map((entry) => ({
      endpoint: text(entry.endpoint),
      title: text(entry.title),
      kind: text(entry.kind) || "series",
      mediaType: text(entry.media_type),
      area: text(entry.area),
      quantity: text(entry.quantity),
      zone: text(entry.zone),
      unit: text(entry.unit),
      resolution: text(entry.resolution),
      version: Number(entry.version) || 0,
      gone: entry.gone === true,
    }));
}
