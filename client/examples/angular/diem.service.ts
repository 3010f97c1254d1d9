/** DIEM for Angular: signals of datasets, whose subscriptions end with whoever asked for them. */

import type { Signal } from "@angular/core";
import { DestroyRef, Injectable, InjectionToken, assertInInjectionContext, inject, signal } from "@angular/core";
import type { Dataset, Diem, Snapshot } from "diem-client";
import { createDiem } from "diem-client";

/** Provide another one for options or tests: `{ provide: DIEM, useFactory: () => createDiem({ configUrl: "…" }) }`. */
export const DIEM = new InjectionToken<Diem>("DIEM", { providedIn: "root", factory: () => createDiem() });

@Injectable({ providedIn: "root" })
export class DiemService {
  readonly #diem = inject(DIEM);
  readonly #live = signal(false);
  /** Whether changes arrive as they happen. */
  readonly live: Signal<boolean> = this.#live.asReadonly();

  constructor() {
    this.#diem.updates.live.observe(({ live }) => this.#live.set(live));
    inject(DestroyRef).onDestroy(() => this.#diem.close());
  }

  /**
   * The latest version of `endpoint`, whose values have the type `T`; null until there is one. To be called where `inject` may be: in
   * a field or a constructor.
   */
  snapshot<T>(endpoint: string): Signal<Snapshot<T> | null> {
    assertInInjectionContext(this.snapshot);
    const snapshot = signal<Snapshot<T> | null>(null);
    inject(DestroyRef).onDestroy(this.#diem.watch<T>(endpoint, (changed) => snapshot.set(changed)));
    return snapshot.asReadonly();
  }

  /** The same for a series. */
  dataset(endpoint: string): Signal<Dataset | null> {
    return this.snapshot(endpoint) as Signal<Dataset | null>;
  }
}
