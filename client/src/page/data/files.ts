/** The interface `/v1/files` of the Data Service (docs/protocol.md section 2.3), and layouts as texts. */

import type { Point } from "../../sdk/index.ts";

/** An endpoint that would be stored. */
export interface Converted {
  readonly endpoint: string;
  readonly title: string;
  readonly media_type: string;
  readonly bytes: number;
  /** The rest is of a series. */
  readonly unit?: string;
  readonly resolution?: string;
  readonly points?: number;
  readonly first?: readonly Point[];
  readonly last?: readonly Point[];
  readonly curve?: readonly (number | null)[];
}

export interface Preview {
  readonly zone: string;
  /** Number of endpoints, of which `endpoints` has the first. */
  readonly count: number;
  readonly endpoints: readonly Converted[];
}

export interface Question {
  readonly key: string;
  readonly assumed: string;
  readonly text: string;
  readonly others: readonly string[];
}

export interface Suggestion extends Preview {
  readonly endpoint: string;
  readonly preset: string;
  readonly layout: string;
  readonly questions: readonly Question[];
  readonly problem: string;
  readonly presets: readonly string[];
}

/** How a file is to be converted. */
export interface Layout {
  readonly endpoint: string;
  readonly preset: string;
  readonly layout: string;
}

/** The parts of the form that a problem may be of. */
export type Part = "key" | "endpoint" | "layout" | "file";

export class Refused extends Error {
  readonly part: Part;

  constructor(part: Part, detail: string) {
    super(detail);
    this.part = part;
  }
}

/** Characters of a query; longer ones do not pass every server. */
const MAX_QUERY = 7_500;
const OF_ENDPOINTS = new Set(["bad_name", "owned_by_source", "not_in_key", "wrong_kind", "wrong_unit", "collection", "too_many_endpoints"]);

/** Sends files with a write key. */
export class FilesClient {
  readonly #rest: () => Promise<string>;
  key = "";

  /** `rest` is the base URL of the REST API. */
  constructor(rest: () => Promise<string>) {
    this.#rest = rest;
  }

  suggest(file: File, signal: AbortSignal): Promise<Suggestion> {
    return this.#post(file, {}, signal);
  }

  preview(file: File, layout: Layout, signal: AbortSignal): Promise<Preview> {
    return this.#post(file, { ...layout, preview: "true" }, signal);
  }

  /** Returns the names of the endpoints that are stored. */
  async publish(file: File, layout: Layout, signal: AbortSignal): Promise<string[]> {
    const { accepted } = await this.#post<{ accepted: { endpoint: string }[] }>(file, { ...layout }, signal);
    return accepted.map(({ endpoint }) => endpoint);
  }

  /** Rejects with `Refused`, or with the signal's reason. */
  async #post<T>(file: File, query: Record<string, string>, signal: AbortSignal): Promise<T> {
    const given = Object.entries({ name: file.name.slice(-255), ...query }).filter(([, value]) => value !== "");
    if (!/^[!-~]+$/.test(this.key)) throw new Refused("key", "A write key of this server is needed.");
    const text = new URLSearchParams(given).toString();
    if (text.length > MAX_QUERY) throw new Refused("layout", "The layout is too long for the page: store it as a file, and use `diem put --preset FILE.toml`.");
    const headers = { Authorization: `Bearer ${this.key}`, "Content-Type": file.type || "application/octet-stream" };
    const answer = await (async () => fetch(`${await this.#rest()}/files?${text}`, { method: "POST", headers, body: file, signal }))().catch((error: unknown) => {
      if (signal.aborted) throw error;
      throw new Refused("file", "The file cannot be read or is too large, or the Data Service does not answer.");
    });
    const body: unknown = await answer.json().catch(() => null);
    if (!answer.ok || body === null) throw refusalOf(answer.status, body);
    return body as T;
  }
}

/** The part of the form that a problem document is of, and its words. */
export function refusalOf(status: number, body: unknown): Refused {
  const { code, detail, errors } = (body ?? {}) as { code?: unknown; detail?: unknown; errors?: { where?: unknown }[] };
  const words = typeof detail === "string" ? sentence(detail.replace(/^layout: /, "")) : `The Data Service answers ${status}.`;
  if (status === 401) return new Refused("key", "This is no write key of this server, or no longer.");
  if (typeof code === "string" && OF_ENDPOINTS.has(code)) return new Refused("endpoint", words);
  if (errors?.[0]?.where === "layout" || code === "invalid_dataset" || code === "malformed") return new Refused("layout", words);
  return new Refused("file", words);
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? "" : "."}`;

/** A layout with another value of a key: of `[mapping]`, if it is there, else before it. */
export function withValue(layout: string, key: string, value: string): string {
  const line = `${key} = ${JSON.stringify(value)}`;
  const found = new RegExp(`^${key}[ \\t]*=.*$`, "m");
  if (found.test(layout)) return layout.replace(found, () => line);
  return `${line}\n${layout}`;
}
