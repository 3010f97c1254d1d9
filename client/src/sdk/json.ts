/** Readers of parsed JSON, which may be anything: each returns an empty value for any other type. */

export type Fields = Record<string, unknown>;

export const text = (value: unknown): string => (typeof value === "string" ? value : "");
export const fields = (value: unknown): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
export const names = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((name): name is string => typeof name === "string") : [];

/** What `get` returns; null if it throws. */
export function orNull<T>(get: () => T): T | null {
  try {
    return get();
  } catch {
    return null;
  }
}
