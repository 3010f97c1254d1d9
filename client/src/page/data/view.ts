/**
 * The page "Data": the catalogue, and one endpoint of it in the way that fits its kind, with its history and the code that shows it.
 * Reading order: `search`, `media`, `difference`, `tree`, `text`, `values`, `snippet`, which are pure; `pager`, `list`, `history`, `copy`;
 * `files` and `upload`, a file that is dropped; `body`, the interface of the parts in `kinds/`, one for each kind of data; and this module, which is loaded with the others when the page
 * is first shown.
 */

import "./data.css";
import type { Series, Snapshot } from "../../sdk/index.ts";
import { find, setData, setText } from "../dom.ts";
import { unit as written } from "../format.ts";
import type { MarketTime } from "../time.ts";
import { marketTime } from "../time.ts";
import type { Desk } from "../view.ts";
import { View } from "../view.ts";
import type { Listed } from "../zones.ts";
import type { Body, Version } from "./body.ts";
import { copyText } from "./copy.ts";
import { History } from "./history.ts";
import { BytesBody } from "./kinds/bytes.ts";
import { CollectionBody } from "./kinds/collection.ts";
import { DocumentBody } from "./kinds/document.ts";
import { NoticeBody } from "./kinds/notice.ts";
import { SeriesBody } from "./kinds/series.ts";
import { EndpointList } from "./list.ts";
import type { Kind } from "./media.ts";
import { kindIn, kindOf, kindWords, sizeOf, sizeWords } from "./media.ts";
import { newest, parentOf } from "./search.ts";
import { snippet } from "./snippet.ts";
import { Upload } from "./upload.ts";
import { every } from "./values.ts";

/** Time that the page shows the code as copied. */
const COPIED_MS = 4_000;

export interface DataOptions {
  /** Base URL of the REST API. */
  rest(): Promise<string>;
  /** The address of an endpoint. */
  href(endpoint: string): string;
  /** The user selects an endpoint. */
  pick(endpoint: string): void;
  /** The title of the page has changed. */
  titled(title: string): void;
  /** There is data of an endpoint that is not in the catalogue. */
  unlisted(): void;
}

export class DataView extends View {
  readonly #options: DataOptions;
  readonly #list: EndpointList;
  readonly #history: History;
  readonly #bodies: Record<Kind, Body>;
  /** Null while it is not known. */
  #catalogue: readonly Listed[] | null = null;
  /** The endpoint that the address names. */
  #wanted: string | null = null;
  /** The endpoint that is shown. */
  #endpoint: string | null = null;
  /** The endpoint that stays until another one is selected. */
  #chosen: string | null = null;
  #entry: Listed | null = null;
  #current: Snapshot | null = null;
  /** The current version as it was drawn last, and the one before. */
  #drawn: Version | null = null;
  #previous: Version | null = null;
  /** What the user has selected in the history: the version that is shown in place of the current one, and one to compare with. */
  #viewed: Version | null = null;
  #compared: Version | null = null;
  #problem = "";
  #copied: ReturnType<typeof setTimeout> | undefined;

