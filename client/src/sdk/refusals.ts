/**
 * Why this page is not connected. A browser does not let a page read the answer to a refused handshake, so the page asks:
 * `/config.json` says whether pages of its origin may connect, and a server answers a request to its WebSocket address with the
 * reason why it would refuse a handshake now (docs/protocol.md section 1.6). Nor does a browser say why a request failed: what is
 * known of the two addresses narrows it down. Loaded only after a dial has failed; it imports types alone: what it shared with the
 * rest would make bundlers split that, which every page loads.
 */

import type { ConfigSource } from "./config.ts";
import type { ConnectionStatus } from "./connection.ts";
import type { Environment, Socket } from "./environment.ts";
import type { DataError, NOT_JSON as NO_JSON, getJson } from "./http.ts";
import type { Observable, Subject } from "./observable.ts";
import type { Fallback } from "./polling.ts";

/** Servers that are asked: all have the same rules, but not the same clients. */
const MAX_REQUESTED = 3;
/** After an answer, the next one is not requested for so long; the time doubles up to the second. */
const WAIT_MS = 4_000;
const MAX_WAIT_MS = 120_000;
/** After an answer by which a handshake would be accepted, a dial that fails after this is the second sign of an obstacle. */
const CONFIRM_MS = 1_000;
/** How long an answer that cannot be read is waited for. */
const TIMEOUT_MS = 10_000;
/** Codes of problems that are refusals; others, such as `not_ready`, are normal for every client at times. */
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
  /** Messages already shown in the console. */
  let warned = "";
  let waitMs = WAIT_MS;
  let notBefore = -Infinity;
  let failures = 0;
  let due: number | null = null;
  /** Answers in a row by which a handshake would be accepted, while dials failed. */
  let accepting = 0;
  let fallback: Fallback | undefined;
  /** The latest WebSocket. */
  let pending: Socket | undefined;
  const { socket } = env;
  env.socket = (url, protocol) => (pending = socket.call(env, url, protocol));

  const show = (): void => {
    const { value } = status;
    if (reason && value.state === "reconnecting" && value.reason !== reason) status.set({ ...value, reason });
  };
  const ask = async (): Promise<void> => {
    const now = env.now();
    if (now < notBefore) return;
    notBefore = now + waitMs;
    waitMs = Math.min(2 * waitMs, MAX_WAIT_MS);
    const isSilent = status.value.reason === NO_WELCOME;
    const found = await refusal(env, get, config, opened);
    accepting = found === ACCEPTED ? accepting + 1 : 0;
    if (accepting === 1) notBefore = env.now() + CONFIRM_MS;
    // One that restarts may refuse a dial, and accept the next; one that accepts them all and sends no frame is in order.
    const isBlocked = found === ACCEPTED && (accepting > 1 || isSilent);
    reason = isBlocked ? HANDSHAKE : found === ACCEPTED ? "" : found;
    if (isBlocked) {
      void import("./polling.ts").then(({ Fallback }) => {
        fallback ??= new Fallback(env, connection);
        fallback.start();
        if (status.value.state === "reconnecting") pending?.onclose?.({ code: 1006, reason: "" }); // it would be as silent
      });
    }
    if (reason && reason !== warned) {
      warned = reason;
      console.warn(`DIEM: not connected: ${reason}`);
    }
    show();
  };
  status.observe(({ state, retryAt }) => {
    if (state === "open") {
      [opened, reason, waitMs, notBefore, failures, accepting] = [true, "", WAIT_MS, -Infinity, 0, 0];
    } else if (state === "reconnecting") {
      if (reason) env.microtask(show); // not while others are still being notified of this status
      if (retryAt !== null && retryAt !== due && ++failures >= (opened ? FAILURES - 1 : 1)) void ask();
      due = retryAt;
    }
  });
}

