/** When the parts of a view were accepted at their sources: the newest, and what has stayed behind it. Pure. */

/** What is no older than this beside the newest part is not behind, however short its intervals: they do not come in one message. */
const TOGETHER_MS = 60_000;

interface Part {
  readonly name: string;
  /** Unix milliseconds. */
  readonly at: number;
  /** The length of its intervals, milliseconds: each of them brings a new version, and nothing has to before. */
  readonly every: number;
  /** Whether the view shows it: what was withdrawn is news, but nothing that can be out of date. */
  readonly shown: boolean;
}

export interface Behind {
  /** The oldest one, and when it was accepted. */
  readonly name: string;
  readonly at: number;
  /** How many others are behind. */
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

  /** Null when all that is shown is as new as its intervals let expect. */
  get behind(): Behind | null {
    const newest = this.newest ?? 0;
    const late = [...this.#parts.values()].filter(({ at, every, shown }) => shown && newest - at > Math.max(every, TOGETHER_MS));
    const [oldest] = late.sort((a, b) => a.at - b.at);
    return oldest ? { name: oldest.name, at: oldest.at, others: late.length - 1 } : null;
  }
}
