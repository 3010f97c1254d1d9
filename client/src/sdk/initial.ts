/** First data for pages that a server renders: read over REST there, and taken over in the browser. */

import { DataCache } from "./cache.ts";
import { ConfigSource } from "./config.ts";
import { DataService } from "./data.ts";
import type { Diem } from "./diem.ts";
import type { Environment } from "./environment.ts";
import { browserEnvironment } from "./environment.ts";
import { isEndpoint } from "./messages.ts";
import type { Content } from "./snapshot.ts";
import { NOTICE, etagOf, readSnapshot } from "./snapshot.ts";

/** Versions that a server has read: JSON. */
export type InitialData = readonly (Content & { readonly endpoint: string })[];

export interface ReadOptions {
  /** Sent as `Authorization: Bearer …` to the Data Service; it stays on the server. */
  readonly apiKey?: string;
  /** For all requests together, in milliseconds; 2,000 when left out. */
  readonly timeoutMs?: number;
}

/** Requests at a time. */
const AT_ONCE = 8;

/**
 * Reads the latest versions of `endpoints` for `hydrate` in the browser, as JSON. One that cannot be read in time is
 * left out, with a warning on the console: the page is rendered without it. Throws `TypeError` for what is no endpoint name.
 */
export async function readEndpoints(configUrl: string, endpoints: readonly string[], { apiKey, timeoutMs = 2_000 }: ReadOptions = {}): Promise<InitialData> {
  for (const endpoint of endpoints) if (!isEndpoint(endpoint)) throw new TypeError(`not an endpoint name: ${endpoint}`);
  const host = browserEnvironment(configUrl);
  const deadline = AbortSignal.timeout(timeoutMs);
  const env: Environment = {
    ...host,
    later: (ms, run) => setTimeout(run, ms),
    storage: null,
    baseUrl: configUrl,
    fetch: (url, options) => fetch(url, { ...options, signal: AbortSignal.any([options.signal, deadline]) }),
  };
  const config = new ConfigSource(env, configUrl);
  const cache = new DataCache(env);
  const data = new DataService(env, {
    rest: async () => (await config.get()).rest,
    bearer: () => apiKey,
    told: () => 0,
    isWatched: () => false, // nothing is repeated
    cache,
  });
  const found = new Map<string, InitialData[number]>();
  const left = [...new Set(endpoints)];
  const read = async (endpoint: string): Promise<void> => {
    const snapshot = await data.get<unknown>(endpoint);
    const { version, time, mediaType, value, gone } = snapshot;
    if (gone || mediaType === NOTICE) return;
    const named = /^application\/vnd\.diem\./.test(mediaType) && { endpoint, version, time, ...(value as object) };
    const bytes = value instanceof Uint8Array && { data: btoa(Array.from(value, (byte) => String.fromCharCode(byte)).join("")), encoding: "base64" };
    found.set(endpoint, { endpoint, version, time, mediaType, data: named || value, ...bytes });
  };
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let endpoint = left.pop(); endpoint; endpoint = left.pop()) {
      await read(endpoint).catch(({ message }: Error) => console.warn(`DIEM: ${endpoint}: ${message}`));
    }
  }));
  return endpoints.flatMap((endpoint) => found.get(endpoint) ?? []);
}

/**
 * Holds first data, unconfirmed, as what is shown at once, and as the versions that servers are told are known. Endpoints that
 * are watched keep what they have. Returns `diem`.
 */
export function hydrate(diem: Diem, initial: InitialData): Diem {
  for (const { endpoint, ...content } of initial) {
    const snapshot = !diem.updates.isWatched(endpoint) && readSnapshot(endpoint, content);
    if (snapshot && snapshot.version > diem.data.held(endpoint)) diem.cache.put(endpoint, { snapshot: { ...snapshot, confirmed: false }, etag: etagOf(snapshot) });
  }
  return diem;
}