/** The reason as `code: text`; "" where nobody refuses this page, or nobody answers one that was connected before. */
async function refusal(env: Environment, get: typeof getJson, config: ConfigSource, opened: boolean): Promise<string> {
  let found = "";
  try {
    const { body } = await get(env, config.url.href);
    const { allowed, reason, detail } = body as Record<string, unknown>;
    if (allowed === false) return `${String(reason)}: ${String(detail)}`;
    const { servers } = await config.get();
    for (const url of servers.slice(0, MAX_REQUESTED)) {
      const address = new URL(url.replace(/^ws/, "http"));
      // A server never answers this request with success: it is no handshake.
      const { code, message, status } = (await get(env, address.href).catch((error: DataError) => error)) as DataError;
      if (CODES.test(code)) return `${code}: ${message}`;
      if (code === "upgrade_required") found = ACCEPTED;
      if (status === 0) found ||= await forbidden(env, address);
    }
  } catch (error) {
    // No network, or no Data Service: for a page that was connected before that is no refusal.
    const failure = error as DataError;
    if (failure.message === NOT_JSON) return `portal: ${config.url.href} answers with a page: log in to the network (captive portal), or correct the address`;
    if (!opened) return unread(env, config.url, failure);
  }
  return found;
}

/** Of `connection.ts`: a handshake was accepted, and no frame followed. */
const NO_WELCOME = "no welcome";
/** Of `http.ts`. */
const NOT_JSON: typeof NO_JSON = "no JSON";
/** A server would accept a handshake. */
const ACCEPTED = "accepted";
const HANDSHAKE =
  "handshake: the server answers requests, but WebSocket handshakes do not reach it: something in the way, as a proxy, does not pass on the header fields Upgrade and Connection";

/** Why `url` cannot be read, as far as a browser lets a page know. */
async function unread(env: Environment, url: URL, { status, message }: DataError): Promise<string> {
  if (status !== 0 || message === "no servers") return `unreachable: ${url.href} answers: ${message}`;
  if (globalThis.navigator?.onLine === false) return "unreachable: this device has no network";
  const cause = await forbidden(env, url);
  if (cause) return cause;
  const { origin } = new URL(env.baseUrl);
  const options = { mode: "no-cors", cache: "no-store", headers: {}, signal: AbortSignal.timeout(TIMEOUT_MS) } as const;
  if (origin !== url.origin && (await env.fetch(url.href, options).then(() => true, () => false))) {
    return `origin: ${url.href} answers, but not to pages of ${origin}; start with --origin ${origin}, and have what is in front of it pass on CORS header fields`;
  }
  return `unreachable: ${url.href}: ${message}; there is no server, no network, or it is blocked: by an extension of the browser, a firewall, or the page's own content security policy`;
}

/** Why browsers keep this page from `url`, whatever is there; "" = they do not. */
async function forbidden(env: Environment, url: URL): Promise<string> {
  const page = new URL(env.baseUrl);
  if (page.protocol === "https:" && url.protocol === "http:" && closeness(url) < LOOPBACK) return `blocked: a page on https cannot use ${url.origin}: serve it on https, too`;
  if (closeness(url) <= closeness(page)) return "";
  const name = closeness(url) === LOOPBACK ? "loopback-network" : "local-network";
  const isGranted = await globalThis.navigator?.permissions?.query({ name: name as PermissionName }).then(({ state }) => state === "granted", () => false);
  if (isGranted) return "";
  return `local: browsers keep pages of other networks from ${url.host} unless they are on https and their user allows it (site settings: local network access); open the page from there instead, as with diem up --pages DIR`;
}

const LOOPBACK = 2;
const PRIVATE = /^(?:10\.|192\.168\.|169\.254\.|172\.(?:1[6-9]|2\d|3[01])\.|\[f[cde]|.*\.local$)/;

/** How far an address is from the internet: loopback, a private network, or 0. Names are classified only if known. */
function closeness({ hostname }: URL): number {
  if (/^(?:localhost|.*\.localhost|127\..*|\[::1\])$/.test(hostname)) return LOOPBACK;
  return PRIVATE.test(hostname) ? 1 : 0;
}
