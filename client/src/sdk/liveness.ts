/** Liveness of a connection, folded from the server's `status` frames. */

export interface LiveStatus {
  /** There is a connection, and the server behind it is in touch with the source. */
  readonly live: boolean;
  /** Since when, as the server says; null when it did not. */
  readonly since: string | null;
  /** Endpoints that are not live although the rest is. */
  readonly affected: ReadonlySet<string>;
}

const NOBODY: ReadonlySet<string> = new Set();

/** Without a connection nothing is live. */
export const OFFLINE: LiveStatus = { live: false, since: null, affected: NOBODY };
/** A server that is not live says so; until then a new connection is. */
export const ONLINE: LiveStatus = { live: true, since: null, affected: NOBODY };

/** Folds a `status` frame in: without endpoints it speaks for all, with endpoints for these alone. */
export function nextLive(
  previous: LiveStatus,
  frame: { live: boolean; since: string | null; endpoints: string[] | null },
): LiveStatus {
  const { live, since, endpoints } = frame;
  if (endpoints === null) return { live, since, affected: NOBODY };
  const affected = new Set(previous.affected);
  for (const endpoint of endpoints) {
    if (live) affected.delete(endpoint);
    else affected.add(endpoint);
  }
  return { ...previous, affected };
}

export function sameLive(a: LiveStatus, b: LiveStatus): boolean {
  const affected = a.affected.size === b.affected.size && [...a.affected].every((endpoint) => b.affected.has(endpoint));
  return affected && a.live === b.live && a.since === b.since;
}
