/** The frames of `diem.v1.json` (docs/protocol.md section 1): their types, and the parser that lets only well-formed ones in. */

import type { Fields } from "./json.ts";
import { fields, names, text } from "./json.ts";

export const SUBPROTOCOL = "diem.v1.json";
/** Names in one message at most; with 256 bytes a name this also keeps a message below 32 KiB. */
export const MAX_NAMES = 100;
const MAX_FETCH_WINDOW_MS = 10_000;

export type ClientMessage =
  | { type: "subscribe"; id: number; endpoints: Record<string, number | null>; client?: string | undefined; data?: boolean | undefined }
  | { type: "unsubscribe"; id: number; endpoints: string[] };

export interface Rejection {
  readonly code: string;
  readonly message: string;
  /** Of `not_owner`: where to subscribe instead, when the server knows. */
  readonly owner?: string;
}

export interface UpdateFrame {
  readonly type: "update";
  readonly endpoint: string;
  readonly version: number;
  readonly time: string;
  readonly gone: boolean;
  /** The content of this version (docs/protocol.md section 2.1); missing: it has to be fetched. */
  readonly data?: unknown;
  /** With `data` of anything but a series. */
  readonly mediaType?: string | undefined;
  readonly encoding?: string | undefined;
  /** Of a traced update: the W3C trace context of the server's span, for a span of the page's. */
  readonly traceparent?: string | undefined;
  /** Characters of the frame. */
  readonly size?: number;
}

export interface WelcomeFrame {
  readonly type: "welcome";
  readonly server: string;
  readonly mode: string;
  /** How many the server allows; 0 = it does not say. */
  readonly subscriptions: number;
  /** The server records traffic, and takes the page's identity with the first request. */
  readonly traffic: boolean;
  /** The server takes requests for the data of updates. */
  readonly data: boolean;
  /** Milliseconds over which clients spread the fetches of what this server announces. */
  readonly fetchWindowMs: number;
  /** Milliseconds within which the server sends a frame; 0 = it does not say. */
  readonly heartbeatMs: number;
}

export type ServerFrame =
  | UpdateFrame
  | WelcomeFrame
  | { type: "authenticated"; expires: number }
  | { type: "subscribed"; id: number; endpoints: Record<string, number | null>; rejected: Record<string, Rejection> }
  | { type: "unsubscribed"; id: number; endpoints: string[] }
  | { type: "status"; live: boolean; since: string | null; endpoints: string[] | null }
  | { type: "moved"; endpoints: string[]; owner: string | null }
  | { type: "resync"; endpoints: string[] }
  | { type: "error"; id: number | null; code: string; message: string };

/** The frame in `data`, or null for what this version of the SDK does not know: new frame types must not break old pages. */
export function parseFrame(data: unknown): ServerFrame | null {
  if (typeof data !== "string") return null;
  let frame: Fields;
  try {
    frame = fields(JSON.parse(data));
  } catch {
    return null;
  }
  const { type, id } = frame;
  switch (type) {
    case "update": {
      const { endpoint, version, media_type } = frame;
      if (typeof endpoint !== "string" || !Number.isSafeInteger(version)) return null;
      return { ...(frame as unknown as UpdateFrame), time: text(frame.time), gone: frame.gone === true, mediaType: media_type as string, size: data.length };
    }
    case "welcome": {
      const subscriptions = Number(fields(frame.limits).subscriptions) || 0;
      const fetchWindowMs = Math.min(Number(frame.fetch_window_ms) || 0, MAX_FETCH_WINDOW_MS);
      const [server, mode] = [text(frame.server), text(frame.mode)];
      const heartbeatMs = Number(frame.heartbeat_ms) || 0;
      return { type, server, mode, subscriptions, traffic: !!frame.traffic, data: !!frame.data, fetchWindowMs, heartbeatMs };
    }
    case "authenticated":
      return { type, expires: Number(frame.expires) };
    case "subscribed":
      if (typeof id !== "number") return null;
      return { type, id, endpoints: fields(frame.endpoints) as Record<string, number | null>, rejected: rejections(frame.rejected) };
    case "unsubscribed":
      return typeof id === "number" ? { type, id, endpoints: names(frame.endpoints) } : null;
    case "status": {
      const part = frame.endpoints ? names(frame.endpoints) : null;
      return { type, live: frame.live === true, since: text(frame.since) || null, endpoints: part };
    }
    case "moved":
      return { type, endpoints: names(frame.endpoints), owner: text(frame.owner) || null };
    case "resync":
      return { type, endpoints: names(frame.endpoints) };
    case "error":
      return { type, id: typeof id === "number" ? id : null, code: text(frame.code), message: text(frame.message) };
    default:
      return null;
  }
}

function rejections(value: unknown): Record<string, Rejection> {
  const found: Record<string, Rejection> = {};
  for (const [name, entry] of Object.entries(fields(value))) {
    const { code, message, owner } = fields(entry);
    found[name] = { code: text(code), message: text(message), ...(typeof owner === "string" && { owner }) };
  }
  return found;
}

const NAME = /^(?:\/[A-Za-z0-9._~!$'()*+,;=:@-]+)+\/?$/;

/** Whether `name` is an endpoint name: a path of safe ASCII segments, at most 256 bytes, none of them `.` or `..`; of a collection with a slash at its end. */
export function isEndpoint(name: string): boolean {
  return name.length <= 256 && NAME.test(name) && !/\/\.{1,2}(?:\/|$)/.test(name);
}
