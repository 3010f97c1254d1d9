/** Versions of endpoints as a page holds them, of any kind, and the catalogue (docs/protocol.md section 2). */

import { fields, orNull, text } from "./json.ts";

/** A version of an endpoint. All views of a page share the object. */
export interface Snapshot<T = unknown> {
  readonly endpoint: string;
  readonly version: number;
  /** When this version was accepted, ISO 8601, UTC. */
  readonly time: string;
  /** Names the kind, and what `value` is; "" for a deleted endpoint of which nothing was held. */
  readonly mediaType: string;
  /**
   * Of a document the JSON value, of text a string, of other bytes a `Uint8Array`, of a series unit, resolution and points, of a
   * notice what the option `load` returned, `{ url }` without it, of a collection `{ members }`, their names. Null once deleted.
   */
  readonly value: T;
  /** True if deleted at this version. */
  readonly gone: boolean;
  /** False for a version of an earlier visit, or of before a resync, until the Data Service has confirmed it. */
  readonly confirmed: boolean;
}

/** A snapshot as it is held. */
export interface Entry {
  readonly snapshot: Snapshot;
  readonly etag?: string | null | undefined;
  /** Characters or bytes of what was received; 0 when left out. */
  readonly size?: number | undefined;
  /** Since a resync, no request has confirmed it: data that comes with an update may be older. */
  readonly suspect?: boolean | undefined;
}

export interface Point {
  /** ISO 8601, UTC: the start of the interval. */
  readonly time: string;
  /** Null is a gap. */
  readonly value: number | null;
}

export interface Series {
  readonly unit: string;
  /** Length of an interval, an ISO 8601 duration. */
  readonly resolution: string;
  /** Empty once deleted. */
  readonly points: readonly Point[];
}

/** A version of a series: the fields of its value are also fields of its own. */
export interface Dataset extends Snapshot<Series>, Series {}

export interface CatalogueEntry {
  readonly endpoint: string;
  readonly title: string;
  /** `series`, `document`, `bytes` or `notice`. */
  readonly kind?: string;
  readonly mediaType?: string;
  /** The area (such as `GR`) and the quantity (such as `load`); empty where the source has none. */
  readonly area?: string;
  readonly quantity?: string;
  /** The zone of the IANA database in which the days, weeks, months and years of a series begin; empty for other resolutions. */
  readonly zone?: string;
  /** Of a series; empty for other kinds. */
  readonly unit: string;
  readonly resolution: string;
  readonly version: number;
  readonly gone: boolean;
}

/** A version as it is sent and stored: `data` is what an update has, or the body of an answer. */
export interface Content {
  readonly version: number;
  readonly time: string;
  /** Without one: a series. */
  readonly mediaType?: string | null | undefined;
  readonly data?: unknown;
  /** `base64` of bytes in JSON that are no text in UTF-8. */
  readonly encoding?: string | undefined;
  /** Characters or bytes of what was received. */
  readonly size?: number | undefined;
}

export const SERIES = "application/vnd.diem.series+json";
export const NOTICE = "application/vnd.diem.notice+json";

export const isJson = (mediaType: string): boolean => /^(?:application\/|[^;]*\+)json(?:;|$)/.test(mediaType);

/** The page's own request for the data of a notice: `url` is that of its prefix, "" where none is configured. */
export type LoadFunction = (url: string, notice: { readonly endpoint: string; readonly version: number; readonly signal: AbortSignal }) => unknown;

/** The entity tag that the Data Service gives to a version. */
export const etagOf = ({ version, mediaType }: Snapshot): string => `"${version}-${isJson(mediaType) ? "json" : "bytes"}"`;

/** The version of `endpoint` in `content`, or null when it is another one's, or malformed. */
export function readSnapshot(endpoint: string, content: Content): Snapshot | null {
  const { version, time, data } = content;
  const mediaType = text(content.mediaType) || SERIES;
  const made = { endpoint, version, time, mediaType, gone: false, confirmed: true };
  if (!isJson(mediaType)) {
    const value = decoded(content, mediaType);
    return value === null ? null : { ...made, value };
  }
  if (!/^application\/vnd\.diem\.(?:series|notice|collection)\+/.test(mediaType)) return { ...made, value: data };
  // These have their name and version beside their value.
  const { endpoint: name, version: own, time: at, gone, ...value } = fields(data);
  if (name !== endpoint || !Number.isSafeInteger(own)) return null;
  const named = { ...made, version: own as number, time: text(at) };
  if (!mediaType.startsWith(SERIES)) return { ...named, value };
  if (!Array.isArray(value.points)) return null;
  const series: Series = { unit: text(value.unit), resolution: text(value.resolution), points: value.points as Point[] };
  return { ...named, ...series, ...(gone === true ? { gone, value: null } : { value: series }) };
}

const fromBase64 = (base64: unknown): Uint8Array => Uint8Array.from(atob(base64 as string), (character) => character.charCodeAt(0));

/** Content of the kind bytes: text in UTF-8 as a string, all else, text in another charset too, as it is. Null for what is malformed. */
function decoded({ data, encoding }: Content, mediaType: string): string | Uint8Array | null {
  const isText = /^text\/(?!.*charset=(?!utf-?8|us))/.test(mediaType);
  if (typeof data === "string" && !encoding) return isText ? data : new TextEncoder().encode(data);
  const bytes = data instanceof Uint8Array ? data : orNull(() => fromBase64(data));
  return (isText ? orNull(() => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes as Uint8Array)) : null) ?? bytes;
}
