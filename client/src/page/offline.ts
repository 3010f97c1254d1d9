/** What the page says when it was opened, or goes on, without the servers, or was sent away. */

import type { ConnectionStatus } from "../sdk/index.ts";
import { CLOSE_CODES } from "../sdk/index.ts";
import type { MarketTime } from "./time.ts";

/** Whether the browser knows that it has no network; that it believes to have one says little. */
export const isOffline = (): boolean => globalThis.navigator?.onLine === false;

/**
 * What is in sight instead of the present; "" = nothing is. `since`: when the list of endpoints was read, if that was in an
 * earlier visit. It does not change while nothing else does, as it is read out.
 */
export function offlineWords(
  { state, code, reason }: Pick<ConnectionStatus, "state" | "code" | "reason">,
  offline: boolean,
  since: number | null,
  time: MarketTime,
): string {
  if (state === "closed" && code !== null && code !== CLOSE_CODES.NORMAL.code) {
    return `The server has closed the connection: ${reason || "no reason given"} (${code}). Nothing changes here until you connect again.`;
  }
  const then = since === null ? "" : ` on ${time.dayName(time.dayOf(since))} at ${time.clock(since)}`;
  if (state !== "open" && then) return `Offline: this is what the page showed${then}. Each view says how old its data is.`;
  if (state !== "open" && offline) return "Offline: this is what the page received last. Each view says how old its data is.";
  return then && `The Data Service does not answer: zones and views are those that the page had${then}.`;
}
