/** The list of endpoints: that of the last visit at once, and a new one as soon as it can be read. */

import type { CatalogueEntry } from "../sdk/index.ts";
import { isEndpoint } from "../sdk/index.ts";
import { recall, remember } from "./memory.ts";
import type { Listed } from "./zones.ts";
import { hasView } from "./zones.ts";

/** Names that are stored at most. */
const KEPT = 2_000;
const LONGEST_MS = 10_000;

export interface CatalogueOptions {
  read(): Promise<readonly CatalogueEntry[]>;
  show(entries: readonly Listed[]): void;
  /** Key of the stored list: deployments do not share one. */
  readonly name: string;
}

export class Catalogue {
  readonly #options: CatalogueOptions;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #keptAt: number | null = null;
  #failed = false;

  constructor(options: CatalogueOptions) {
    this.#options = options;
  }

  /** When the list that is shown was read, Unix milliseconds, if that was in an earlier visit and it cannot be read now; else null. */
  get outdatedSince(): number | null {
    return this.#failed ? this.#keptAt : null;
  }

  /** Shows the stored list, and reads a new one. */
  start(): void {
    const kept = restore(recall(this.#options.name));
    if (kept !== null) {
      this.#keptAt = kept.at;
      this.#options.show(kept.endpoints.map((endpoint) => ({ endpoint, gone: false })));
    }
    this.read(0);
  }

  /** Reads until it succeeds; the delay grows with failures. */
  read(delayMs: number, nextMs = 1_000): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#options.read().then(
        (entries) => this.#take(entries),
        () => {
          this.#failed = true;
          this.read(Math.random() * nextMs, Math.min(nextMs * 2, LONGEST_MS));
        },
      );
    }, delayMs);
  }

  #take(entries: readonly CatalogueEntry[]): void {
    this.#failed = false;
    this.#keptAt = null;
    const present = entries.filter(({ gone }) => !gone).map(({ endpoint }) => endpoint);
    // Endpoints with their own views first: for others only names are shown.
    const endpoints = [...present.filter(hasView), ...present.filter((endpoint) => !hasView(endpoint))];
    remember(this.#options.name, JSON.stringify({ at: Date.now(), endpoints: endpoints.slice(0, KEPT) }));
    this.#options.show(entries);
  }
}

function restore(text: string | null): { at: number; endpoints: string[] } | null {
  try {
    const { at, endpoints } = JSON.parse(text ?? "{}") as { at?: unknown; endpoints?: unknown };
    if (typeof at !== "number" || !Array.isArray(endpoints)) return null;
    const names = endpoints.filter((name): name is string => typeof name === "string" && isEndpoint(name));
    return names.length > 0 ? { at, endpoints: names } : null;
  } catch {
    return null;
  }
}
