/** The endpoints that the page shows: bidding zones of the catalogue, or those in the page's address. */

import type { CatalogueEntry } from "../sdk/index.ts";
import { isEndpoint } from "../sdk/index.ts";

/** Two subscriptions a row: this keeps a page below the server's default of 128. */
const MAX_ROWS = 60;

/** An endpoint of the catalogue; of those of an earlier visit only the names are known. */
export type Listed = Pick<CatalogueEntry, "endpoint" | "gone"> & Partial<CatalogueEntry>;

/** Whether a view of the market shows endpoints of this name. */
export const hasView = (endpoint: string): boolean =>
  /^\/(dam\/prices|load|load\/forecast|imbalance)\/[^/]+$|^\/(generation|flows)\/[^/]+\/[^/]+$/.test(endpoint);

/** Whether an endpoint has a series; of those of an earlier visit that is not known. */
export const isSeries = ({ kind }: Listed): boolean => !kind || kind === "series";

const MAX_KINDS = 20;
const MAX_PAIRS = 110;

export interface Wish {
  readonly zone: string | null;
  readonly price: string | null;
  readonly load: readonly string[] | null;
  /** True to request updates with data. */
  readonly data: boolean;
}

/**
 * Reads `?zone=GR`, `?price=/some/endpoint`, `?load=/a,/b` and `?data=off`; names that are not endpoint names, or lead to none,
 * are left out.
 */
export function wish(search: string): Wish {
  const asked = new URLSearchParams(search);
  const price = asked.get("price");
  const load = [...new Set(asked.get("load")?.split(","))].filter(isEndpoint).slice(0, MAX_ROWS);
  const zone = asked.get("zone");
  return {
    zone: zone && isZone(zone) ? zone : null,
    price: price && isEndpoint(price) ? price : null,
    load: load.length > 0 ? load : null,
    data: asked.get("data") !== "off",
  };
}

export const priceEndpoint = (zone: string): string => `/dam/prices/${zone}`;
const isZone = (zone: string): boolean => !zone.includes("/") && isEndpoint(priceEndpoint(zone));
const zoneIn = (pattern: RegExp) => (entry: Listed): string[] => (entry.gone || !isSeries(entry) ? [] : (pattern.exec(entry.endpoint)?.slice(1) ?? []));

/** Zones that have a day-ahead price, by name. */
export function priceZones(catalogue: readonly Listed[]): string[] {
  const zones = catalogue.flatMap(zoneIn(/^\/dam\/prices\/([^/]+)$/));
  return zones.sort((a, b) => zoneName(a).localeCompare(zoneName(b)));
}

export interface LoadRow {
  readonly actual: string;
  readonly forecast: string | null;
  /** Null where the endpoint has no zone. */
  readonly zone: string | null;
}

/** The rows of the load table: every zone with an actual load by code, or only the endpoints in the address. */
export function loadRows(catalogue: readonly Listed[], asked: readonly string[] | null): LoadRow[] {
  const forecasts = new Set(catalogue.flatMap(zoneIn(/^\/load\/forecast\/([^/]+)$/)));
  const endpoints = asked ?? catalogue.flatMap(zoneIn(/^\/load\/([^/]+)$/)).sort().map((zone) => `/load/${zone}`);
  return endpoints.slice(0, MAX_ROWS).map((actual) => {
    const zone = /^\/load\/([^/]+)$/.exec(actual)?.[1] ?? null;
    return { actual, zone, forecast: zone && forecasts.has(zone) ? `/load/forecast/${zone}` : null };
  });
}

/** The endpoints of a zone's generation by type of plant. */
export function generationOf(catalogue: readonly Listed[], zone: string | null): Map<string, string> {
  const kinds = new Map<string, string>();
  for (const entry of catalogue) {
    const { endpoint } = entry;
    const [, of, kind] = /^\/generation\/([^/]+)\/([^/]+)$/.exec(endpoint) ?? [];
    if (!entry.gone && isSeries(entry) && of === zone && kind !== undefined && kinds.size < MAX_KINDS) kinds.set(kind, endpoint);
  }
  return kinds;
}

/** The imbalance prices, each beside the day-ahead price of its zone. */
export function imbalanceRows(catalogue: readonly Listed[]): LoadRow[] {
  const priced = new Set(priceZones(catalogue));
  const zones = catalogue.flatMap(zoneIn(/^\/imbalance\/([^/]+)$/)).sort();
  return zones.slice(0, MAX_ROWS).map((zone) => ({ actual: `/imbalance/${zone}`, zone, forecast: priced.has(zone) ? priceEndpoint(zone) : null }));
}

/** The directed flows between zones: [from, to]. */
export function flowPairs(catalogue: readonly Listed[]): [string, string][] {
  const pairs = catalogue.flatMap((entry): [string, string][] => {
    const [, from, to] = /^\/flows\/([^/]+)\/([^/]+)$/.exec(entry.endpoint) ?? [];
    return entry.gone || !isSeries(entry) || from === undefined || to === undefined || from === to ? [] : [[from, to]];
  });
  return pairs.slice(0, MAX_PAIRS);
}

const REGIONS = new Intl.DisplayNames("en", { type: "region", fallback: "none" });
const PARTS: Record<string, string> = {
  NORD: "North", CNOR: "Centre-North", CSUD: "Centre-South", SUD: "South", SICI: "Sicily", SARD: "Sardinia", CALA: "Calabria", LU: "and Luxembourg",
};

/** "Greece" for GR, "Italy South" for IT-SUD; the code itself where it names no region. */
export function zoneName(code: string): string {
  const [country = "", ...parts] = code.split("-");
  if (!/^[A-Z]{2}$/.test(country)) return code;
  const name = REGIONS.of(country);
  return name ? [name, ...parts.map((part) => PARTS[part] ?? part)].join(" ") : code;
}
