/**
 * The page "Data": the catalogue, and one endpoint of it with chart, figures, values, history and the code that shows it.
 * Reading order: `search`, `values`, `snippet`, which are pure; then `pager`, `list`, `chart`, `history`, `copy`, and this module,
 * which is loaded with the others when the page is first shown.
 */

import "./data.css";
import type { Dataset } from "../../sdk/index.ts";
import { find, flash, make, setData, setNumber, setText } from "../dom.ts";
import { unit as written } from "../format.ts";
import { writeNumber } from "../rows.ts";
import type { Step } from "../series.ts";
import { beneath, stepAt, steps, summary } from "../series.ts";
import type { MarketTime } from "../time.ts";
import { marketTime } from "../time.ts";
import type { Desk } from "../view.ts";
import { View } from "../view.ts";
import type { Listed } from "../zones.ts";
import { SeriesChart } from "./chart.ts";
import { copyText } from "./copy.ts";
import type { Older } from "./history.ts";
import { History } from "./history.ts";
import { EndpointList } from "./list.ts";
import { Pager } from "./pager.ts";
import { newest } from "./search.ts";
import { snippet } from "./snippet.ts";
import { clockOf, digitsOf, every, figure, isDaily, spanWords, startWords } from "./values.ts";

/** Rows of the table at once. */
const ROWS = 24;
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
  readonly #chart: SeriesChart;
  readonly #history: History;
  readonly #pager: Pager;
  readonly #value: HTMLElement;
  /** Null while it is not known. */
  #catalogue: readonly Listed[] | null = null;
  /** The endpoint that the address names. */
  #wanted: string | null = null;
  /** The endpoint that is shown. */
  #endpoint: string | null = null;
  /** The endpoint that stays until another one is selected. */
  #chosen: string | null = null;
  #entry: Listed | null = null;
  #dataset: Dataset | null = null;
  #steps: Step[] = [];
  #older: Older | null = null;
  #digits = 0;
  #time = marketTime(null);
  #pointed: Step | null = null;
  #problem = "";
  #copied: ReturnType<typeof setTimeout> | undefined;

  /** `list` is the part of the page with the catalogue, `root` the one with the endpoint. */
  constructor(desk: Desk, list: HTMLElement, root: HTMLElement, options: DataOptions) {
    super(desk, root);
    this.#options = options;
    this.#value = find(root, ".now-value");
    this.#list = new EndpointList(list, options);
    this.#chart = new SeriesChart(
      find(root, ".chart"),
      (step) => {
        this.#pointed = step;
        this.#showFigure();
      },
      (step) => (step ? this.#words(step) : this.#wordsOfAll()),
    );
    this.#history = new History(find(root, ".history"), this.#time, {
      rest: options.rest,
      compare: (older) => {
        this.#older = older;
        this.changed();
      },
    });
    this.#pager = new Pager(find(root, ".pager"), ROWS, () => this.changed());
    find(root, ".copy").addEventListener("click", () => void this.#copy());
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
    this.#entry = this.#find();
    this.select(this.#wanted);
    this.changed();
  }

  override repaint(): void {
    this.#chart.repaint();
  }

  protected override passed(): void {
    this.#showFigure();
    this.#chart.tick();
  }

  protected override time(): MarketTime {
    return this.#time;
  }

  protected override problem(): string {
    return this.#problem;
  }

  #find(): Listed | null {
    return this.#catalogue?.find(({ endpoint, gone }) => endpoint === this.#endpoint && !gone) ?? null;
  }

  #follow(endpoint: string | null): void {
    this.group.clear();
    this.forget();
    this.#endpoint = endpoint;
    this.#entry = this.#find();
    this.#dataset = this.#older = this.#pointed = null;
    this.#problem = "";
    this.#pager.turnTo(0);
    this.#history.select(endpoint ?? "");
    setData(this.root, "endpoint", endpoint ?? "");
    setData(this.root, "version", "");
    setText(find(this.root, ".copied"), "");
    if (endpoint !== null) {
      setText(find(this.root, ".sdk code"), snippet(new URL("./diem.js", document.baseURI).pathname, endpoint));
      void this.#options.rest().then((rest) => endpoint === this.#endpoint && find(this.root, ".rest").setAttribute("href", `${rest}/data${endpoint}`), () => undefined);
      this.group.want(
        endpoint,
        (dataset) => this.#take(dataset),
        (problem) => {
          this.#problem = problem;
          this.changed();
        },
      );
    }
    this.changed();
  }

  #take(dataset: Dataset): void {
    this.#problem = dataset.gone ? "Deleted" : "";
    // Deleted data stays visible, dimmed: the new version has no points, but the old one does.
    this.#dataset = dataset.gone && this.#dataset ? { ...dataset, points: this.#dataset.points } : dataset;
    if (this.#entry === null && !dataset.gone) this.#options.unlisted();
    this.accepted(dataset);
  }

  #title(): void {
    this.#options.titled(this.#entry?.title || this.#endpoint || "Data");
  }

  protected draw(): void {
    const { unit = "", resolution = "" } = this.#dataset ?? this.#entry ?? {};
    const known = this.root.dataset.version;
    const before = this.#value.textContent;
    this.#steps = this.#dataset ? steps(this.#dataset) : [];
    this.#digits = digitsOf(this.#steps);
    this.#time = clockOf(this.#entry?.area ?? "", resolution, this.#steps);
    setData(this.root, "version", this.#dataset ? String(this.#dataset.version) : "");
    this.#showHead(unit, resolution);
    this.#showSummary();
    this.#showChart();
    this.#showTable(unit, resolution);
    if (this.#dataset) this.#history.changed(this.#dataset.version, this.#time);
    this.#showFigure();
    if (known && this.#value.textContent !== before) flash(this.#value);
  }

  #showHead(unit: string, resolution: string): void {
    const { title = "", area = "", quantity = "" } = this.#entry ?? {};
    setText(find(this.root, "h2"), title || this.#endpoint || "Your data");
    const name = find(this.root, ".series-name");
    setText(name, title ? (this.#endpoint ?? "") : "");
    const count = this.#steps.length;
    const facts = [area, quantity.replaceAll("_", " "), written(unit), every(resolution), this.#dataset ? `${count} ${count === 1 ? "value" : "values"}` : ""];
    setText(find(this.root, ".series-facts"), facts.filter(Boolean).join(" · "));
    setText(find(this.root, ".now-unit"), written(unit));
    setText(find(this.root, ".timezone"), this.#steps.length > 0 ? `Times in ${this.#time.label(this.#steps[0]?.start ?? 0)}` : "");
    find(this.root, ".chart").ariaLabel = `Chart of ${title || this.#endpoint || "nothing"}`;
    for (const part of this.root.querySelectorAll<HTMLElement>(".price-figure, .stage, .summary, .series-actions, .unfold, .foot, .values")) {
      part.hidden = this.#endpoint === null;
    }
    find(this.root, ".start").hidden = this.#endpoint !== null || this.#catalogue === null;
  }

  #showSummary(): void {
    const facts = summary(this.#steps);
    const fact = (name: string, step: Step | undefined): void => {
      setNumber(find(this.root, `.${name} b`), step?.value == null ? "–" : figure(step.value, this.#digits));
      setText(find(this.root, `.${name} i`), step ? startWords(step, isDaily(this.#dataset?.resolution ?? ""), this.#time) : "");
    };
    fact("low", facts?.low);
    setNumber(find(this.root, ".mean b"), facts ? figure(facts.mean, this.#meanDigits) : "–");
    fact("high", facts?.high);
    find(this.root, ".summary").hidden = facts === null;
  }

  #showChart(): void {
    const isEmpty = this.#steps.every(({ value }) => value === null);
    find(this.root, ".stage").hidden = this.#endpoint === null || (isEmpty && this.#dataset === null && this.#problem === "");
    const chart = find(this.root, ".chart");
    chart.hidden = isEmpty;
    this.explain(!isEmpty || this.#endpoint === null ? "" : this.#dataset ? "There are no values to chart." : waiting(this.#problem));
    // Without a size there is nothing to draw on.
    if (!isEmpty) this.#chart.show(this.#steps, this.#older?.steps ?? null, this.#time);
    const keys = find(this.root, ".keys");
    keys.hidden = this.#older === null;
    if (this.#older) setText(find(keys, ".line-forecast"), `Version of ${this.#time.fullDate(this.#older.at)} ${this.#time.clockSeconds(this.#older.at)}`);
  }

  /** The values, the newest first, a page at a time. */
  #showTable(unit: string, resolution: string): void {
    const daily = isDaily(resolution);
    const { from, to } = this.#pager.show(this.#steps.length);
    const end = this.#steps.length;
    const rows = this.#steps.slice(end - to, end - from).reverse();
    const body = find(this.root, ".values tbody");
    const older = this.#older;
    setText(find(this.root, ".value-unit"), written(unit) || "Value");
    find(this.root, ".values").hidden = end === 0;
    find(this.root, ".values thead .then").hidden = older === null;
    if (older) setText(find(this.root, ".values thead .then"), `${this.#time.fullDate(older.at)} ${this.#time.clockSeconds(older.at)}`);
    rows.forEach((step, index) => {
      const row = (body.children[index] ?? body.appendChild(emptyRow())) as HTMLElement;
      const [when, value, then] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
      const isOther = setText(when, startWords(step, daily, this.#time));
      writeNumber(value, step.value, (number) => figure(number, this.#digits), !isOther);
      then.hidden = older === null;
      if (older) writeNumber(then, beneath(older.steps, step.start)?.value ?? null, (number) => figure(number, this.#digits), false);
    });
    while (body.children.length > rows.length) body.lastElementChild?.remove();
  }

  /** The large figure: the value at the cursor, otherwise the current or the latest one. */
  #showFigure(): void {
    const found = stepAt(this.#steps, Date.now());
    const step = this.#pointed ?? found?.step ?? null;
    setNumber(this.#value, step?.value == null ? "–" : figure(step.value, this.#digits));
    setData(this.root, "pointed", String(this.#pointed !== null));
    const when = step ? spanWords(step, isDaily(this.#dataset?.resolution ?? ""), this.#time) : "";
    const kind = this.#pointed ? "" : found?.current ? "now, " : "latest, ";
    setText(find(this.root, ".interval"), step ? `${kind}${when}` : "");
  }

  /** The mean of whole numbers is none. */
  get #meanDigits(): number {
    return Math.max(this.#digits, 1);
  }

  #words(step: Step): string {
    const { unit = "", resolution = "" } = this.#dataset ?? {};
    const value = step.value === null ? "no value" : `${figure(step.value, this.#digits)} ${written(unit)}`.trimEnd();
    return `${spanWords(step, isDaily(resolution), this.#time)}: ${value}`;
  }

  #wordsOfAll(): string {
    const facts = summary(this.#steps);
    if (!facts) return "no values";
    const [low, high] = [facts.low, facts.high].map(({ value }) => figure(value ?? 0, this.#digits));
    return `from ${low} to ${high}, average ${figure(facts.mean, this.#meanDigits)} ${written(this.#dataset?.unit ?? "")}`.trimEnd();
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

function emptyRow(): HTMLElement {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  row.append(head, make("td", "num", "–"), make("td", "num then", "–"));
  return row;
}
