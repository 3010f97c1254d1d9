/** Subscribers of each endpoint: many callbacks share one subscription. */

import type { Rejection, UpdateFrame } from "./messages.ts";

/** A change that a view is notified of. `resync` = it may have changed, fetch again; `rejected` = no updates will come. */
export type Change =
  | UpdateFrame
  | { readonly type: "resync"; readonly endpoint: string }
  | ({ readonly type: "rejected"; readonly endpoint: string } & Rejection);

export type Callback = (change: Change) => void;

/** One call of subscribe: the same callback may be registered several times, and each ends on its own. */
export interface Subscriber {
  readonly callback: Callback;
}

export class Subscribers {
  readonly #views = new Map<string, Set<Subscriber>>();
  readonly #report: (error: unknown) => void;

  /** `report` receives errors of callbacks, so that one view cannot stop another. */
  constructor(report: (error: unknown) => void) {
    this.#report = report;
  }

  /** Endpoints with at least one view. */
  get endpoints(): Iterable<string> {
    return this.#views.keys();
  }

  get size(): number {
    return this.#views.size;
  }

  has(endpoint: string): boolean {
    return this.#views.has(endpoint);
  }

  /** Returns whether it is the endpoint's first view. */
  add(endpoint: string, view: Subscriber): boolean {
    const views = this.#views.get(endpoint);
    if (views === undefined) this.#views.set(endpoint, new Set([view]));
    else views.add(view);
    return views === undefined;
  }

  /** Returns whether it was the endpoint's last view; false also when it had ended before. */
  remove(endpoint: string, view: Subscriber): boolean {
    const views = this.#views.get(endpoint);
    return views !== undefined && views.delete(view) && views.size === 0 && this.#views.delete(endpoint);
  }

  find(endpoint: string, callback: Callback): Subscriber | null {
    for (const view of this.#views.get(endpoint) ?? []) if (view.callback === callback) return view;
    return null;
  }

  notify(endpoint: string, change: Change): void {
    const views = this.#views.get(endpoint);
    if (views === undefined) return;
    for (const view of [...views]) {
      if (!views.has(view)) continue; // an earlier callback ended it
      try {
        view.callback(change);
      } catch (error) {
        this.#report(error);
      }
    }
  }
}
