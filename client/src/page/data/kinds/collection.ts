/** A collection: its members a page at a time, and what each of these is now. */

import type { Snapshot } from "../../../sdk/index.ts";
import { find, flash, make, setData, setText } from "../../dom.ts";
import { count, duration, unit as written } from "../../format.ts";
import { latest, steps } from "../../series.ts";
import { marketTime } from "../../time.ts";
import type { Listed } from "../../zones.ts";
import type { Body, Shown } from "../body.ts";
import { formOf, kindIn, kindOf, kindWords, sizeOf, sizeWords, textOf } from "../media.ts";
import { Pager } from "../pager.ts";
import { brief } from "../tree.ts";
import { digitsOf, figure } from "../values.ts";

/** Members on a page, and so watched. */
const ROWS = 24;
/** Characters of a value. */
const CHARS = 80;

export interface CollectionOptions {
  /** The address of an endpoint. */
  href(endpoint: string): string;
  /** The user selects an endpoint. */
  pick(endpoint: string): void;
  /** The entry of an endpoint in the catalogue, if it is known. */
  entry(endpoint: string): Listed | null;
  /** Watches a member. */
  watch(endpoint: string, take: (snapshot: Snapshot) => void): void;
  unwatch(endpoint: string): void;
}

interface Member {
  readonly name: string;
  readonly mark: "added" | "removed" | null;
}

export class CollectionBody implements Body {
  readonly time = marketTime(null);
  differences = "";
  readonly #root: HTMLElement;
  readonly #options: CollectionOptions;
  readonly #pager: Pager;
  readonly #rows: HTMLElement;
  readonly #held = new Map<string, Snapshot | null>();
  #endpoint = "";
  #members: readonly Member[] = [];

