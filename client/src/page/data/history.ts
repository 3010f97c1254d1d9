/** The retained versions of an endpoint (docs/protocol.md section 2): read while the list is open; one is viewed, one compared. */

import { find, make, setData, setText } from "../dom.ts";
import { count } from "../format.ts";
import type { MarketTime } from "../time.ts";
import type { Version } from "./body.ts";
import { formOf, kindOf, sizeWords } from "./media.ts";

/** Between two requests for the list, however many versions are written. */
const EVERY_MS = 2_000;

export interface Retained {
  readonly version: number;
  /** When it was accepted, Unix milliseconds. */
  readonly at: number;
  readonly gone: boolean;
  readonly mediaType: string;
  /** Points of a series, else null. */
  readonly points: number | null;
  /** Size of anything else, else null. */
  readonly bytes: number | null;
  /** Values that differ from the version before; null: that is not known. */
  readonly revised: number | null;
}

/** The versions of a `/v1/history` body, newest first; malformed ones are left out. */
export function parseVersions(body: unknown): Retained[] {
  const { versions } = (body ?? {}) as { versions?: unknown };
  return (Array.isArray(versions) ? versions : []).flatMap((entry: unknown) => {
    const { version, time, gone, media_type: mediaType, points, bytes, revised } = (entry ?? {}) as Record<string, unknown>;
    const at = typeof time === "string" ? Date.parse(time) : NaN;
    const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
    if (typeof version !== "number" || Number.isNaN(at)) return [];
    return {
      version, at, gone: gone === true, mediaType: typeof mediaType === "string" ? mediaType : "",
      points: number(points), bytes: number(bytes), revised: number(revised),
    };
  });
}

/** The changes in a version: "3 values revised", "no values revised", "deleted"; "" if they are not known. */
export function changeWords({ gone, revised }: Retained, isOldest: boolean): string {
  if (gone) return "deleted";
  if (revised === null) return isOldest ? "oldest version kept" : "";
  return `${revised || "no"} ${revised === 1 ? "value" : "values"} revised`;
}

/** "24 values", "1.5 KiB"; "" of what has no content. */
export function amountWords({ points, bytes }: Retained): string {
  if (points !== null) return `${count(points)} ${points === 1 ? "value" : "values"}`;
  return bytes === null ? "" : sizeWords(bytes);
}

/** Whether differences to a version can be shown. */
const isComparable = ({ mediaType }: Retained): boolean => {
  const kind = kindOf(mediaType);
  return kind === "series" || kind === "document" || (kind === "bytes" && formOf(mediaType) === "text");
};

/** What is done with an older version. */
type Use = "view" | "compare";

export interface HistoryOptions {
  /** Base URL of the REST API. */
  rest(): Promise<string>;
  /** The user selects a version to view in place of the current one, or none. */
  view(version: Version | null): void;
  /** The user selects a version to compare with, or none. */
  compare(version: Version | null): void;
}

export class History {
  readonly #details: HTMLDetailsElement;
  readonly #body: HTMLElement;
  readonly #options: HistoryOptions;
  #endpoint = "";
  #time: MarketTime;
  #versions: Retained[] = [];
  #current = 0;
  readonly #used: Record<Use, number | null> = { view: null, compare: null };
  /** Numbers of the last requests: the answers to earlier ones are dropped. */
  readonly #requests: Record<Use, number> = { view: 0, compare: 0 };
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
      const button = (target as HTMLElement).closest("button");
      if (button) void this.#select(button.name as Use, Number(button.value));
    });
  }

  /** Another endpoint is shown. */
  select(endpoint: string): void {
    this.#endpoint = endpoint;
    this.#versions = [];
    this.#current = 0;
    for (const use of ["view", "compare"] as const) {
      this.#used[use] = null;
      this.#requests[use] += 1;
    }
    this.#problem = "";
    this.#readAt = -Infinity;
    this.#draw();
  }

  /** Shows the current version again. */
  leave(): void {
    void this.#select("view", this.#used.view ?? 0);
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
    const answer = await this.#get(`history${endpoint}`, "No versions of this endpoint are kept.");
    const body: unknown = typeof answer === "string" ? null : await answer.json().catch(() => null);
    if (endpoint !== this.#endpoint) return;
    this.#problem = typeof answer === "string" ? answer : "";
    if (body !== null) this.#versions = parseVersions(body);
    this.#draw();
  }

  /** Views or compares a version; the one that is already used, no longer. */
  async #select(use: Use, version: number): Promise<void> {
    const request = (this.#requests[use] += 1);
    const found = this.#used[use] === version ? null : await this.#fetch(version);
    if (request !== this.#requests[use]) return;
    this.#problem = typeof found === "string" ? found : "";
    const selected = typeof found === "string" ? null : found;
    this.#used[use] = selected?.version ?? null;
    this.#options[use](selected);
    this.#draw();
  }

  /** Returns a version, or the problem in words. */
  async #fetch(version: number): Promise<Version | string> {
    const answer = await this.#get(`data${this.#endpoint}?version=${version}`, "This version is no longer kept.");
    if (typeof answer === "string") return answer;
    const mediaType = (answer.headers.get("Content-Type") ?? "").replaceAll(" ", "");
    const at = this.#versions.find((known) => known.version === version)?.at ?? version;
    try {
      const value: unknown = kindOf(mediaType) === "bytes" ? new Uint8Array(await answer.arrayBuffer()) : await answer.json();
      return { version, at, mediaType, value };
    } catch {
      return "The Data Service answers something else.";
    }
  }

  /** Reads a resource, or returns the problem in words; it is `missing` when there is none. */
  async #get(path: string, missing: string): Promise<Response | string> {
    try {
      const response = await fetch(`${await this.#options.rest()}/${path}`);
      if (response.ok) return response;
      return response.status === 404 ? missing : `The Data Service answers ${response.status}.`;
    } catch {
      return "The Data Service cannot be reached.";
    }
  }

  #draw(): void {
    const problem = find(this.#details, ".history-problem");
    setText(problem, this.#problem);
    problem.hidden = this.#problem === "";
    this.#versions.forEach((version, index) => this.#write((this.#body.children[index] ?? this.#body.appendChild(emptyRow())) as HTMLElement, version, index));
    while (this.#body.children.length > this.#versions.length) this.#body.lastElementChild?.remove();
  }

  #write(row: HTMLElement, version: Retained, index: number): void {
    const [when, amount, change, action] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
    const [view, compare] = action.children as unknown as [HTMLButtonElement, HTMLButtonElement];
    const at = `${this.#time.fullDate(version.at)} ${this.#time.clockSeconds(version.at)}`;
    setData(row, "version", String(version.version));
    setText(when, at);
    setText(amount, amountWords(version));
    setText(change, index === 0 ? `current${version.gone ? ", deleted" : ""}` : changeWords(version, index === this.#versions.length - 1));
    for (const button of [view, compare]) {
      button.value = String(version.version);
      button.ariaPressed = String(version.version === this.#used[button.name as Use]);
    }
    view.hidden = index === 0 || version.gone || kindOf(version.mediaType) === "notice";
    compare.hidden = view.hidden || !isComparable(version);
    view.ariaLabel = `View the version of ${at}`;
    compare.ariaLabel = `Compare with the version of ${at}`;
  }
}

function emptyRow(): HTMLElement {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  const action = make("td");
  for (const [name, text] of [["view", "View"], ["compare", "Compare"]] as const) {
    const button = make("button", "small", text);
    button.type = "button";
    button.name = name;
    action.append(button);
  }
  row.append(head, make("td", "num"), make("td", "change"), action);
  return row;
}
