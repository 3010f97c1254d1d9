/** The one dataset form and the catalogue, as the Data Service sends them (docs/protocol.md section 6). */

import { text } from "./json.ts";

export interface Point {
  /** ISO 8601, UTC: the start of the interval. */
  readonly time: string;
  /** Null is a gap. */
  readonly value: number | null;
}

export interface Dataset {
  readonly endpoint: string;
  readonly version: number;
  /** When this version was accepted, ISO 8601, UTC. */
  readonly time: string;
  readonly unit: string;
  /** Length of an interval, an ISO 8601 duration. */
  readonly resolution: string;
  readonly points: readonly Point[];
  /** True if deleted at this version; it then has no points. */
  readonly gone: boolean;
  /** False for a dataset of an earlier visit, or of before a resync, until the Data Service has confirmed it. */
  readonly confirmed: boolean;
}

export interface CatalogueEntry {
  readonly endpoint: string;
  readonly title: string;
  /** The area (such as `GR`) and the quantity (such as `load`); empty where the source has none. */
  readonly area?: string;
  readonly quantity?: string;
  readonly unit: string;
  readonly resolution: string;
  readonly version: number;
  readonly gone: boolean;
}

/** The dataset in a response body, or null when it is not one of `endpoint`. */
export function parseDataset(endpoint: string, body: unknown): Dataset | null {
  const { version, points, time, unit, resolution, gone, ...rest } = (body ?? {}) as Record<string, unknown>;
  if (rest.endpoint !== endpoint || !Number.isSafeInteger(version) || !Array.isArray(points)) return null;
  return {
    endpoint,
    version: version as number,
    time: text(time),
    unit: text(unit),
    resolution: text(resolution),
    points: points as Point[],
    gone: gone === true,
    confirmed: true,
  };
}

/** A deleted dataset, from the body of a 410; without a version there, it has the newest known one. */
export function tombstone(endpoint: string, body: unknown, held: Dataset | undefined, told: number): Dataset {
  const { version, time } = (body ?? {}) as { version?: unknown; time?: unknown };
  return {
    unit: "",
    resolution: "",
    ...held,
    endpoint,
    version: Number.isSafeInteger(version) ? (version as number) : Math.max(held?.version ?? 0, told),
    time: text(time),
    points: [],
    gone: true,
    confirmed: true,
  };
}
