/** DIEM for Angular 20 and later, with signals. */

import type { FactoryProvider, Signal } from "@angular/core";
import { DestroyRef, InjectionToken, assertInInjectionContext, computed, effect, inject, linkedSignal } from "@angular/core";
import type { CollectionOptions } from "../collections.ts";
import type { Diem, DiemOptions } from "../diem.ts";
import { createDiem } from "../diem.ts";
import type { CollectionState, ConnectionView, EndpointState, Store } from "./stores.ts";
import { CollectionStore, ConnectionStore, EndpointStore } from "./stores.ts";

export type { CollectionState, ConnectionView, EndpointState, Problem } from "./stores.ts";

/** A name, or for one that changes, a signal or a function that reads signals. */
export type Name = string | (() => string);

export const DIEM = new InjectionToken<Diem>("DIEM");

/** Provides the `Diem` of an application; it is closed with it. */
export function provideDiem(options: DiemOptions = {}): FactoryProvider {
  const useFactory = (): Diem => {
    const diem = createDiem(options);
    inject(DestroyRef).onDestroy(() => diem.close());
    return diem;
  };
  return { provide: DIEM, useFactory };
}

/** Subscribes until the injection context is destroyed. */
function connect<S>(name: Name, make: (diem: Diem, name: string) => Store<S>): Signal<S> {
  const diem = inject(DIEM);
  const store = computed(() => make(diem, typeof name === "function" ? name() : name));
  const state = linkedSignal(() => store().value);
  effect((onCleanup) => {
    const present = store();
    onCleanup(present.subscribe(() => state.set(present.value)));
    state.set(present.value); // it may have changed since it was rendered
  });
  return state.asReadonly();
}

/** The latest version of `endpoint`, whose values have the type `T`, and whether it is live. Call it where `inject` may be called. */
export function injectEndpoint<T>(endpoint: Name): Signal<EndpointState<T>> {
  assertInInjectionContext(injectEndpoint);
  return connect(endpoint, (diem, name) => new EndpointStore<T>(diem, name));
}

/** The members of the collection `prefix`. */
export function injectCollection<T>(prefix: Name, options?: CollectionOptions): Signal<CollectionState<T>> {
  assertInInjectionContext(injectCollection);
  return connect(prefix, (diem, name) => new CollectionStore<T>(diem, name, options));
}

/** The state of the connection, its reason, and whether changes arrive as they happen. */
export function injectConnection(): Signal<ConnectionView> {
  assertInInjectionContext(injectConnection);
  return connect("", (diem) => new ConnectionStore(diem));
}
