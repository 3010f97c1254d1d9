/** What a page calls itself on its connections: chance, so that servers can tell pages apart, and not who looks at them. */

/** The part of `sessionStorage` that the SDK uses. */
export interface KeyValueStore {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

const KEY = "diem.client";
const FORM = /^[A-Za-z0-9_-]{8,64}$/;

/** The page's name for itself: the same after a reload where `storage` (of the session) keeps it, otherwise new. */
export function clientId(storage: KeyValueStore | null): string {
  try {
    const kept = storage?.getItem(KEY);
    if (kept && FORM.test(kept)) return kept;
    const made = randomId();
    storage?.setItem(KEY, made);
    return made;
  } catch {
    return randomId(); // storage that is full, or forbidden
  }
}

/** The URL with the page's name in its query. */
export function withClient(url: string, client: string): string {
  return `${url}${url.includes("?") ? "&" : "?"}client=${client}`;
}

const randomId = (): string => hex(crypto.getRandomValues(new Uint8Array(16)));

/** SHA-256 (FIPS 180-4) of `text` in hexadecimal digits; null where the browser has none: it keeps it from pages of plain http. */
export async function digest(text: string): Promise<string | null> {
  if (!crypto.subtle) return null;
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
