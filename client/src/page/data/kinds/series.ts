/** A series: its chart, its figures and its values, and behind them another version. */

import type { Series } from "../../../sdk/index.ts";
import { find, flash, make, setData, setNumber, setText } from "../../dom.ts";
import { unit as written } from "../../format.ts";
import { writeNumber } from "../../rows.ts";
import type { Step } from "../../series.ts";
import { beneath, stepAt, steps, summary } from "../../series.ts";
import type { MarketTime } from "../../time.ts";
import { marketTime } from "../../time.ts";
import type { Body, Shown } from "../body.ts";
import { SeriesChart } from "../chart.ts";
import { Pager } from "../pager.ts";
import { clockOf, digitsOf, figure, spanWords, startWords } from "../values.ts";

/** Rows of the table at once. */
const ROWS = 24;
const NOTHING: Series = { unit: "", resolution: "", points: [] };

export class SeriesBody implements Body {
  time: MarketTime = marketTime(null);
  readonly differences = "";
  readonly #root: HTMLElement;
  readonly #chart: SeriesChart;
  readonly #pager: Pager;
  readonly #value: HTMLElement;
  #shown: Shown | null = null;
  #series = NOTHING;
  #steps: Step[] = [];
  #older: readonly Step[] | null = null;
  #digits = 0;
  #pointed: Step | null = null;

  /** `root` is the view, which has the large figure beside its title. */
  constructor(root: HTMLElement) {
    this.#root = root;
    this.#value = find(root, ".now-value");
    this.#chart = new SeriesChart(
      find(root, ".chart"),
      (step) => {
        this.#pointed = step;
        this.#showFigure();
      },
      (step) => (step ? this.#words(step) : this.#wordsOfAll()),
    );
    this.#pager = new Pager(find(root, ".values .pager"), ROWS, () => this.#showTable());
  }

  clear(): void {
    this.#shown = this.#pointed = this.#older = null;
    this.#pager.turnTo(0);
  }

  show(shown: Shown): void {
    const { entry, version, base, isCompared, isNew } = shown;
    const before = this.#value.textContent;
    this.#shown = shown;
    this.#series = version.value as Series;
    this.#steps = steps(this.#series);
    this.#older = isCompared && base ? steps(base.value as Series) : null;
    this.#digits = digitsOf(this.#steps);
    this.time = clockOf(entry ?? {}, this.#series.resolution, this.#steps);
    const unit = written(this.#series.unit);
    setText(find(this.#root, ".now-unit"), unit);
    setText(find(this.#root, ".value-unit"), unit || "Value");
    this.#showSummary();
    this.#showChart();
    this.#showTable();
    this.#showFigure();
    if (isNew && this.#value.textContent !== before) flash(this.#value);
  }

  tick(): void {
    this.#showFigure();
    this.#chart.tick();
  }

  repaint(): void {
    this.#chart.repaint();
  }

  #showSummary(): void {
    const facts = summary(this.#steps);
    const fact = (name: string, step: Step | undefined): void => {
      setNumber(find(this.#root, `.${name} b`), step?.value == null ? "–" : figure(step.value, this.#digits));
      setText(find(this.#root, `.${name} i`), step ? startWords(step, this.#series.resolution, this.time) : "");
    };
    fact("low", facts?.low);
    setNumber(find(this.#root, ".mean b"), facts ? figure(facts.mean, this.#meanDigits) : "–");
    fact("high", facts?.high);
    find(this.#root, ".summary").hidden = facts === null;
  }

  #showChart(): void {
    const isEmpty = this.#steps.every(({ value }) => value === null);
    find(this.#root, ".chart").hidden = isEmpty;
    find(this.#root, ".no-values").hidden = !isEmpty;
    // Without a size there is nothing to draw on.
    if (!isEmpty) this.#chart.show(this.#steps, this.#older, this.time);
    find(this.#root, ".keys").hidden = this.#older === null;
    if (this.#older) setText(find(this.#root, ".keys .line-forecast"), `Version of ${this.#baseWords}`);
  }

  /** The values, the newest first, a page at a time. */
  #showTable(): void {
    const { from, to } = this.#pager.show(this.#steps.length);
    const end = this.#steps.length;
    const rows = this.#steps.slice(end - to, end - from).reverse();
    const body = find(this.#root, ".values tbody");
    const older = this.#older;
    find(this.#root, ".values").hidden = end === 0;
    find(this.#root, ".values thead .then").hidden = older === null;
    setText(find(this.#root, ".values thead .then"), older ? this.#baseWords : "");
    rows.forEach((step, index) => {
      const row = (body.children[index] ?? body.appendChild(emptyRow())) as HTMLElement;
      const [when, value, then] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
      const isOther = setText(when, startWords(step, this.#series.resolution, this.time));
      writeNumber(value, step.value, (number) => figure(number, this.#digits), !isOther);
      then.hidden = older === null;
      if (older) writeNumber(then, beneath(older, step.start)?.value ?? null, (number) => figure(number, this.#digits), false);
    });
    while (body.children.length > rows.length) body.lastElementChild?.remove();
  }

  get #baseWords(): string {
    const at = this.#shown?.base?.at ?? 0;
    return `${this.time.fullDate(at)} ${this.time.clockSeconds(at)}`;
  }

  /** The large figure: the value at the cursor, otherwise the current or the latest one. */
  #showFigure(): void {
    const found = stepAt(this.#steps, Date.now());
    const step = this.#pointed ?? found?.step ?? null;
    setNumber(this.#value, step?.value == null ? "–" : figure(step.value, this.#digits));
    setData(this.#root, "pointed", String(this.#pointed !== null));
    const when = step ? spanWords(step, this.#series.resolution, this.time) : "";
    const kind = this.#pointed ? "" : found?.current ? "now, " : "latest, ";
    setText(find(this.#root, ".interval"), step ? `${kind}${when}` : "");
  }

  /** The mean of whole numbers is none. */
  get #meanDigits(): number {
    return Math.max(this.#digits, 1);
  }

  #words(step: Step): string {
    const value = step.value === null ? "no value" : `${figure(step.value, this.#digits)} ${written(this.#series.unit)}`.trimEnd();
    return `${spanWords(step, this.#series.resolution, this.time)}: ${value}`;
  }

  #wordsOfAll(): string {
    const facts = summary(this.#steps);
    if (!facts) return "no values";
    const [low, high] = [facts.low, facts.high].map(({ value }) => figure(value ?? 0, this.#digits));
    return `from ${low} to ${high}, average ${figure(facts.mean, this.#meanDigits)} ${written(this.#series.unit)}`.trimEnd();
  }
}

function emptyRow(): HTMLElement {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  row.append(head, make("td", "num", "–"), make("td", "num then", "–"));
  return row;
}
