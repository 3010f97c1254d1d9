/** The sources view: the status of each data source, requested every few seconds while it is visible. */

import { find, make, setData, setText } from "./dom.ts";
import { duration } from "./format.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";

const EVERY_MS = 10_000;

export interface SourceState {
  readonly name: string;
  readonly type: string;
  readonly ok: boolean;
  readonly error: string;
  /** Unix milliseconds; null: never. */
  readonly lastSuccess: number | null;
  readonly failures: number;
  readonly endpoints: number | null;
}

/** The sources of a `/v1/sources` body; those without a name are left out. */
export function parseSources(body: unknown): SourceState[] {
  const { sources } = (body ?? {}) as { sources?: unknown };
  return (Array.isArray(sources) ? sources : []).flatMap((entry: unknown) => {
    const { name, type, ok, error, last_success: last, failures, endpoints } = (entry ?? {}) as Record<string, unknown>;
    if (typeof name !== "string" || name === "") return [];
    const at = typeof last === "string" ? Date.parse(last) : NaN;
    return {
      name,
      type: typeof type === "string" ? type : "",
      ok: ok === true,
      error: typeof error === "string" ? error : "",
      lastSuccess: Number.isNaN(at) ? null : at,
      failures: typeof failures === "number" ? failures : 0,
      endpoints: typeof endpoints === "number" ? endpoints : Array.isArray(endpoints) ? endpoints.length : null,
    };
  });
}

/** "Working", "Failing: …" or "Not yet". */
export function stateWords({ ok, error, lastSuccess }: SourceState): string {
  if (ok) return "Working";
  return error ? `Failing: ${error}` : lastSuccess === null ? "Nothing yet" : "Failing";
}

export class SourcesView extends View {
  readonly #rest: () => Promise<string>;
  #sources: SourceState[] = [];
  #askedAt = -Infinity;
  #answeredAt: number | null = null;
  #trouble = "";

  /** `rest` returns the base URL of the REST API. */
  constructor(desk: Desk, root: HTMLElement, rest: () => Promise<string>) {
    super(desk, root);
    this.#rest = rest;
    void this.#ask(); // decides whether the view is shown
  }

  protected override passed(): void {
    if (performance.now() - this.#askedAt >= EVERY_MS && !document.hidden) void this.#ask();
    this.#showAges();
  }

  protected override problem(): string {
    return this.#trouble;
  }

  protected override get followed(): null {
    return null;
  }

  protected override get acceptedAt(): number | null {
    return this.#answeredAt;
  }

  async #ask(): Promise<void> {
    this.#askedAt = performance.now();
    try {
      const response = await fetch(`${await this.#rest()}/sources`, { headers: { Accept: "application/json" } });
      if (response.status === 404) {
        this.root.hidden = true; // a Data Service without this resource
        return;
      }
      if (!response.ok) throw new Error(`status ${response.status}`);
      this.#sources = parseSources(await response.json());
      this.#answeredAt = Date.now();
      this.#trouble = "";
      this.root.hidden = false;
    } catch {
      if (this.#answeredAt === null) setTimeout(() => void this.#ask(), EVERY_MS);
      else this.#trouble = "Data Service unreachable";
    }
    this.changed();
  }

  protected draw(): void {
    const body = find(this.root, "tbody");
    this.#sources.forEach((source, index) => {
      const line = (body.children[index] ?? body.appendChild(emptyLine())) as HTMLElement;
      const [name, state, endpoints, , failures] = line.children as unknown as HTMLElement[];
      setData(line, "source", source.name);
      setData(line, "ok", String(source.ok));
      setText(find(name as HTMLElement, "b"), source.name);
      setText(find(name as HTMLElement, "span"), source.type);
      setText(find(state as HTMLElement, ".state"), stateWords(source));
      setText(endpoints as HTMLElement, source.endpoints === null ? "–" : String(source.endpoints));
      setText(failures as HTMLElement, String(source.failures));
    });
    while (body.children.length > this.#sources.length) body.lastElementChild?.remove();
    this.explain(this.#answeredAt !== null && this.#sources.length === 0 ? "No sources are configured: data arrives by PUT alone." : "");
    find(this.root, "table").hidden = this.#sources.length === 0;
    const failing = this.#sources.filter(({ ok }) => !ok).length;
    this.about(this.#sources.length === 0 ? "Where the data comes from" : failing === 0 ? "All working" : `${failing} of ${this.#sources.length} not working`);
    this.#showAges();
  }

  #showAges(): void {
    const lines = find(this.root, "tbody").children;
    this.#sources.forEach(({ lastSuccess }, index) => {
      const age = lines[index]?.children[3];
      if (age) setText(age, lastSuccess === null ? "never" : `${duration(Date.now() - lastSuccess)}`);
    });
  }
}

function emptyLine(): HTMLElement {
  const line = make("tr");
  const head = make("th");
  head.scope = "row";
  head.append(make("b"), " ", make("span"));
  const state = make("td", "source-state");
  const mark = make("span", "dot");
  mark.ariaHidden = "true";
  state.append(mark, make("span", "state"));
  line.append(head, state, make("td", "num"), make("td", "num age-cell"), make("td", "num"));
  return line;
}
