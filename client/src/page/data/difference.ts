/** The difference of two JSON values, as marks on the newer one. Pure. */

export type Mark = "added" | "changed" | "removed";

export interface Removed {
  /** Field name, or index in the older value. */
  readonly key: string | number;
  readonly value: unknown;
  /** The member of the newer value that it stood before: its position. */
  readonly at: number;
}

/** What differs in a value. */
export interface Delta {
  /** Null: only members of it differ. */
  readonly mark: Mark | null;
  /** The older value, of one that has changed. */
  readonly before?: unknown;
  /** Number of marks in it, its own included. */
  readonly count: number;
  /** The members that differ, by field name, or by index in the newer value. */
  readonly members: ReadonlyMap<string | number, Delta>;
  /** The members that the newer value lacks. */
  readonly removed: readonly Removed[];
}

export interface Difference {
  /** Null: nothing differs. */
  readonly delta: Delta | null;
  /** False at the bound: what was not compared has no marks. */
  readonly isComplete: boolean;
}

/** Values that are compared at most: those of a document of some megabytes. */
const MAX_VALUES = 200_000;
/** Items of an array that are inserted and deleted at most; beyond, arrays are compared item by item. */
const MAX_EDITS = 400;
const NONE: ReadonlyMap<string | number, Delta> = new Map();

type Fields = Readonly<Record<string, unknown>>;

export const isArray = (value: unknown): value is readonly unknown[] => Array.isArray(value);
export const isObject = (value: unknown): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value);

/** Compares two JSON values. Beyond `limit` values nothing is compared. */
export function difference(before: unknown, after: unknown, limit = MAX_VALUES): Difference {
  const comparison = new Comparison(limit);
  const delta = comparison.compare(before, after);
  return { delta, isComplete: comparison.left >= 0 };
}

/** How many values were added, changed and removed; one with all its members counts once. */
export function tally(delta: Delta | null): Record<Mark, number> {
  const counts = { added: 0, changed: 0, removed: 0 };
  const add = ({ mark, members, removed }: Delta): void => {
    if (mark !== null) counts[mark] += 1;
    counts.removed += removed.length;
    for (const member of members.values()) add(member);
  };
  if (delta !== null) add(delta);
  return counts;
}

class Comparison {
  left: number;

  constructor(limit: number) {
    this.left = limit;
  }

  compare(before: unknown, after: unknown): Delta | null {
    if (before === after || (this.left -= 1) < 0) return null;
    if (isArray(before) && isArray(after)) return this.#arrays(before, after);
    if (isObject(before) && isObject(after)) return this.#objects(before, after);
    return { mark: "changed", before, count: 1, members: NONE, removed: [] };
  }

