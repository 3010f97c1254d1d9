/** The metadata service: asks who owns endpoints, and believes only owners on hosts that the configuration names. */

import type { Environment } from "./environment.ts";
import { DataError, postJson } from "./http.ts";
import type { Rejection } from "./messages.ts";

/** Names in one request at most. */
export const MAX_LOCATED = 1_000;

export interface Metadata {
  /** Absolute base URLs of the metadata services, without a slash at the end; never empty. */
  readonly services: readonly string[];
  /** The host and scheme ("ws:" or "wss:") of servers that do not know their own public name. */
  readonly host: string;
  readonly scheme: string;
  /** Hosts that servers may be on. */
  readonly hosts: ReadonlySet<string>;
}

export interface Place {
  /** The WebSocket URL of who owns it; null = nobody now, or it is hot. */
  readonly owner: string | null;
  /** Every server has it. */
  readonly hot: boolean;
}

export interface Located {
  /** The group of servers that was chosen for this client: the next request names it. */
  readonly clone: number | null;
  readonly endpoints: ReadonlyMap<string, Place>;
  readonly rejected: Readonly<Record<string, Rejection>>;
  /** The servers of the clone, least loaded first. */
  readonly servers: readonly string[];
  /** An owner that was not believed; null when there was none. */
  readonly foreign: string | null;
  /** Of the map that it goes by; NaN, which is older than none, when it does not say. */
  readonly epoch: number;
}

/** Asks the metadata service at `base`. Throws `DataError`. */
export async function locate(
  env: Environment,
  base: string,
  metadata: Metadata,
  endpoints: readonly string[],
  clone: number | null,
): Promise<Located> {
  const { body } = await postJson(env, `${base}/locate`, clone === null ? { endpoints } : { endpoints, clone });
  return parseLocated(body, metadata);
}

/** Reads an answer; owners that are not believed are left out. Throws `DataError`. */
export function parseLocated(body: unknown, metadata: Metadata): Located {
  const { clone, endpoints, epoch, rejected, servers } = (body ?? {}) as Record<string, unknown>;
  if (typeof endpoints !== "object" || endpoints === null) throw new DataError("not an answer about owners");
  let foreign: string | null = null;
  const believed = (url: unknown): string | null => {
    if (typeof url !== "string") return null;
    const known = believe(url, metadata);
    if (known === null) foreign = url;
    return known;
  };
  const places = Object.entries(endpoints as Record<string, { owner?: unknown; hot?: unknown } | null>).map(
    ([endpoint, place]): [string, Place] => [endpoint, { owner: believed(place?.owner), hot: place?.hot === true }],
  );
  return {
    clone: Number.isSafeInteger(clone) ? (clone as number) : null,
    endpoints: new Map(places),
    rejected: (rejected ?? {}) as Record<string, Rejection>,
    servers: (Array.isArray(servers) ? servers : []).map(believed).filter((url) => url !== null),
    foreign,
    epoch: Number(epoch),
  };
}

/**
 * The URL to dial for a server that somebody named, or null when its host is none of the configuration's. A loopback
 * address is the server's own view of itself: for this client it is at the host where the configuration came from.
 */
export function believe(url: string, { host, scheme, hosts }: Metadata): string | null {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return null;
  }
  if (!/^wss?:$/.test(parsed.protocol) || parsed.username !== "") return null;
  if (/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(parsed.hostname)) {
    return `${scheme}//${host}${parsed.port && `:${parsed.port}`}${parsed.pathname}`;
  }
  return hosts.has(parsed.hostname) ? parsed.href : null;
}
