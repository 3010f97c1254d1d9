/** The page's address: the current page and its selection, so that a link restores them. Pure. */

import { isEndpoint } from "../sdk/index.ts";

/** "market": the views of a market. "data": any endpoint of the catalogue. */
export type PageName = "market" | "data";

export interface Address {
  /** Null: the address does not say, and the catalogue decides. */
  readonly page: PageName | null;
  /** The endpoint of the page "data". */
  readonly endpoint: string | null;
}

/** Reads `?view=data&endpoint=/my/series`; an endpoint alone, and what only a market has (`zone`, `price`, `load`), name a page too. */
export function readAddress(search: string, hash: string): Address {
  const asked = new URLSearchParams(search);
  const [view, name] = [asked.get("view"), asked.get("endpoint")];
  const endpoint = name !== null && isEndpoint(name) ? name : null;
  if (view === "market" || view === "data") return { page: view, endpoint };
  const isMarket = ["zone", "price", "load"].some((key) => asked.has(key)) || readHash(hash).zone !== null;
  return { page: endpoint ? "data" : isMarket ? "market" : null, endpoint };
}

/** The page to show; null while neither the address nor the catalogue decides. `hasMarket` is null while the catalogue is not known. */
export const pageOf = ({ page }: Address, hasMarket: boolean | null): PageName | null => page ?? (hasMarket === null ? null : hasMarket ? "market" : "data");

/** The query of a page's address; other parts of `search` are kept. */
export function pageSearch(search: string, page: PageName, endpoint: string | null = null): string {
  const asked = new URLSearchParams(search);
  for (const name of ["view", "endpoint"]) asked.delete(name);
  const others = asked.toString();
  const name = endpoint === null ? "" : `&endpoint=${encodeURIComponent(endpoint).replaceAll("%2F", "/")}`;
  return `?view=${page}${name}${others && `&${others}`}`;
}

export interface Place {
  readonly zone: string | null;
  /** "2026-11-21"; null: today. */
  readonly day: string | null;
}

/** Reads `#zone=GR&day=2026-11-21`; anything that is neither zone nor day is left out. */
export function readHash(hash: string): Place {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const zone = asked.get("zone");
  const day = asked.get("day");
  return { zone: zone && /^[\w-]{1,64}$/.test(zone) ? zone : null, day: day && isDay(day) ? day : null };
}

/** The hash for a place; "" for the default one. */
export function writeHash({ zone, day }: Place): string {
  const parts = [...(zone ? [`zone=${zone}`] : []), ...(day ? [`day=${day}`] : [])];
  return parts.length > 0 ? `#${parts.join("&")}` : "";
}

function isDay(text: string): boolean {
  const date = /^\d{4}-\d\d-\d\d$/.test(text) ? new Date(`${text}T00:00:00Z`) : new Date(NaN);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text); // 2026-02-30 is not a date
}
