/** The price view: one zone's day-ahead curve, the price that counts now, and the day's low, average and high. */

import type { Dataset, Diem, Subscription } from "../sdk/index.ts";
import { PriceChart } from "./chart.ts";
import { find, flash, setData, setText } from "./dom.ts";
import { clock, interval, price, unit, weekday } from "./format.ts";
import { Freshness } from "./freshness.ts";
import type { Step } from "./series.ts";
import { spansDays, stepAt, steps, summary } from "./series.ts";

export class PriceView {
  readonly #diem: Diem;
  readonly #root: HTMLElement;
  readonly #chart: PriceChart;
  readonly #freshness: Freshness;
  readonly #value: HTMLElement;
  #stop: Subscription = () => undefined;
  #endpoint = "";
  #name = "";
  #dataset: Dataset | null = null;
  #steps: Step[] = [];
  #problem = "";
  #pointed: Step | null = null;

  constructor(diem: Diem, root: HTMLElement) {
    this.#diem = diem;
    this.#root = root;
    this.#value = find(root, ".now-value");
    this.#freshness = new Freshness(diem, root);
    this.#chart = new PriceChart(find(root, ".chart"), (step) => {
      this.#pointed = step;
      this.#showFigure();
    });
  }

  get endpoint(): string {
    return this.#endpoint;
  }

  /** Shows another endpoint; `name` is what people call it. */
  select(endpoint: string, name: string): void {
    this.#name = name;
    if (endpoint === this.#endpoint) return;
    this.#stop();
    this.#endpoint = endpoint;
    this.#dataset = null;
    this.#pointed = null;
    this.#problem = "";
    setData(this.#root, "endpoint", endpoint);
    setData(this.#root, "version", "");
    this.#show();
    this.#stop = this.#diem.watch(
      endpoint,
      (dataset) => this.#take(dataset),
      (problem) => {
        this.#problem = "status" in problem && problem.status === 404 ? "Not in the catalogue" : problem.message;
        this.tick();
      },
    );
  }

  /** The colours changed. */
  repaint(): void {
    this.#chart.repaint();
  }

  /** Time has passed: the age, the price that counts now, the marker. */
  tick(): void {
    const accepted = this.#dataset ? Date.parse(this.#dataset.time) || this.#dataset.version : null;
    this.#freshness.show([this.#endpoint], accepted, this.#problem);
    this.#showFigure();
    this.#chart.tick();
  }

  #take(dataset: Dataset): void {
    const first = this.#dataset === null;
    this.#problem = dataset.gone ? "Withdrawn by its source" : "";
    // A withdrawn curve stays in sight, dimmed: the version says what was withdrawn, the points what it was.
    this.#dataset = dataset.gone && this.#dataset ? { ...dataset, points: this.#dataset.points } : dataset;
    setData(this.#root, "version", String(dataset.version));
    const before = this.#value.textContent;
    this.#show();
    if (!first && this.#value.textContent !== before) flash(this.#value);
  }

  #show(): void {
    this.#steps = this.#dataset ? steps(this.#dataset) : [];
    const facts = summary(this.#steps);
    const fact = (name: string, value: number | undefined, when: string): void => {
      setText(find(this.#root, `.${name} b`), value === undefined ? "–" : price(value));
      setText(find(this.#root, `.${name} i`), when);
    };
    const when = ({ start }: Step): string => (spansDays(this.#steps) ? `${weekday(start)} ${clock(start)}` : clock(start));
    fact("low", facts?.low.value ?? undefined, facts ? when(facts.low) : "");
    fact("mean", facts?.mean, "");
    fact("high", facts?.high.value ?? undefined, facts ? when(facts.high) : "");
    setText(find(this.#root, ".now-unit"), unit(this.#dataset?.unit ?? ""));
    this.#chart.show(this.#steps);
    const range = facts ? `from ${price(facts.low.value ?? 0)} to ${price(facts.high.value ?? 0)} ${unit(this.#dataset?.unit ?? "")}` : "no data yet";
    find(this.#root, ".chart").setAttribute("aria-label", `Price curve of ${this.#name}, ${range}. Arrow keys read single hours.`);
    this.tick();
  }

  /** The large figure: the price now, or the one under the cursor. */
  #showFigure(): void {
    const found = stepAt(this.#steps, Date.now());
    const step = this.#pointed ?? found?.step ?? null;
    const before = this.#steps[(step ? this.#steps.indexOf(step) : 0) - 1]?.value ?? null;
    setText(this.#value, step?.value == null ? "–" : price(step.value));
    setData(this.#root, "pointed", String(this.#pointed !== null));
    const kind = this.#pointed ? "pointed" : found?.current ? "now" : "latest";
    setText(find(this.#root, ".interval"), step ? interval(step.start, step.end, kind) : "");
    const change = step?.value == null || before === null ? null : step.value - before;
    const delta = find(this.#root, ".delta");
    setText(delta, change === null ? "" : `${change > 0 ? "▲" : change < 0 ? "▼" : "■"} ${price(Math.abs(change))}`);
    setData(delta, "way", change === null || change === 0 ? "flat" : change > 0 ? "up" : "down");
  }
}
