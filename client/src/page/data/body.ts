/** The interface of the parts of the page "Data" that show one kind of data each. */

import type { MarketTime } from "../time.ts";
import type { Listed } from "../zones.ts";

/** A version of an endpoint, the current one or an older one. */
export interface Version {
  readonly version: number;
  /** When it was accepted, Unix milliseconds. */
  readonly at: number;
  readonly mediaType: string;
  readonly value: unknown;
}

export interface Shown {
  readonly endpoint: string;
  /** Its entry in the catalogue, if it is known. */
  readonly entry: Listed | null;
  readonly version: Version;
  /** The version to which differences are marked, of the same kind; null: nothing is marked. */
  readonly base: Version | null;
  /** Whether `base` was selected by the user; otherwise it is the version before. */
  readonly isCompared: boolean;
  /** Whether `version` came since it was drawn last. */
  readonly isNew: boolean;
}

export interface Body {
  show(shown: Shown): void;
  /** Another endpoint is shown from now on. */
  clear(): void;
  /** A second has passed. */
  tick?(): void;
  /** The colours have changed. */
  repaint?(): void;
  /** The words about the differences that are marked; "" without any. */
  readonly differences: string;
  /** The clock of its times. */
  readonly time: MarketTime;
}