  constructor(root: HTMLElement, options: CollectionOptions) {
    this.#root = root;
    this.#options = options;
    this.#rows = find(root, "tbody");
    this.#pager = new Pager(find(root, ".pager"), ROWS, () => this.#draw());
    this.#rows.addEventListener("click", (event) => {
      const name = (event.target as HTMLElement).closest("a")?.dataset.endpoint;
      if (name === undefined || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      options.pick(name);
    });
  }

  clear(): void {
    for (const name of this.#held.keys()) this.#options.unwatch(name);
    this.#held.clear();
    this.#members = [];
    this.#pager.turnTo(0);
    this.differences = "";
  }

  show({ endpoint, version, base }: Shown): void {
    this.#endpoint = endpoint;
    const [members, before] = [membersOf(version.value), base ? membersOf(base.value) : null];
    const added = new Set(before === null ? [] : members.filter((name) => !before.includes(name)));
    const removed = (before ?? []).filter((name) => !members.includes(name));
    this.#members = [
      ...members.map((name) => ({ name, mark: added.has(name) ? ("added" as const) : null })),
      ...removed.map((name) => ({ name, mark: "removed" as const })),
    ].sort((a, b) => (a.name < b.name ? -1 : 1));
    const words = [added.size ? `${count(added.size)} added` : "", removed.length ? `${count(removed.length)} removed` : ""];
    this.differences = before === null ? "" : words.filter(Boolean).join(", ") || "no difference";
    this.#draw();
  }

  tick(): void {
    for (const row of this.#rows.children) this.#writeAge(row as HTMLElement);
  }

  #draw(): void {
    const { from, to } = this.#pager.show(this.#members.length);
    const shown = this.#members.slice(from, to);
    this.#watch(new Set(shown.filter(({ name, mark }) => mark !== "removed" && !name.endsWith("/")).map(({ name }) => name)));
    shown.forEach((member, index) => this.#write((this.#rows.children[index] ?? this.#rows.appendChild(emptyRow())) as HTMLElement, member));
    while (this.#rows.children.length > shown.length) this.#rows.lastElementChild?.remove();
    const none = find(this.#root, ".none");
    none.hidden = this.#members.length > 0;
    find(this.#root, "table").hidden = !none.hidden;
  }

  #watch(names: ReadonlySet<string>): void {
    for (const name of [...this.#held.keys()]) {
      if (names.has(name)) continue;
      this.#options.unwatch(name);
      this.#held.delete(name);
    }
    for (const name of names) {
      if (this.#held.has(name)) continue;
      this.#held.set(name, null);
      this.#options.watch(name, (snapshot) => this.#take(snapshot));
    }
  }

  #take(snapshot: Snapshot): void {
    const before = this.#held.get(snapshot.endpoint);
    if (before === undefined) return;
    this.#held.set(snapshot.endpoint, snapshot);
    const row = [...this.#rows.children].find((each) => (each as HTMLElement).dataset.endpoint === snapshot.endpoint) as HTMLElement | undefined;
    if (row === undefined) return;
    this.#write(row, { name: snapshot.endpoint, mark: (row.dataset.mark || null) as Member["mark"] });
    if (before !== null && before.version !== snapshot.version) flash(row.children[2] as HTMLElement);
  }

  #write(row: HTMLElement, { name, mark }: Member): void {
    const [head, kind, value] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
    const link = find<HTMLAnchorElement>(head, "a");
    const snapshot = this.#held.get(name) ?? null;
    setData(row, "endpoint", name);
    setData(row, "mark", mark ?? "");
    setText(find(head, ".sign"), mark === "added" ? "+" : mark === "removed" ? "−" : "");
    setText(find(head, ".sr"), mark ? `${mark}: ` : "");
    if (link.dataset.endpoint !== name) {
      link.dataset.endpoint = name;
      link.setAttribute("href", this.#options.href(name));
    }
    setText(link, name.slice(this.#endpoint.length));
    setText(kind, this.#kindWords(name, snapshot));
    setText(value, snapshot ? valueWords(snapshot) : "");
    setData(row, "at", snapshot ? String(Date.parse(snapshot.time)) : "");
    this.#writeAge(row);
  }

  #writeAge(row: HTMLElement): void {
    const at = Number(row.dataset.at);
    setText(row.children[3] as HTMLElement, at ? duration(Date.now() - at) : "");
  }

  #kindWords(name: string, snapshot: Snapshot | null): string {
    if (name.endsWith("/")) return "collection";
    const entry = this.#options.entry(name);
    const kind = (snapshot && kindOf(snapshot.mediaType)) ?? (entry && kindIn(entry));
    return kind ? kindWords(kind, snapshot?.mediaType || entry?.mediaType) || "series" : "";
  }
}

/** The names in the value of a collection. */
function membersOf(value: unknown): readonly string[] {
  const { members } = (value ?? {}) as { members?: unknown };
  return Array.isArray(members) ? members.filter((name): name is string => typeof name === "string") : [];
}

/** The value of an endpoint in some words. */
export function valueWords({ mediaType, value, gone }: Snapshot): string {
  if (gone) return "deleted";
  switch (kindOf(mediaType)) {
    case "series": {
      const all = steps(value as Parameters<typeof steps>[0]);
      const last = latest(all);
      const { unit = "" } = value as { unit?: string };
      return last === null ? "no values" : `${figure(last.value as number, digitsOf(all))} ${written(unit)}`.trimEnd();
    }
    case "document":
      return brief(value, CHARS);
    case "notice":
      return String((value as { url?: unknown } | null)?.url ?? "");
    case "bytes": {
      const text = formOf(mediaType) === "text" ? textOf(value, mediaType) : null;
      return text === null ? sizeWords(sizeOf(value)) : text.slice(0, CHARS);
    }
    default:
      return "";
  }
}

function emptyRow(): HTMLElement {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  const sign = make("span", "sign");
  sign.ariaHidden = "true";
  head.append(sign, make("span", "sr"), make("a"));
  row.append(head, make("td", "kind-cell"), make("td", "value-cell"), make("td", "num age-cell"));
  return row;
}
