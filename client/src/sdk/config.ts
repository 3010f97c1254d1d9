/** The configuration: reads `/config.json`, and selects the WebSocket server of the next dial. */

import { checkClock } from "./clock.ts";
import type { Environment } from "./environment.ts";
import { DataError, getJson } from "./http.ts";
import type { Metadata } from "./locator.ts";

export interface Config {
  readonly mode: string;
  /** Absolute base URL of the REST API, without a slash at the end. */
  readonly rest: string;
  /** Absolute WebSocket URLs; never empty. */
  readonly servers: readonly string[];
  /** The metadata services; missing where every server serves everything. */
  readonly metadata?: Metadata;
}

/** After so many failed dials in a row the configuration may be out of date. */
const REREAD_AFTER = 3;

export class ConfigSource {
  readonly #env: Environment;
  readonly url: URL;
  #config: Promise<Config> | null = null;
  #last: string | null = null;

  constructor(env: Environment, configUrl: string) {
    this.#env = env;
    this.url = new URL(configUrl, env.baseUrl);
  }

  /** The configuration, read once for all callers. Throws `DataError`; the next call then reads again. */
  get(): Promise<Config> {
    if (this.#config === null) {
      const reading = this.#read();
      this.#config = reading;
      reading.catch(() => {
        if (this.#config === reading) this.#config = null;
      });
    }
    return this.#config;
  }

  /** Reads again; keeps the last configuration when that fails. */
  reread(): Promise<Config> {
    const known = this.#config;
    this.#config = null;
    return this.get().catch((error: unknown) => {
      if (known === null) throw error;
      return (this.#config ??= known);
    });
  }

  /** The server to dial: one at random, after a failure another one; every third failure in a row re-reads first. */
  async server(failures: number): Promise<string> {
    const { servers } = await this.#after(failures);
    const others = failures > 0 && servers.length > 1 ? servers.filter((url) => url !== this.#last) : servers;
    const picked = others[Math.floor(this.#env.random() * others.length)] as string;
    this.#last = picked;
    return picked;
  }

  /** The metadata services; null where every server serves everything. Every third failure in a row re-reads first. */
  async metadata(failures: number): Promise<Metadata | null> {
    return (await this.#after(failures)).metadata ?? null;
  }

  #after(failures: number): Promise<Config> {
    return failures > 0 && failures % REREAD_AFTER === 0 ? this.reread() : this.get();
  }

  async #read(): Promise<Config> {
    const { body, date = NaN } = await getJson(this.#env, this.url.href);
    checkClock(this.#env, date);
    return parseConfig(body, this.url);
  }
}

interface ServerEntry {
  readonly href?: string;
  readonly url?: string;
  readonly port?: number;
  readonly path?: string;
}

/**
 * Reads a `/config.json` body that was loaded from `source`. A server has an `href`, relative to that, or a `url`, or is on the same
 * host. Throws `DataError`.
 */
export function parseConfig(body: unknown, source: URL): Config {
  const { mode, rest, servers, metadata, detail } = (body ?? {}) as Record<string, unknown>;
  if (typeof rest !== "string" || !Array.isArray(servers) || servers.length === 0) {
    throw new DataError(String(detail ?? "no servers")); // for a page that may not connect there is the reason instead
  }
  const scheme = source.protocol === "https:" ? "wss:" : "ws:";
  const urls = addresses(servers, scheme, source, "/ws");
  const config = { mode: String(mode), rest: new URL(rest, source).href.replace(/\/+$/, ""), servers: urls };
  if (mode !== "z-client" || !Array.isArray(metadata) || metadata.length === 0) return config;
  const services = addresses(metadata, source.protocol, source, "/v1");
  const hosts = new Set([source.href, ...urls, ...services].map((url) => new URL(url).hostname));
  return { ...config, metadata: { services, scheme, host: source.hostname, hosts } };
}

function addresses(entries: ServerEntry[], scheme: string, source: URL, defaultPath: string): string[] {
  return entries.map(({ href, url, port, path }) =>
    href ? scheme + new URL(href, source).href.slice(source.protocol.length) : url ?? `${scheme}//${source.hostname}${port ? `:${port}` : ""}${path ?? defaultPath}`);
}
