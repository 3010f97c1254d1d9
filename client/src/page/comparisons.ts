/** The comparisons of the zone tables: a value with its expected value, and the format of the difference. */

import { percent, power, price, signedPrice } from "./format.ts";

/** The comparison of a table. */
export interface Comparison {
  readonly testid: string;
  /** The contents of the table, beside its title and as its caption; the unit is added. */
  readonly about: string;
  readonly caption: string;
  /** Name of the expected values. */
  readonly beside: string;
  readonly format: (value: number) => string;
  /** Difference of a value from the expected one; null where it is undefined. */
  readonly off: (value: number, expected: number) => number | null;
  readonly formatOff: (off: number) => string;
  /** From this difference on it is coloured. */
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
