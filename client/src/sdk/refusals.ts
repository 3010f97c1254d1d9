/**
 * Why servers do not accept this page. A browser does not let a page read the answer to a refused handshake, so the page asks:
 * `/config.json` says whether pages of its origin may connect, and a server answers a request to its WebSocket address with the
 * reason why it would refuse a handshake now (docs/protocol.md section 1.6). Loaded only after a dial has failed; it imports types
 * alone: what it shared with the rest would make bundlers split that, which every page loads.
 */

import type { ConfigSource } from "./config.ts";
import type { ConnectionStatus } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { DataError, getJson } from "./http.ts";
import type { Observable, Subject } from "./observable.ts";

/** Servers that are asked: all have the same rules, but not the same clients. */
const MAX_REQUESTED = 3;
/** After an answer, the next one is not requested for so long; the time doubles up to the second. */
const WAIT_MS = 4_000;
const MAX_WAIT_MS = 120_000;
/** Codes of problems that are refusals; others, such as `not_ready`, are what every client meets now and then. */
const CODES = /^(?:origin|unauthorised|limit|rate|full)$/;

/** Failed dials in a row, after a connection was open, before anybody asks: a server that restarts refuses nobody. */
const FAILURES = 3;

/**
 * Finds the reason whenever dials have failed, and keeps it in the status of the connection for as long as that is `reconnecting`.
 * Called after a failed dial; `opened` = the page has had a connection before.
 */
export function explain(env: Environment, get: typeof getJson, config: ConfigSource, connection: Observable<ConnectionStatus>, opened: boolean): void {
  const status = connection as Subject<ConnectionStatus>;
  let reason = "";
  /** What the console shows already. */
  let warned = "";
  let waitMs = WAIT_MS;
  let notBefore = -Infinity;
  let failures = 0;
  let due: number | null = null;

  const show = (): void => {
    const { value } = status;
    if (reason && value.state === "reconnecting" && value.reason !== reason) status.set({ ...value, reason });
  };
  const ask = async (): Promise<void> => {
    const now = env.now();
    if (now < notBefore) return;
    notBefore = now + waitMs;
    waitMs = Math.min(2 * waitMs, MAX_WAIT_MS);
    reason = await refusal(env, get, config);
    if (reason && reason !== warned) {
      warned = reason;
      console.warn(`DIEM: not connected: ${reason}`);
    }
    show();
  };
  status.observe(({ state, retryAt }) => {
    if (state === "open") {
      [opened, reason, waitMs, notBefore, failures] = [true, "", WAIT_MS, -Infinity, 0];
    } else if (state === "reconnecting") {
      if (reason) env.microtask(show); // not while others are still being notified of this status
      if (retryAt !== null && retryAt !== due && ++failures >= (opened ? FAILURES - 1 : 1)) void ask();
      due = retryAt;
    }
  });
}

/** The reason as `code: text`; "" where nobody refuses this page, or nobody answers. */
async function refusal(env: Environment, get: typeof getJson, config: ConfigSource): Promise<string> {
  try {
    const { body } = await get(env, config.url.href);
    const { allowed, reason, detail } = body as Record<string, unknown>;
    if (allowed === false) return `${String(reason)}: ${String(detail)}`;
    const { servers } = await config.get();
    for (const url of servers.slice(0, MAX_REQUESTED)) {
      // A server never answers this request with success: it is no handshake.
      const { code, message } = (await get(env, url.replace(/^ws/, "http")).catch((error: DataError) => error)) as DataError;
      if (CODES.test(code)) return `${code}: ${message}`;
    }
  } catch {
    // No network, or no Data Service: that is no refusal.
  }
  return "";
}
