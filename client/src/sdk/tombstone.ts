/** Deleted endpoints, as the Data Service answers. Loaded with the first such answer; it imports types alone. */

import type { Snapshot } from "./snapshot.ts";

/** A deleted version, from the body of a 410; without a version there, it has the newest known one. */
export function tombstone(endpoint: string, body: unknown, held: Snapshot | undefined, told: number): Snapshot {
  const { version, time } = (body ?? {}) as Record<string, unknown>;
  return {
    ...(isSeries(held) && { unit: "", resolution: "", ...held, points: [] }),
    endpoint,
    version: Number.isSafeInteger(version) ? (version as number) : Math.max(held?.version ?? 0, told),
    time: typeof time === "string" ? time : "",
    mediaType: held?.mediaType ?? "",
    value: null,
    gone: true,
    confirmed: true,
  };
}

/** Whether it has the fields of a series, as a deleted endpoint has of which nothing was held. */
const isSeries = (snapshot: Snapshot | undefined): boolean => !snapshot || "points" in snapshot;
