/** When the parts of a view were accepted at their sources: the newest, and those that lag behind it. Pure. */

/** A part that is this much older than the newest does not lag, however short its intervals: parts do not come in one message. */
const TOGETHER_MS = 60_000;

interface Part {
  readonly name: string;
  /** Unix milliseconds. */
  readonly at: number;
  /** Length of its intervals, milliseconds: a new version is due with each of them, and not before. */
  readonly every: number;
  /** Whether the view shows it: a deletion counts as a change, but cannot be out of date. */
  readonly shown: boolean;
}

export interface Behind {
  /** The oldest one, and when it was accepted. */
  readonly name: string;
  readonly at: number;
  /** How many others lag. */
  readonly others: number;
}

export class Ages {
  readonly #parts = new Map<string, Part>();

  set(endpoint: string, part: Part): void {
    this.#parts.set(endpoint, part);
  }

  drop(endpoint: string): void {
    this.#parts.delete(endpoint);
  }

  clear(): void {
    this.#parts.clear();
  }

  /** Null without parts. */
  get newest(): number | null {
    return this.#parts.size === 0 ? null : Math.max(...[...this.#parts.values()].map(({ at }) => at));
  }

  /** Null when all parts that are shown are as new as their intervals allow. */
  get behind(): Behind | null {
    const newest = this.newest ?? 0;
    const late = [...this.#parts.values()].filter(({ at, every, shown }) => shown && newest - at > Math.max(every, TOGETHER_MS));
    const [oldest] = late.sort((a, b) => a.at - b.at);
    return oldest ? { name: oldest.name, at: oldest.at, others: late.length - 1 } : null;
  }
}
