/** The retained versions of an endpoint (docs/protocol.md section 6): read while the list is open, one of them compared. */

import type { Point } from "../../sdk/index.ts";
import { find, make, setData, setText } from "../dom.ts";
import type { Step } from "../series.ts";
import { steps } from "../series.ts";
import type { MarketTime } from "../time.ts";

/** Between two requests for the list, however many versions are written. */
const EVERY_MS = 2_000;

export interface Version {
  readonly version: number;
  /** When it was accepted, Unix milliseconds. */
  readonly at: number;
  readonly gone: boolean;
  readonly points: number;
  /** Values that differ from the version before; null: that one is not retained. */
  readonly revised: number | null;
}

/** The versions of a `/v1/history` body, newest first; malformed ones are left out. */
export function parseVersions(body: unknown): Version[] {
  const { versions } = (body ?? {}) as { versions?: unknown };
  return (Array.isArray(versions) ? versions : []).flatMap((entry: unknown) => {
    const { version, time, gone, points, revised } = (entry ?? {}) as Record<string, unknown>;
    const at = typeof time === "string" ? Date.parse(time) : NaN;
    if (typeof version !== "number" || Number.isNaN(at)) return [];
    return {
      version,
      at,
      gone: gone === true,
      points: typeof points === "number" ? points : 0,
      revised: typeof revised === "number" ? revised : null,
    };
  });
}

/** The changes in a version: "3 values revised", "no values revised", "deleted"; unknown for the oldest. */
export function changeWords({ gone, revised }: Version): string {
  if (gone) return "deleted";
  if (revised === null) return "oldest version kept";
  return `${revised || "no"} ${revised === 1 ? "value" : "values"} revised`;
}

/** A version, for comparison. */
export interface Older {
  readonly version: number;
  readonly at: number;
  readonly steps: readonly Step[];
}

interface Answer {
  /** Null after a failure. */
  readonly body: unknown;
  /** The displayed failure; "" = none. */
  readonly problem: string;
}

const NOTHING: Answer = { body: null, problem: "" };

export interface HistoryOptions {
  /** Base URL of the REST API. */
  rest(): Promise<string>;
  /** The user selects a version to compare with, or none. */
  compare(older: Older | null): void;
}

export class History {
  readonly #details: HTMLDetailsElement;
  readonly #body: HTMLElement;
  readonly #options: HistoryOptions;
  #endpoint = "";
  #time: MarketTime;
  #versions: Version[] = [];
  #current = 0;
  #compared: number | null = null;
  /** Number of the last comparison: the answers of earlier ones are dropped. */
  #comparison = 0;
  #problem = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #readAt = -Infinity;

  constructor(details: HTMLDetailsElement, time: MarketTime, options: HistoryOptions) {
    this.#details = details;
    this.#time = time;
    this.#options = options;
    this.#body = find(details, "tbody");
    details.addEventListener("toggle", () => this.#due());
    this.#body.addEventListener("click", ({ target }) => {
      const version = Number((target as HTMLElement).closest("button")?.value);
      if (version) void this.#compare(version === this.#compared ? null : version);
    });
  }

  /** Another endpoint is shown. */
  select(endpoint: string): void {
    this.#endpoint = endpoint;
    this.#versions = [];
    this.#current = 0;
    this.#compared = null;
    this.#comparison += 1;
    this.#problem = "";
    this.#readAt = -Infinity;
    this.#draw();
  }

  /** The endpoint has this version now: the list is read again, if it is open. */
  changed(version: number, time: MarketTime): void {
    this.#time = time;
    if (version === this.#current) return;
    this.#current = version;
    this.#due();
  }

  #due(): void {
    if (!this.#details.open || !this.#endpoint) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#read(), Math.max(0, this.#readAt + EVERY_MS - performance.now()));
  }

  async #read(): Promise<void> {
    const endpoint = this.#endpoint;
    this.#readAt = performance.now();
    const { body, problem } = await this.#get(`history${endpoint}`, "No versions of this endpoint are kept.");
    if (endpoint !== this.#endpoint) return;
    this.#problem = problem;
    if (body !== null) this.#versions = parseVersions(body);
    this.#draw();
  }

  async #compare(version: number | null): Promise<void> {
    const endpoint = this.#endpoint;
    const comparison = (this.#comparison += 1);
    const { body, problem } = version === null ? NOTHING : await this.#get(`data${endpoint}?version=${version}`, "This version is no longer kept.");
    if (comparison !== this.#comparison) return;
    this.#problem = problem;
    const { points, resolution } = (body ?? {}) as Record<string, unknown>;
    const at = this.#versions.find((known) => known.version === version)?.at ?? version ?? 0;
    const isFound = version !== null && Array.isArray(points) && typeof resolution === "string";
    this.#compared = isFound ? version : null;
    this.#options.compare(isFound ? { version, at, steps: steps({ points: points as Point[], resolution }) } : null);
    this.#draw();
  }

  /** Reads a resource; `missing` is the problem when there is none. */
  async #get(path: string, missing: string): Promise<Answer> {
    try {
      const response = await fetch(`${await this.#options.rest()}/${path}`, { headers: { Accept: "application/json" } });
      if (response.ok) return { body: await response.json(), problem: "" };
      return { body: null, problem: response.status === 404 ? missing : `The Data Service answers ${response.status}.` };
    } catch {
      return { body: null, problem: "The Data Service cannot be reached." };
    }
  }

  #draw(): void {
    const problem = find(this.#details, ".history-problem");
    setText(problem, this.#problem);
    problem.hidden = this.#problem === "";
    this.#versions.forEach((version, index) => this.#write((this.#body.children[index] ?? this.#body.appendChild(emptyRow())) as HTMLElement, version, index === 0));
    while (this.#body.children.length > this.#versions.length) this.#body.lastElementChild?.remove();
  }

  #write(row: HTMLElement, version: Version, isCurrent: boolean): void {
    const [when, points, change, action] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
    const button = find<HTMLButtonElement>(action, "button");
    const at = `${this.#time.fullDate(version.at)} ${this.#time.clockSeconds(version.at)}`;
    setData(row, "version", String(version.version));
    setText(when, at);
    setText(points, String(version.points));
    setText(change, isCurrent ? `current${version.gone ? ", deleted" : ""}` : changeWords(version));
    button.value = String(version.version);
    button.hidden = isCurrent || version.gone;
    button.ariaPressed = String(version.version === this.#compared);
    button.ariaLabel = `Compare with the version of ${at}`;
  }
}

function emptyRow(): HTMLElement {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  const action = make("td");
  const button = make("button", "small", "Compare");
  button.type = "button";
  action.append(button);
  row.append(head, make("td", "num"), make("td", "change"), action);
  return row;
}