  #objects(before: Fields, after: Fields): Delta | null {
    const members = new Map<string | number, Delta>();
    const removed: Removed[] = [];
    const positions = new Map(Object.keys(after).map((key, index) => [key, index]));
    let at = 0;
    for (const [key, value] of Object.entries(before)) {
      const position = positions.get(key);
      if (position === undefined) removed.push({ key, value, at });
      else {
        at = position + 1;
        const delta = this.compare(value, after[key]);
        if (delta) members.set(key, delta);
      }
    }
    for (const key of positions.keys()) if (!Object.hasOwn(before, key)) members.set(key, added());
    return within(members, removed);
  }

  /** Items at both ends that are equal stay; of those between, as few as possible are inserted or deleted. */
  #arrays(before: readonly unknown[], after: readonly unknown[]): Delta | null {
    const shorter = Math.min(before.length, after.length);
    let head = 0;
    while (head < shorter && this.#equal(before[head], after[head])) head += 1;
    let tail = 0;
    while (tail < shorter - head && this.#equal(before[before.length - 1 - tail], after[after.length - 1 - tail])) tail += 1;
    const [old, made] = [before.slice(head, before.length - tail), after.slice(head, after.length - tail)];
    const members = new Map<string | number, Delta>();
    const removed: Removed[] = [];
    let [i, j] = [0, 0];
    for (const [nextOld, nextMade] of [...this.#common(old, made), [old.length, made.length] as const]) {
      for (; i < nextOld && j < nextMade; i += 1, j += 1) {
        const delta = this.compare(old[i], made[j]);
        if (delta) members.set(head + j, delta);
      }
      for (; i < nextOld; i += 1) removed.push({ key: head + i, value: old[i], at: head + j });
      for (; j < nextMade; j += 1) members.set(head + j, added());
      [i, j] = [nextOld + 1, nextMade + 1];
    }
    return within(members, removed);
  }

  /** Whether two values are the same; unlike `compare`, this ends at the first difference. */
  #equal(before: unknown, after: unknown): boolean {
    if (before === after || (this.left -= 1) < 0) return true;
    if (isArray(before) && isArray(after)) {
      return before.length === after.length && before.every((item, index) => this.#equal(item, after[index]));
    }
    if (!isObject(before) || !isObject(after)) return false;
    const fields = Object.entries(before);
    return fields.length === Object.keys(after).length && fields.every(([key, value]) => Object.hasOwn(after, key) && this.#equal(value, after[key]));
  }

  /**
   * Pairs of positions of equal items, in order: a longest common subsequence (Myers, "An O(ND) Difference Algorithm and Its
   * Variations", 1986, figure 2); none if more than `MAX_EDITS` items are inserted or deleted.
   */
  #common(old: readonly unknown[], made: readonly unknown[]): [number, number][] {
    const [a, b] = [old.map((item) => this.#text(item)), made.map((item) => this.#text(item))];
    const [m, n] = [a.length, b.length];
    if (m === 0 || n === 0 || Math.abs(m - n) > MAX_EDITS) return [];
    // The furthest position in `a` on each diagonal k = x - y, and what it was before each number of edits.
    const furthest = new Int32Array(2 * MAX_EDITS + 3);
    const at = (positions: Int32Array, k: number): number => positions[k + MAX_EDITS + 1] ?? 0;
    const isDown = (positions: Int32Array, k: number, edits: number): boolean => k === -edits || (k !== edits && at(positions, k - 1) < at(positions, k + 1));
    const trace: Int32Array[] = [];
    for (let edits = 0; edits <= MAX_EDITS; edits += 1) {
      trace.push(furthest.slice());
      for (let k = -edits; k <= edits; k += 2) {
        let x = isDown(furthest, k, edits) ? at(furthest, k + 1) : at(furthest, k - 1) + 1;
        while (x < m && x - k < n && a[x] === b[x - k]) x += 1;
        furthest[k + MAX_EDITS + 1] = x;
        if (x >= m && x - k >= n) return back(edits);
      }
    }
    return [];

    function back(edits: number): [number, number][] {
      const pairs: [number, number][] = [];
      let [x, y] = [m, n];
      for (let d = edits; d >= 0; d -= 1) {
        const positions = trace[d] as Int32Array;
        const k = x - y;
        const before = isDown(positions, k, d) ? k + 1 : k - 1;
        const start = d === 0 ? 0 : at(positions, before);
        while (x > start && y > start - before) pairs.push([(x -= 1), (y -= 1)]);
        [x, y] = [start, start - before];
      }
      return pairs.reverse();
    }
  }

  #text(item: unknown): string {
    const text = JSON.stringify(item);
    this.left -= text.length >> 5; // writing costs less than comparing
    return text;
  }
}

const added = (): Delta => ({ mark: "added", count: 1, members: NONE, removed: [] });

function within(members: ReadonlyMap<string | number, Delta>, removed: readonly Removed[]): Delta | null {
  let count = removed.length;
  for (const member of members.values()) count += member.count;
  return count === 0 ? null : { mark: null, count, members, removed };
}
