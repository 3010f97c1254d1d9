/** The page's subscriptions: those of the visible views, up to the number that a server allows one client. */

import type { Dataset, Diem, Snapshot, Subscription } from "../sdk/index.ts";

/** Below the server's default of 1,024. */
const LIMIT = 1_000;

export type Take = (snapshot: Snapshot) => void;
export type Refused = (message: string) => void;

interface Wish {
  readonly take: Take;
  readonly refused: Refused;
  /** True once there was an answer: data or a refusal. */
  answered: boolean;
  /** The latest version stands for a newer one that is lost. */
  lost: boolean;
  subscription: Subscription | null;
}

/** The endpoints of one view. */
export class Group {
  readonly wishes = new Map<string, Wish>();
  readonly #changed: () => void;
  #inSight = false;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  get endpoints(): string[] {
    return [...this.wishes.keys()];
  }

  get inSight(): boolean {
    return this.#inSight;
  }

  /** True if the views exceed a client's limit of subscriptions. */
  get curbed(): boolean {
    return this.#inSight && [...this.wishes.values()].some(({ subscription }) => subscription === null);
  }

  /** True if a part of the view is older than shown before, because the newer data is lost. */
  get isPutBack(): boolean {
    return [...this.wishes.values()].some(({ lost }) => lost);
  }

  /** True once every allowed subscription of the view was answered. */
  get isComplete(): boolean {
    return [...this.wishes.values()].every(({ answered, subscription }) => answered || (this.#inSight && subscription === null));
  }

  /** `take` is called with the series that is held and every newer version, while the view is visible; data of another kind is refused. */
  want(endpoint: string, take: (dataset: Dataset) => void, refused: Refused = () => undefined): void {
    this.wantAny(endpoint, (snapshot) => ("points" in snapshot ? take(snapshot as Dataset) : refused("Not a series")), refused);
  }

  /** The same with data of any kind. */
  wantAny(endpoint: string, take: Take, refused: Refused = () => undefined): void {
    this.drop(endpoint);
    this.wishes.set(endpoint, { take, refused, answered: false, lost: false, subscription: null });
    this.#changed();
  }

  drop(endpoint: string): void {
    const wish = this.wishes.get(endpoint);
    if (wish === undefined) return;
    wish.subscription?.();
    this.wishes.delete(endpoint);
    this.#changed();
  }

  clear(): void {
    for (const endpoint of this.endpoints) this.drop(endpoint);
  }

  /** Whether the view is visible. While hidden, its data is not updated. */
  show(inSight: boolean): void {
    if (inSight === this.#inSight) return;
    this.#inSight = inSight;
    this.#changed();
  }
}

export class Watching {
  readonly #diem: Diem;
  readonly #limit: number;
  readonly #groups: Group[] = [];
  #settling = false;

  constructor(diem: Diem, limit = LIMIT) {
    this.#diem = diem;
    this.#limit = limit;
  }

  /** Adds a view; at the limit earlier views have priority. */
  group(): Group {
    const group = new Group(() => this.#soon());
    this.#groups.push(group);
    return group;
  }

  #soon(): void {
    if (this.#settling) return;
    this.#settling = true;
    queueMicrotask(() => this.#settle());
  }

  /** Ends the subscriptions of invisible views first, which frees places. */
  #settle(): void {
    this.#settling = false;
    const allowed = new Set<string>();
    for (const { inSight, wishes } of this.#groups) {
      if (!inSight) continue;
      for (const endpoint of wishes.keys()) if (allowed.size < this.#limit) allowed.add(endpoint);
    }
    for (const { inSight, wishes } of this.#groups) {
      for (const [endpoint, wish] of wishes) {
        if (wish.subscription === null || (inSight && allowed.has(endpoint))) continue;
        wish.subscription();
        wish.subscription = null;
      }
    }
    for (const { inSight, wishes } of this.#groups) {
      if (!inSight) continue;
      for (const [endpoint, wish] of wishes) {
        if (wish.subscription !== null || !allowed.has(endpoint)) continue;
        wish.subscription = this.#diem.watch<unknown>(
          endpoint,
          (snapshot) => {
            wish.answered = true;
            wish.lost = false;
            wish.take(snapshot);
          },
          (problem) => {
            wish.answered = true;
            wish.lost = problem.code === "lost";
            wish.refused("status" in problem && problem.status === 404 ? "Not in the catalogue" : problem.message);
          },
        );
      }
    }
  }
}