  /** `list` is the part of the page with the catalogue, `root` the one with the endpoint. */
  constructor(desk: Desk, list: HTMLElement, root: HTMLElement, options: DataOptions) {
    super(desk, root);
    this.#options = options;
    this.#list = new EndpointList(list, options);
    const bytes = new BytesBody(find(root, ".kind.bytes"));
    this.#bodies = {
      series: new SeriesBody(root),
      document: new DocumentBody(find(root, ".tree"), find(root, ".objects"), find(root, ".show-differences")),
      bytes,
      notice: new NoticeBody(find(root, ".kind.notice")),
      collection: new CollectionBody(find(root, ".kind.collection"), {
        href: options.href,
        pick: options.pick,
        entry: (endpoint) => this.#find(endpoint),
        watch: (endpoint, take) => this.group.wantAny(endpoint, take),
        unwatch: (endpoint) => this.group.drop(endpoint),
      }),
    };
    this.#history = new History(find(root, ".history"), this.time(), {
      rest: options.rest,
      view: (version) => {
        this.#viewed = version;
        this.changed();
      },
      compare: (version) => {
        this.#compared = version;
        this.changed();
      },
    });
    new Upload(find(document, "#upload"), find(list, ".add"), () => document.documentElement.dataset.page === "data", options);
    find(root, ".download").addEventListener("click", () => bytes.download());
    find(root, ".copy").addEventListener("click", () => void this.#copy());
    find(root, ".leave").addEventListener("click", () => this.#history.leave());
    find(root, ".parent a").addEventListener("click", (event) => this.#goUp(event as MouseEvent));
  }

  /** Shows an endpoint; null: the one written last, once the catalogue is known. */
  select(endpoint: string | null): void {
    this.#wanted = endpoint;
    const shown = endpoint ?? this.#chosen ?? newest(this.#catalogue ?? []);
    // A list of an earlier visit does not know which endpoint was written last.
    this.#chosen = this.#catalogue?.some(({ version }) => version) ? shown : null;
    this.#list.select(shown);
    if (shown !== this.#endpoint) this.#follow(shown);
    this.#title();
  }

  /** The endpoints that there are. */
  list(catalogue: readonly Listed[]): void {
    this.#catalogue = catalogue;
    this.#list.list(catalogue);
    this.#entry = this.#find(this.#endpoint);
    this.select(this.#wanted);
    this.changed();
  }

  override repaint(): void {
    for (const body of Object.values(this.#bodies)) body.repaint?.();
  }

  protected override passed(): void {
    if (this.#shown) this.#body?.tick?.();
  }

  protected override time(): MarketTime {
    return this.#body?.time ?? marketTime(null);
  }

  protected override problem(): string {
    return this.#problem;
  }

  #find(wanted: string | null): Listed | null {
    return this.#catalogue?.find(({ endpoint, gone }) => endpoint === wanted && !gone) ?? null;
  }

  /** The version that is shown. */
  get #shown(): Version | null {
    return this.#viewed ?? this.#drawn;
  }

  /** The kind of what is shown, or of what is going to be; null while neither is known. */
  get #kind(): Kind | null {
    if (this.#shown) return kindOf(this.#shown.mediaType);
    return this.#endpoint?.endsWith("/") ? "collection" : this.#entry && kindIn(this.#entry);
  }

  get #body(): Body | null {
    const kind = this.#shown && this.#kind;
    return kind && this.#bodies[kind];
  }

  #follow(endpoint: string | null): void {
    this.group.clear();
    this.forget();
    for (const body of Object.values(this.#bodies)) body.clear();
    this.#endpoint = endpoint;
    this.#entry = this.#find(endpoint);
    this.#current = this.#drawn = this.#previous = this.#viewed = this.#compared = null;
    this.#problem = "";
    this.#history.select(endpoint ?? "");
    setData(this.root, "endpoint", endpoint ?? "");
    setData(this.root, "version", "");
    setText(find(this.root, ".copied"), "");
    if (endpoint !== null) {
      void this.#options.rest().then((rest) => endpoint === this.#endpoint && find(this.root, ".rest").setAttribute("href", `${rest}/data${endpoint}`), () => undefined);
      this.group.wantAny(
        endpoint,
        (snapshot) => this.#take(snapshot),
        (problem) => {
          this.#problem = problem;
          this.changed();
        },
      );
    }
    this.changed();
  }

  #take(snapshot: Snapshot): void {
    this.#problem = snapshot.gone ? "Deleted" : "";
    // What was deleted stays visible, dimmed: the new version has no content, but the old one does.
    const held = this.#current?.mediaType ? this.#current : { ...snapshot, mediaType: "" };
    this.#current = snapshot.gone ? { ...held, version: snapshot.version, time: snapshot.time, gone: true } : snapshot;
    if (this.#entry === null && !snapshot.gone && !snapshot.endpoint.endsWith("/")) this.#options.unlisted();
    this.accepted(snapshot);
  }

  #title(): void {
    this.#options.titled(this.#entry?.title || this.#endpoint || "Data");
  }

  protected draw(): void {
    const isNew = this.#advance();
    const [shown, kind] = [this.#shown, this.#kind];
    const base = this.#compared ?? (this.#viewed ? null : this.#previous);
    setData(this.root, "version", this.#current ? String(this.#current.version) : "");
    for (const part of this.root.querySelectorAll<HTMLElement>(".kind")) part.hidden = shown === null || !part.classList.contains(kind ?? "");
    if (shown && this.#endpoint !== null) {
      this.#body?.show({
        endpoint: this.#endpoint,
        entry: this.#entry,
        version: shown,
        base: base && kindOf(base.mediaType) === kind ? base : null,
        isCompared: this.#compared !== null,
        isNew: isNew && this.#viewed === null,
      });
    }
    this.#showHead(kind, shown);
    this.#showWhich(shown);
    this.#showCode(kind, shown?.mediaType ?? this.#entry?.mediaType ?? "");
    this.explain(shown || this.#endpoint === null ? "" : waiting(this.#problem));
    if (this.#current) this.#history.changed(this.#current.version, this.time());
  }

  /** Draws the newest version from now on; true if its content is newer than what was drawn. */
  #advance(): boolean {
    const [next, drawn] = [this.#current, this.#drawn];
    if (next === null || next.version === drawn?.version || (next.gone && next.mediaType === "")) return false;
    const { version, time, mediaType, value, gone } = next;
    this.#drawn = { version, at: Date.parse(time) || version, mediaType, value };
    if (drawn === null || gone) return false; // of a deleted one the content is that of the version before, with its marks
    this.#previous = drawn;
    return true;
  }

  #showHead(kind: Kind | null, shown: Version | null): void {
    const { title = "", area = "", quantity = "" } = this.#entry ?? {};
    setText(find(this.root, "h2"), title || this.#endpoint || "Your data");
    setText(find(this.root, ".endpoint-name"), title ? (this.#endpoint ?? "") : "");
    setText(find(this.root, ".endpoint-facts"), [area, quantity.replaceAll("_", " "), ...this.#facts(kind, shown)].filter(Boolean).join(" · "));
    setText(find(this.root, ".timezone"), shown && kind === "series" ? `Times in ${this.time().label(shown.at)}` : "");
    find(this.root, ".chart").ariaLabel = `Chart of ${title || this.#endpoint || "nothing"}`;
    const isCollection = kind === "collection";
    for (const part of this.root.querySelectorAll<HTMLElement>(".endpoint-actions, .unfold, .foot")) part.hidden = this.#endpoint === null;
    if (isCollection) find(this.root, ".history").hidden = true;
    find(this.root, ".start").hidden = this.#endpoint !== null || this.#catalogue === null;
    const up = parentOf(this.#endpoint ?? "");
    const parent = find(this.root, ".parent");
    parent.hidden = up === "";
    setText(find(parent, "a"), up);
    if (up) find(parent, "a").setAttribute("href", this.#options.href(up));
  }

  #facts(kind: Kind | null, shown: Version | null): string[] {
    if (kind === "series") {
      const { unit = "", resolution = "", points } = (shown?.value ?? this.#entry ?? {}) as Partial<Series>;
      return [written(unit), every(resolution), points ? `${points.length} ${points.length === 1 ? "value" : "values"}` : ""];
    }
    if (kind === null) return [];
    const words = kindWords(kind, shown?.mediaType ?? this.#entry?.mediaType);
    if (kind === "collection") {
      const { members } = (shown?.value ?? {}) as { members?: unknown[] };
      return [words, members ? `${members.length} ${members.length === 1 ? "member" : "members"}` : ""];
    }
    return [words, kind === "bytes" && shown ? sizeWords(sizeOf(shown.value)) : ""];
  }

  /** Which version is shown, and what its marks mean. */
  #showWhich(shown: Version | null): void {
    const words = ({ at }: Version): string => `the version of ${this.time().fullDate(at)} ${this.time().clockSeconds(at)}`;
    const old = find(this.root, ".old-version");
    old.hidden = this.#viewed === null;
    if (this.#viewed) setText(find(old, "span"), `This is ${words(this.#viewed)}, not the current one.`);
    const differences = shown ? (this.#body?.differences ?? "") : "";
    const line = find(this.root, ".differences");
    line.hidden = differences === "";
    const since = this.#compared ? `Compared with ${words(this.#compared)}` : "With the last update";
    setText(find(line, "span"), differences && `${since}: ${differences}`);
  }

  #showCode(kind: Kind | null, mediaType: string): void {
    if (this.#endpoint === null) return;
    setText(find(this.root, ".sdk code"), snippet(new URL("./diem.js", document.baseURI).pathname, this.#endpoint, kind ?? "series", mediaType));
    setText(find(this.root, ".rest"), kind === "bytes" ? "Open its URL" : "Open as JSON");
    find(this.root, ".download").hidden = kind !== "bytes" || this.#shown === null;
  }

  #goUp(event: MouseEvent): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    this.#options.pick(parentOf(this.#endpoint ?? ""));
  }

  async #copy(): Promise<void> {
    find<HTMLDetailsElement>(this.root, ".sdk").open = true; // what was copied is seen, and can be selected by hand
    const isCopied = await copyText(find(this.root, ".sdk code"));
    const note = find(this.root, ".copied");
    clearTimeout(this.#copied);
    setText(note, isCopied ? "Copied" : "Selected: copy it with Ctrl+C or ⌘C");
    // Keep the remaining instruction until something else is selected or copied.
    if (isCopied) this.#copied = setTimeout(() => setText(note, ""), COPIED_MS);
  }
}

/** The reason for missing data, with the remedy. */
const waiting = (problem: string): string => (problem === "Not in the catalogue" ? "Not in the catalogue yet: it appears here as soon as it is written." : problem);
