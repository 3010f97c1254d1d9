/** What the tables of zones compare: a value with what was expected of it, and how the difference is written. */

import { percent, power, price, signedPrice } from "./format.ts";

/** What a table compares. */
export interface Comparison {
  readonly testid: string;
  /** What the table has, beside its title and as its caption; the unit is added. */
  readonly about: string;
  readonly caption: string;
  /** What the values are compared with. */
  readonly beside: string;
  readonly format: (value: number) => string;
  /** How far a value is from what was expected of it; null where that cannot be said. */
  readonly off: (value: number, expected: number) => number | null;
  readonly formatOff: (off: number) => string;
  /** From where on the difference is worth a colour. */
  readonly notable: number;
}

export const LOADS: Comparison = {
  testid: "load-value",
  about: "Latest actual against its forecast",
  caption: "Latest load by bidding zone",
  beside: "forecast",
  format: power,
  off: (value, expected) => (expected === 0 ? null : value / expected - 1),
  formatOff: percent,
  notable: 0.03,
};

export const IMBALANCES: Comparison = {
  testid: "imbalance-value",
  about: "Latest quarter against the day-ahead price",
  caption: "Latest imbalance price by bidding zone",
  beside: "day-ahead price",
  format: price,
  off: (value, expected) => value - expected,
  formatOff: signedPrice,
  notable: 20,
};
