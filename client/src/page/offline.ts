/** The notice of a page that has no servers, or was closed by them. */

import type { ConnectionStatus } from "../sdk/index.ts";
import { CLOSE_CODES } from "../sdk/index.ts";
import type { MarketTime } from "./time.ts";

/** Whether the browser knows that it has no network; the opposite is not reliable. */
export const isOffline = (): boolean => globalThis.navigator?.onLine === false;

/**
 * Text about what is shown instead of current data; "" = it is current. `since`: when the list of endpoints was read, if in an
 * earlier visit. It only changes with its reasons, because it is read out.
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
