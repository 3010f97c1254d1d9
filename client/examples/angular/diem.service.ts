/** DIEM for Angular: signals of datasets, whose subscriptions end with whoever asked for them. */

import type { Signal } from "@angular/core";
import { DestroyRef, Injectable, InjectionToken, assertInInjectionContext, inject, signal } from "@angular/core";
import type { Dataset, Diem } from "diem-client";
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

  /** The dataset of `endpoint`, null until there is one. To be called where `inject` may be: in a field or a constructor. */
  dataset(endpoint: string): Signal<Dataset | null> {
    assertInInjectionContext(this.dataset);
    const dataset = signal<Dataset | null>(null);
    inject(DestroyRef).onDestroy(this.#diem.watch(endpoint, (changed) => dataset.set(changed)));
    return dataset.asReadonly();
  }
}
