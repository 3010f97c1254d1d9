/** Kinds of data by media type (docs/protocol.md section 2.1), sizes, and the form in which bytes are shown. Pure. */

import type { Listed } from "../zones.ts";

export type Kind = "series" | "document" | "bytes" | "notice" | "collection";

/** Images that browsers decode without running anything: SVG has scripts, and is shown as text. */
const IMAGE = /^image\/(?:png|jpeg|gif|webp|avif)$/;
const TEXT = /^text\/|[/+]xml$|^application\/(?:javascript|ecmascript|yaml|toml|sql|graphql|x-sh)$/;
const KIB = 1_024;

const essenceOf = (mediaType: string): string => mediaType.split(";")[0] ?? "";

/** The kind that a canonical media type names; of a deleted endpoint of which nothing is known, null. */
export function kindOf(mediaType: string): Kind | null {
  const essence = essenceOf(mediaType);
  const own = /^application\/vnd\.diem\.(series|notice|collection)\+json$/.exec(essence)?.[1];
  if (own !== undefined) return own as Kind;
  if (essence === "") return null;
  return essence === "application/json" || essence.endsWith("+json") ? "document" : "bytes";
}

/** The kind of an entry of the catalogue; those of an earlier visit, and of older services, are series. */
export const kindIn = ({ kind }: Listed): Kind => (kind || "series") as Kind;

/** The kind in words for people: "JSON", "image/png", "notice"; "" of a series, which has a unit. */
export function kindWords(kind: Kind, mediaType = ""): string {
  if (kind === "series") return "";
  if (kind === "notice" || kind === "collection") return kind;
  return kind === "document" && essenceOf(mediaType) === "application/json" ? "JSON" : essenceOf(mediaType) || kind;
}

/** How bytes of a media type are shown. What could run scripts is text: its source. */
export function formOf(mediaType: string): "image" | "text" | "file" {
  const essence = essenceOf(mediaType);
  return IMAGE.test(essence) ? "image" : TEXT.test(essence) ? "text" : "file";
}

/** The charset of text: that of its media type, or UTF-8. */
export const charsetOf = (mediaType: string): string => /;charset=([^;]+)/.exec(mediaType)?.[1] ?? "utf-8";

/** The text of a value of the kind bytes; null if it is none, or its charset is not known. */
export function textOf(value: unknown, mediaType = ""): string | null {
  if (typeof value === "string") return value;
  try {
    return value instanceof Uint8Array ? new TextDecoder(charsetOf(mediaType), { fatal: true, ignoreBOM: true }).decode(value) : null;
  } catch {
    return null;
  }
}

/** Number of bytes of a value of the kind bytes; of text in UTF-8. */
export const sizeOf = (value: unknown): number => (value instanceof Uint8Array ? value.length : new TextEncoder().encode(String(value ?? "")).length);

/** "812 B", "1.5 KiB", "3.2 MiB". */
export function sizeWords(bytes: number): string {
  if (bytes < KIB) return `${bytes} B`;
  return bytes < KIB * KIB ? `${(bytes / KIB).toFixed(1)} KiB` : `${(bytes / KIB / KIB).toFixed(1)} MiB`;
}

/** The name of a file with the content of an endpoint. */
export function fileName(endpoint: string, mediaType: string): string {
  const name = endpoint.split("/").findLast(Boolean) ?? "data";
  const [, subtype = ""] = /^[a-z]+\/([a-z0-9]+)(?:\+|$)/.exec(essenceOf(mediaType)) ?? [];
  return name.includes(".") || subtype === "" ? name : `${name}.${subtype === "plain" ? "txt" : subtype}`;
}
