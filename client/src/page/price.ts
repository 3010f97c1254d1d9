/** The price view: one zone's day-ahead curve by day, the current price, and the day's low, average and high. */

import type { Dataset } from "../sdk/index.ts";
import { PriceChart } from "./chart.ts";
import type { DaysInSight } from "./daybar.ts";
import { DayBar } from "./daybar.ts";
import { daysOf, defaultDay, stepsOf } from "./days.ts";
import { find, flash, setData, setText } from "./dom.ts";
import { interval, price, unit } from "./format.ts";
import type { Step } from "./series.ts";
import { stepAt, steps, summary } from "./series.ts";
import type { MarketTime } from "./time.ts";
import { marketTime, shiftDay } from "./time.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";

const SIGNS = { up: "▲", down: "▼", flat: "■" };

export class PriceView extends View {
  readonly #chart: PriceChart;
  readonly #value: HTMLElement;
  readonly #bar: DayBar;
  readonly #onDay: (day: string | null) => void;
  #endpoint = "";
  #name = "";
  #time = marketTime(null);
  #dataset: Dataset | null = null;
  #steps: Step[] = [];
  #days: string[] = [];
  /** The day that the user selected; null: the current one. */
  #picked: string | null = null;
  #shown: Step[] = [];
  #problem = "";
  #pointed: Step | null = null;

