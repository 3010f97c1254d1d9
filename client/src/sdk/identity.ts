/** What a page calls itself on its connections: chance, so that servers can tell pages apart, and not who looks at them. */

import type { KeyValueStore } from "./environment.ts";

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

function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
