/** The price view: one zone's day-ahead curve by day, the price that counts now, and the day's low, average and high. */

import type { Dataset } from "../sdk/index.ts";
import { PriceChart } from "./chart.ts";
import type { DayStep } from "./days.ts";
import { daysOf, defaultDay, neighbours, stepsOf } from "./days.ts";
import { find, flash, setData, setText } from "./dom.ts";
import { interval, price, unit } from "./format.ts";
import type { Step } from "./series.ts";
import { stepAt, steps, summary } from "./series.ts";
import type { MarketTime } from "./time.ts";
import { marketTime, shiftDay } from "./time.ts";
import type { Desk } from "./view.ts";
import { View } from "./view.ts";

export class PriceView extends View {
  readonly #chart: PriceChart;
  readonly #value: HTMLElement;
  readonly #said: HTMLElement;
  readonly #onDay: (day: string | null) => void;
  #endpoint = "";
  #name = "";
  #time = marketTime(null);
  #dataset: Dataset | null = null;
  #steps: Step[] = [];
  #days: string[] = [];
  /** The day somebody picked; null follows now. */
  #picked: string | null = null;
  #shown: Step[] = [];
  #problem = "";
  #pointed: Step | null = null;

  /** `onDay` hears of the day that somebody picks; null is today, whichever that is. */
  constructor(desk: Desk, root: HTMLElement, onDay: (day: string | null) => void) {
    super(desk, root);
    this.#onDay = onDay;
    this.#value = find(root, ".now-value");
    this.#said = find(root, ".day-said");
    this.#chart = new PriceChart(
      find(root, ".chart"),
      (step) => {
        this.#pointed = step;
        this.#showFigure();
      },
      (step) => (step ? this.#words(step) : this.#wordsOfDay()),
    );
    for (const name of ["previous", "next"] as const) {
      find(root, `.day-${name}`).addEventListener("click", () => this.#go(this.#around()[name]));
    }
    find(root, ".day-today").addEventListener("click", () => this.#pick(null));
    find(root, ".chart").addEventListener("keydown", (event) => {
      const step = { PageUp: "previous", PageDown: "next" }[event.key] as "previous" | "next" | undefined;
      if (step === undefined) return;
      event.preventDefault();
      this.#go(this.#around()[step]);
    });
  }

  /** Shows another endpoint; `name` is what people call it, `zone` whose clock it follows. */
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

  /** Shows a day, or the one of now for null. */
  showDay(day: string | null): void {
    if (day === this.#picked) return;
    this.#picked = day;
    this.#pointed = null;
    this.changed();
  }

  override repaint(): void {
    this.#chart.repaint();
  }

  /** The price that counts now, the marker, and at midnight the day. */
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

  #around(): { previous: DayStep; next: DayStep } {
    return neighbours(this.#day, this.#days);
  }

  #take(dataset: Dataset): void {
    this.#problem = dataset.gone ? "Withdrawn by its source" : "";
    // A withdrawn curve stays in sight, dimmed: the version says what was withdrawn, the points what it was.
    this.#dataset = dataset.gone && this.#dataset ? { ...dataset, points: this.#dataset.points } : dataset;
    this.accepted(dataset);
  }

  #go({ day, open }: DayStep): void {
    if (open) this.#pick(day === this.#time.dayOf(Date.now()) ? null : day);
    else setText(this.#said, `No prices for ${this.#time.dayName(day, true)}`);
  }

  /** Somebody chose a day: it is said once, and nothing is said of the updates that follow. */
  #pick(day: string | null): void {
    this.#picked = day;
    this.#pointed = null;
    this.#onDay(day);
    this.#read();
    this.changed();
    setText(this.#said, `${this.#time.dayName(this.#day, true)}: ${this.#wordsOfDay()}`);
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
    this.#showDays(day);
    this.#showFigure();
    if (known && this.#value.textContent !== before) flash(this.#value);
  }

  #showDays(day: string): void {
    const today = this.#time.dayOf(Date.now());
    setText(find(this.root, ".day-name"), this.#time.dayName(day));
    const around = this.#around();
    for (const name of ["previous", "next"] as const) {
      const { day: other, open } = around[name];
      const label = `${name === "previous" ? "Previous" : "Next"} day, ${this.#time.dayName(other, true)}${open ? "" : ": not in the data"}`;
      const button = find(this.root, `.day-${name}`);
      if (button.ariaLabel !== label) button.ariaLabel = button.title = label;
      if (button.ariaDisabled !== String(!open)) button.ariaDisabled = String(!open);
    }
    find(this.root, ".day-today").ariaPressed = String(day === today);
    const [first, last] = [this.#days[0], this.#days.at(-1)];
    const range = first && last ? ` The data has ${this.#time.dayName(first)}${first === last ? "" : ` to ${this.#time.dayName(last)}`}.` : "";
    this.explain(this.#dataset && this.#shown.length === 0 ? `No prices for ${this.#time.dayName(day)}.${range}` : "");
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

  /** The large figure: the price now, or the one under the cursor. */
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
    setText(delta, change === null ? "" : `${change > 0 ? "▲" : change < 0 ? "▼" : "■"} ${price(Math.abs(change))}`);
    setData(delta, "way", change === null || change === 0 ? "flat" : change > 0 ? "up" : "down");
  }
}
