/** The frames of `diem.v1.json` (docs/protocol.md section 1): their types, and the parser that lets only well-formed ones in. */

import { text } from "./dataset.ts";

export const SUBPROTOCOL = "diem.v1.json";
/** Names in one message at most; with 256 bytes a name this also keeps a message below 32 KiB. */
export const MAX_NAMES = 100;

export type ClientMessage =
  | { type: "subscribe"; id: number; endpoints: Record<string, number | null> }
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
}

export interface WelcomeFrame {
  readonly type: "welcome";
  readonly session: string;
  readonly server: string;
  readonly mode: string;
  /** How many the server allows; 0 = it does not say. */
  readonly subscriptions: number;
}

export type ServerFrame =
  | UpdateFrame
  | WelcomeFrame
  | { type: "subscribed"; id: number; endpoints: Record<string, number | null>; rejected: Record<string, Rejection> }
  | { type: "unsubscribed"; id: number; endpoints: string[] }
  | { type: "status"; live: boolean; since: string | null; endpoints: string[] | null }
  | { type: "moved"; endpoints: string[]; owner: string | null }
  | { type: "resync"; endpoints: string[] }
  | { type: "error"; id: number | null; code: string; message: string };

type Fields = Record<string, unknown>;

const fields = (value: unknown): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const names = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((name): name is string => typeof name === "string") : [];

/** The frame in `data`, or null for what this version of the SDK does not know: new frame types must not break old pages. */
export function parseFrame(data: unknown): ServerFrame | null {
  if (typeof data !== "string") return null;
  let frame: Fields;
  try {
    frame = fields(JSON.parse(data));
  } catch {
    return null;
  }
  switch (frame.type) {
    case "update": {
      const { endpoint, version } = frame;
      if (typeof endpoint !== "string" || !Number.isSafeInteger(version)) return null;
      return { type: "update", endpoint, version: version as number, time: text(frame.time), gone: frame.gone === true };
    }
    case "welcome": {
      const subscriptions = Number(fields(frame.limits).subscriptions) || 0;
      return { type: "welcome", session: text(frame.session), server: text(frame.server), mode: text(frame.mode), subscriptions };
    }
    case "subscribed":
      if (typeof frame.id !== "number") return null;
      return {
        type: "subscribed",
        id: frame.id,
        endpoints: fields(frame.endpoints) as Record<string, number | null>,
        rejected: rejections(frame.rejected),
      };
    case "unsubscribed":
      return typeof frame.id === "number"
        ? { type: "unsubscribed", id: frame.id, endpoints: names(frame.endpoints) }
        : null;
    case "status": {
      const part = Array.isArray(frame.endpoints) ? names(frame.endpoints) : null;
      return { type: "status", live: frame.live === true, since: text(frame.since) || null, endpoints: part };
    }
    case "moved":
      return { type: "moved", endpoints: names(frame.endpoints), owner: text(frame.owner) || null };
    case "resync":
      return { type: "resync", endpoints: names(frame.endpoints) };
    case "error": {
      const id = typeof frame.id === "number" ? frame.id : null;
      return { type: "error", id, code: text(frame.code), message: text(frame.message) };
    }
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

const NAME = /^(?:\/[A-Za-z0-9._~!$'()*+,;=:@-]+)+$/;

/** Whether `name` is an endpoint name: a path of safe ASCII segments, at most 256 bytes, none of them `.` or `..`. */
export function isEndpoint(name: string): boolean {
  return name.length <= 256 && NAME.test(name) && !/\/\.{1,2}(?:\/|$)/.test(name);
}
