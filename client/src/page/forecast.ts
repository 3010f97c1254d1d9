/** The forecast view: the selected zone's load, its forecast, and how much they differ. */

import uPlot from "uplot";
import type { Moment } from "./deviation.ts";
import { columnsOf, deviationBound, loadRange, meanError, moments } from "./deviation.ts";
import { find, setData, setNumber, setText } from "./dom.ts";
import { dayInterval, interval, percent, power, unit as written } from "./format.ts";
import { Plot, stepped } from "./plot.ts";
import { Unfolded } from "./rows.ts";
import type { Step } from "./series.ts";
import { steps } from "./series.ts";
import { axisNumber, drawDot } from "./strokes.ts";
import type { MarketTime } from "./time.ts";
import { marketTime } from "./time.ts";
import type { Desk } from "./view.ts";
import { behind } from "./units.ts";
import { View } from "./view.ts";
import type { LoadRow } from "./zones.ts";

const text = (value: number | null, format: (value: number) => string): string => (value === null ? "–" : format(value));

export class ForecastView extends View {
  readonly #plot: Plot;
  readonly #table: Unfolded;
  #name = "";
  #time = marketTime(null);
  #endpoints = "";
  #actual: Step[] = [];
  #forecast: Step[] = [];
  /** Null while there is no data. */
  #unit: string | null = null;
  #forecastUnit: string | null = null;
  #moments: Moment[] = [];
  #gone = false;
  #pointed: Moment | null = null;

