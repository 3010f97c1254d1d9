/** DIEM for Vue 3. */

import type { InjectionKey, MaybeRefOrGetter, ShallowRef } from "vue";
import { inject, onScopeDispose, shallowRef, toValue, watch } from "vue";
import type { CollectionOptions } from "../collections.ts";
import type { Diem } from "../diem.ts";
import { isPage } from "../environment.ts";
import type { CollectionState, ConnectionView, EndpointState, Store } from "./stores.ts";
import { CollectionStore, ConnectionStore, EndpointStore } from "./stores.ts";

export type { CollectionState, ConnectionView, EndpointState, Problem } from "./stores.ts";

/** Provide it once: `app.provide(DIEM, createDiem())`. */
export const DIEM: InjectionKey<Diem> = Symbol("diem");

export function useDiem(): Diem {
  const diem = inject(DIEM, null);
  if (diem === null) throw new Error("nothing is provided as DIEM: app.provide(DIEM, createDiem())");
  return diem;
}

/** The state of the store that `make` makes for `key`, until the scope ends. */
function useStore<S>(key: () => string, make: (key: string) => Store<S>): Readonly<ShallowRef<S>> {
  let store = make(key());
  const state = shallowRef(store.value);
  const read = (): void => void (state.value = store.value);
  const subscribe = (): (() => void) => (isPage() ? store.subscribe(read) : () => undefined);
  let stop = subscribe();
  const change = (changed: string): void => {
    stop();
    store = make(changed);
    stop = subscribe();
    read();
  };
  read();
  watch(key, change, { flush: "sync" });
  onScopeDispose(() => stop());
  return state;
}

/** The latest version of `endpoint`, whose values have the type `T`, and whether it is live. The name may be a ref or a getter. */
export function useEndpoint<T>(endpoint: MaybeRefOrGetter<string>): Readonly<ShallowRef<EndpointState<T>>> {
  const diem = useDiem();
  return useStore(() => toValue(endpoint), (name) => new EndpointStore<T>(diem, name));
}

/** The members of the collection `prefix`. */
export function useCollection<T>(prefix: MaybeRefOrGetter<string>, options?: CollectionOptions): Readonly<ShallowRef<CollectionState<T>>> {
  const diem = useDiem();
  return useStore(() => toValue(prefix), (name) => new CollectionStore<T>(diem, name, options));
}

/** The state of the connection, its reason, and whether changes arrive as they happen. */
export function useConnection(): Readonly<ShallowRef<ConnectionView>> {
  const diem = useDiem();
  return useStore(() => "", () => new ConnectionStore(diem));
}