  /** `onDay` is called with the day that the user selects; null is today. */
  constructor(desk: Desk, root: HTMLElement, onDay: (day: string | null) => void) {
    super(desk, root);
    this.#onDay = onDay;
    this.#value = find(root, ".now-value");
    this.#chart = new PriceChart(
      find(root, ".chart"),
      (step) => {
        this.#pointed = step;
        this.#showFigure();
      },
      (step) => (step ? this.#words(step) : this.#wordsOfDay()),
    );
    const inSight = (): DaysInSight => ({ day: this.#day, days: this.#days, time: this.#time });
    this.#bar = new DayBar(find(root, ".days"), find(root, ".chart"), inSight, (day) => this.#pick(day));
  }

  /** Shows another endpoint; `name` is its title, `zone` determines its clock. */
  select(endpoint: string, name: string, zone: string | null): void {
    this.#name = name;
    if (endpoint === this.#endpoint) return;
    this.group.clear();
    this.#endpoint = endpoint;
    this.#time = marketTime(zone);
    this.#dataset = null;
    this.#pointed = null;
    this.#problem = "";
    this.forget();
    setData(this.root, "endpoint", endpoint);
    setData(this.root, "version", "");
    this.group.want(
      endpoint,
      (dataset) => this.#take(dataset),
      (problem) => {
        this.#problem = problem;
        this.changed();
      },
    );
    this.changed();
  }

  /** Shows a day; null: the current one. */
  showDay(day: string | null): void {
    if (day === this.#picked) return;
    this.#picked = day;
    this.#pointed = null;
    this.changed();
  }

  /** Announces a text to assistive technology. */
  say(text: string): void {
    this.#bar.say(text);
  }

  override repaint(): void {
    this.#chart.repaint();
  }

  /** Updates the current price, the marker, and at midnight the day. */
  protected override passed(): void {
    if (this.#shown[0] && this.#day !== this.#time.dayOf(this.#shown[0].start)) return this.changed();
    this.#showFigure();
    this.#chart.tick();
  }

  protected override time(): MarketTime {
    return this.#time;
  }

  protected override problem(): string {
    return this.#problem;
  }

  get #day(): string {
    return this.#picked ?? defaultDay(this.#steps, Date.now(), this.#time);
  }

  #take(dataset: Dataset): void {
    this.#problem = dataset.gone ? "Withdrawn by its source" : "";
    // A deleted curve stays visible, dimmed: the new version has no points, the old one has.
    this.#dataset = dataset.gone && this.#dataset ? { ...dataset, points: this.#dataset.points } : dataset;
    this.accepted(dataset);
  }

  /** The user selected a day: it is announced once, and later updates are not. */
  #pick(day: string | null): void {
    this.#picked = day;
    this.#pointed = null;
    this.#onDay(day);
    this.#read();
    this.changed();
    this.#bar.say(`${this.#time.dayName(this.#day, true)}: ${this.#wordsOfDay()}`);
  }

  #read(): void {
    this.#steps = this.#dataset ? steps(this.#dataset) : [];
    this.#days = daysOf(this.#steps, this.#time);
    this.#shown = stepsOf(this.#steps, this.#day, this.#time);
  }

  protected draw(): void {
    const known = this.root.dataset.version;
    setData(this.root, "version", this.#dataset ? String(this.#dataset.version) : "");
    const before = this.#value.textContent;
    this.#read();
    const day = this.#day;
    const facts = summary(this.#shown);
    const fact = (name: string, value: number | null | undefined, when: string): void => {
      setText(find(this.root, `.${name} b`), value == null ? "–" : price(value));
      setText(find(this.root, `.${name} i`), when);
    };
    fact("low", facts?.low.value, facts ? this.#time.clock(facts.low.start) : "");
    fact("mean", facts?.mean, "");
    fact("high", facts?.high.value, facts ? this.#time.clock(facts.high.start) : "");
    setText(find(this.root, ".now-unit"), unit(this.#dataset?.unit ?? ""));
    setText(find(this.root, ".timezone"), `Times in ${this.#time.label(this.#time.startOf(day))}`);
    find(this.root, ".chart").ariaLabel = `Price curve of ${this.#name}`;
    this.#chart.show(this.#shown, this.#time.startOf(day), this.#time.startOf(shiftDay(day, 1)), this.#time);
    this.#bar.show();
    this.#showGap(day);
    this.#showFigure();
    if (known && this.#value.textContent !== before) flash(this.#value);
  }

  /** Explains why the chart is empty, and which day has data. */
  #showGap(day: string): void {
    const [first, last] = [this.#days[0], this.#days.at(-1)];
    const range = first && last ? ` The data has ${this.#time.dayName(first)}${first === last ? "" : ` to ${this.#time.dayName(last)}`}.` : "";
    const gap = this.#shown.length === 0 ? `No prices for ${this.#time.dayName(day)}.${range}` : "";
    this.explain(this.#dataset ? gap : this.#problem.replace(/^N(ot .*)$/, `${this.#endpoint} is n$1. "Data" has all endpoints.`));
  }

  #words(step: Step): string {
    const value = step.value === null ? "no price" : `${price(step.value)} ${unit(this.#dataset?.unit ?? "")}`;
    return `${interval(step.start, step.end, "pointed", this.#time)}: ${value}`;
  }

  #wordsOfDay(): string {
    const facts = summary(this.#shown);
    if (!facts) return "no prices";
    const name = unit(this.#dataset?.unit ?? "");
    return `from ${price(facts.low.value ?? 0)} to ${price(facts.high.value ?? 0)}, average ${price(facts.mean)} ${name}`;
  }

  /** The large figure: the price at the cursor, otherwise the current one. */
  #showFigure(): void {
    const found = stepAt(this.#steps, Date.now());
    const step = this.#pointed ?? found?.step ?? null;
    const before = this.#steps.findLast(({ start }) => start < (step?.start ?? 0))?.value ?? null;
    setText(this.#value, step?.value == null ? "–" : price(step.value));
    setData(this.root, "pointed", String(this.#pointed !== null));
    const kind = this.#pointed ? "pointed" : found?.current ? "now" : "latest";
    setText(find(this.root, ".interval"), step ? interval(step.start, step.end, kind, this.#time) : "");
    const change = step?.value == null || before === null ? null : step.value - before;
    const delta = find(this.root, ".delta");
    const way = change === null || change === 0 ? "flat" : change > 0 ? "up" : "down";
    setData(delta, "way", way);
    setText(find(delta, ".sign"), change === null ? "" : SIGNS[way]);
    setText(find(delta, ".sr"), change === null ? "" : `${way} `);
    setText(find(delta, ".by"), change === null ? "" : price(Math.abs(change)));
  }
}