  constructor(desk: Desk, root: HTMLElement) {
    super(desk, root);
    const bars = uPlot.paths.bars?.({ size: [0.8, 40], align: 1 }) ?? (() => null);
    this.#plot = new Plot(find(root, ".chart"), {
      pointed: (span) => {
        this.#pointed = span as Moment | null;
        this.#showFigures();
      },
      describe: (span) => this.#words((span as Moment | null) ?? this.#now),
      look: (colour) => ({
        scales: {
          y: { range: () => loadRange(this.#moments) },
          off: { range: () => [-1.3 * deviationBound(this.#moments), 7 * deviationBound(this.#moments)] },
        },
        axes: [
          {
            size: 54, space: 34,
            grid: { stroke: colour("--line"), width: 1, filter: (_plot, splits) => this.#above(splits) },
            filter: (_plot, splits) => this.#above(splits),
            values: (_plot, splits) => splits.map((value) => (value === null ? null : axisNumber(value))),
          },
          {
            scale: "off", side: 1, size: 46, gap: 4,
            grid: { stroke: colour("--line"), width: 1, filter: (_plot, splits) => splits.map((value) => (value === 0 ? value : null)) },
            splits: () => [-1, 0, 1].map((sign) => sign * deviationBound(this.#moments)),
            values: (_plot, splits) => splits.map((value) => `${axisNumber(Math.round(value * 100))} %`),
          },
        ],
        series: [
          { stroke: colour("--ink-2"), width: 1.5, dash: [4, 3], points: { show: false }, paths: stepped },
          { stroke: colour("--accent"), width: 2, points: { show: false }, paths: stepped }, // no area: the axis does not begin at 0
          { scale: "off", stroke: colour("--now"), fill: colour("--now"), width: 0, points: { show: false }, paths: bars },
          { scale: "off", stroke: colour("--accent"), fill: colour("--accent"), width: 0, points: { show: false }, paths: bars },
        ],
        draw: (plot) => {
          const now = this.#now;
          if (now?.actual != null) drawDot(plot, now.end, now.actual, "y", colour("--accent"), colour("--panel"));
        },
      }),
    });
    this.#table = new Unfolded(find(root, "details"), () => ({
      head: ["Time", "Actual", "Forecast", "Off by"],
      body: this.#moments.map((moment) => [
        dayInterval(moment.start, moment.end, this.#time),
        text(moment.actual, power),
        text(moment.forecast, power),
        text(moment.off, percent),
      ]),
    }));
  }

  /** Shows the load of a zone; null hides the view. */
  select(row: LoadRow | null, name: string): void {
    this.root.hidden = row === null;
    const wanted = row ? [row.actual, row.forecast].join() : "";
    if (wanted === this.#endpoints) return;
    this.#endpoints = wanted;
    this.#name = name;
    this.#time = marketTime(row?.zone ?? null);
    this.#actual = this.#forecast = [];
    this.#unit = this.#forecastUnit = null;
    this.#gone = false;
    this.#pointed = null;
    this.forget();
    this.group.clear();
    if (row === null) return;
    this.group.want(row.actual, (dataset) => {
      this.#gone = dataset.gone;
      if (!dataset.gone) {
        this.#actual = steps(dataset); // a deleted load stays visible, dimmed
        this.#unit = dataset.unit;
      }
      this.accepted(dataset);
    });
    if (row.forecast) {
      this.group.want(row.forecast, (dataset) => {
        this.#forecast = dataset.gone ? [] : steps(dataset);
        this.#forecastUnit = dataset.gone ? null : dataset.unit;
        this.changed(); // the age is that of the load: the forecast of this hour may be a day old
      });
    }
    this.changed();
  }

  override repaint(): void {
    this.#plot.repaint();
  }

  protected override time(): MarketTime {
    return this.#time;
  }

  protected override problem(): string {
    return this.#gone ? "Withdrawn by its source" : "";
  }

  protected override passed(): void {
    this.#plot.tick();
  }

  /** The end of the measured values. */
  get #now(): Moment | null {
    return this.#moments.findLast(({ actual }) => actual !== null) ?? null;
  }

  /** The axis of the load ends where that of the deviation begins. */
  #above(splits: readonly number[]): (number | null)[] {
    const values = this.#moments.flatMap(({ actual, forecast }) => [actual, forecast].filter((value) => value !== null));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return splits.map((value) => (value >= low - (high - low) * 0.1 ? value : null));
  }

  protected draw(): void {
    const unit = this.#unit ?? this.#forecastUnit ?? "";
    const fits = (this.#forecastUnit ?? unit) === unit;
    this.leaveOut({ unit, odd: fits ? [] : [{ name: "Forecast", unit: this.#forecastUnit ?? "" }] });
    this.#moments = moments(this.#actual, fits ? this.#forecast : []);
    if (this.#pointed) this.#pointed = this.#moments.find(({ start }) => start === this.#pointed?.start) ?? null;
    this.#plot.show({
      data: columnsOf(this.#moments) as uPlot.AlignedData,
      spans: this.#moments,
      from: this.#moments[0]?.start ?? Date.now() - 1,
      to: this.#moments.at(-1)?.end ?? Date.now(),
      time: this.#time,
    });
    this.about(`${this.#name}${behind(unit)}, with the deviation in per cent below`);
    setText(find(this.root, ".timezone"), `Times in ${this.#time.label(Date.now())}`);
    find(this.root, ".chart").ariaLabel = `Load of ${this.#name} against its forecast`;
    this.#showFigures();
    this.#table.draw();
  }

  /** The figures at the cursor, otherwise of now. */
  #showFigures(): void {
    const moment = this.#pointed ?? this.#now;
    setNumber(find(this.root, ".actual b"), text(moment?.actual ?? null, power));
    setNumber(find(this.root, ".expected b"), text(moment?.forecast ?? null, power));
    const off = find(this.root, ".off");
    setText(find(off, "b"), text(moment?.off ?? null, percent));
    setData(off, "way", moment?.off == null || Math.abs(moment.off) < 0.03 ? "near" : moment.off > 0 ? "over" : "under");
    setText(find(this.root, ".missed b"), text(meanError(this.#moments), (error) => percent(error).replace("+", "")));
    setText(find(this.root, ".interval"), moment ? interval(moment.start, moment.end, "pointed", this.#time) : "");
  }

  #words(moment: Moment | null): string {
    if (moment === null) return "no data";
    const { actual, forecast, off } = moment;
    const amount = (value: number): string => `${power(value)} ${written(this.#unit ?? this.#forecastUnit ?? "")}`.trimEnd();
    const parts = [
      actual === null ? "" : `load ${amount(actual)}`,
      forecast === null ? "" : `forecast ${amount(forecast)}`,
      off === null ? "" : `off by ${percent(off)}`,
    ];
    return `${dayInterval(moment.start, moment.end, this.#time)}: ${parts.filter(Boolean).join(", ")}`;
  }
}
