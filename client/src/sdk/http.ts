/** One request with a deadline, and the one error type of the Data Service side. */

import type { Environment, Timer } from "./environment.ts";
import { fields, orNull, text } from "./json.ts";
import type { Content } from "./snapshot.ts";
import { isJson } from "./snapshot.ts";

/** For the head of an answer, and then for its body. */
const HEAD_MS = 10_000;
const BODY_MS = 30_000;
const MAX_RETRY_AFTER_MS = 300_000;

/** Message about an answer that is no JSON. */
export const NOT_JSON = "no JSON";

/** A request that brought no data. `status` is the HTTP status, 0 when there was no answer at all; `message` is for people. */
export class DataError extends Error {
  override readonly name = "DataError";
  readonly status: number;
  /** `Retry-After` in milliseconds; null without one. */
  readonly retryAfterMs: number | null;
  /** Code of the problem document (RFC 9457) that was the answer, for programs; "" without one. */
  readonly code: string;

  constructor(message: string, status = 0, retryAfterMs: number | null = null, code = "") {
    super(message);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
    this.code = code;
  }

  /** True if a retry may succeed. */
  get retriable(): boolean {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

/** Returns the API key or token of a request, sent as `Authorization: Bearer …`; undefined: none is sent. */
export type Bearer = () => Promise<string | undefined> | string | undefined;

export interface Answer {
  readonly status: number;
  readonly etag: string | null;
  /** The body of 200 and 410, parsed if it is JSON, else its bytes; null otherwise. */
  readonly body: unknown;
  /** Of a version of an endpoint. */
  readonly content?: Content;
  /** When it was made, Unix milliseconds by the server's clock; NaN without a `Date`, and from a cache. */
  readonly date?: number;
}

/**
 * GETs `url`, bypassing the browser's HTTP cache unless `cache` is "default". Answers 200, 304 and 410 are returned; everything else,
 * a lost connection, a body that is not what it is said to be and an answer that takes more than ten seconds, or its body more than
 * thirty, throw `DataError`.
 */
export function getJson(env: Environment, url: string, etag?: string | null, bearer?: Bearer, cache?: "default"): Promise<Answer> {
  return request(env, url, bearer, etag ? { "If-None-Match": etag } : {}, cache && { cache });
}

/**
 * Sends a request with more `headers` and `options` than every one has; the answers are those of `getJson`. With a key, the
 * browser's cache has no part in it: what the key may read is not stored on the device.
 */
export async function request(
  env: Environment,
  url: string,
  bearer: Bearer | undefined,
  headers: Record<string, string>,
  options?: { method: "POST"; body: string } | { cache: "default" },
): Promise<Answer> {
  const key = await bearer?.();
  const abort = new AbortController();
  const within = (ms: number): Timer => env.later(ms, () => abort.abort());
  let timer = within(HEAD_MS);
  try {
    const response = await env.fetch(url, {
      cache: "no-store",
      ...options,
      headers: { Accept: "application/json", ...headers, ...(key && { Authorization: `Bearer ${key}` }) },
      signal: abort.signal,
      ...(key && { cache: "no-store" }),
    });
    env.cancel(timer);
    timer = within(BODY_MS);
    const { status } = response;
    if (status === 304) return { status, etag: headers["If-None-Match"] ?? null, body: null };
    if (status !== 200 && status !== 410) {
      const problem = fields(await response.text().then(JSON.parse).catch(() => null));
      const later = retryAfter(response.headers.get("Retry-After"), env.wall());
      throw new DataError(text(problem.detail) || `HTTP ${status}`, status, later, text(problem.code));
    }
    const field = (name: string): string | null => response.headers.get(name);
    const version = Number(field("Diem-Version"));
    const mediaType = version ? field("Content-Type") : ""; // a release without this field has series alone
    const isBytes = mediaType && !isJson(mediaType);
    const read = isBytes ? new Uint8Array(await response.arrayBuffer()) : await response.text();
    const parse = (): unknown => (isBytes ? read : JSON.parse(read as string));
    const body = status === 200 ? parse() : orNull(parse);
    const date = Date.parse((!field("Age") && field("Date")) || "");
    return { status, etag: field("ETag"), body, content: { version, time: text(field("Diem-Time")), mediaType, data: body, size: read.length }, date };
  } catch (error) {
    if (error instanceof DataError) throw error;
    throw new DataError(abort.signal.aborted ? "no answer in time" : error instanceof SyntaxError ? NOT_JSON : "no usable answer");
  } finally {
    env.cancel(timer);
  }
}

/** Retry-After in milliseconds from either of its forms (RFC 9110 section 10.2.3), at most five minutes; else null. */
export function retryAfter(header: string | null, wall: number): number | null {
  if (header === null) return null;
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - wall;
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}
