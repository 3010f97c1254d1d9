/** Liveness of a connection, folded from the server's `status` frames. */

export interface LiveStatus {
  /** There is a connection, and its server receives updates as they happen. */
  readonly live: boolean;
  /** Since when, by the server's status; null when it has none. */
  readonly since: string | null;
  /** Endpoints that are not live although the rest is. */
  readonly affected: ReadonlySet<string>;
}

const NOBODY: ReadonlySet<string> = new Set();

/** Without a connection nothing is live. */
export const OFFLINE: LiveStatus = { live: false, since: null, affected: NOBODY };
/** A new connection is live until the server sends another status. */
export const ONLINE: LiveStatus = { ...OFFLINE, live: true };

/** Applies a `status` frame: without endpoints it applies to all, with endpoints to these only. */
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
