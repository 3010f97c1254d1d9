/** Many connections as one: the status and the liveness that a page with several servers shows. */

import type { ConnectionStatus } from "./connection.ts";
import type { LiveStatus } from "./live.ts";

const BADNESS = { open: 0, connecting: 1, reconnecting: 2, closed: 3 };

/** As bad as the worst of them; without any, there is nothing yet. `server` lists all, `mode` is the last known without one. */
export function together(needed: readonly ConnectionStatus[], mode: string): ConnectionStatus {
  const worst = needed.reduce((a, b) => (BADNESS[b.state] > BADNESS[a.state] ? b : a), needed[0] as ConnectionStatus);
  const retries = needed.flatMap(({ retryAt }) => retryAt ?? []);
  return {
    state: worst?.state ?? "connecting",
    code: worst?.code ?? null,
    reason: worst?.reason ?? "",
    retryAt: retries.length > 0 ? Math.min(...retries) : null,
    server: [...new Set(needed.map(({ server }) => server))].filter(Boolean).sort().join(", "),
    mode: needed.find((status) => status.mode)?.mode ?? mode,
  };
}

/** Live while any endpoint is; the others are the affected ones. `lines` say since when. */
export function togetherLive(endpoints: Iterable<[string, boolean]>, lines: readonly LiveStatus[]): LiveStatus {
  const affected = new Set<string>();
  let count = 0;
  for (const [endpoint, isLive] of endpoints) {
    count += 1;
    if (!isLive) affected.add(endpoint);
  }
  const live = affected.size < count;
  const since = lines.find((line) => line.live === live)?.since ?? null;
  return { live, since, affected: live ? affected : new Set() };
}

export function sameStatus(a: ConnectionStatus, b: ConnectionStatus): boolean {
  return (Object.keys(a) as (keyof ConnectionStatus)[]).every((key) => a[key] === b[key]);
}
