/** DIEM for Svelte 5.7 and later, with runes; `toStore(() => van.current)` of `svelte/store` makes a store. */

import { getContext, setContext } from "svelte";
import { createSubscriber } from "svelte/reactivity";
import type { CollectionOptions } from "../collections.ts";
import type { Diem } from "../diem.ts";
import type { CollectionState, ConnectionView, EndpointState, Store } from "./stores.ts";
import { CollectionStore, ConnectionStore, EndpointStore } from "./stores.ts";

export type { CollectionState, ConnectionView, EndpointState, Problem } from "./stores.ts";

/** State that is subscribed while an effect, a template or a `$derived` of one reads `current`. */
export interface Reactive<S> {
  readonly current: S;
}

/** A name, or for one that changes, a function that reads it from reactive state. */
export type Name = string | (() => string);

const KEY = Symbol("diem");

/** Provides `diem` to the component in which it is called, and to those below. */
export const provideDiem = (diem: Diem): Diem => setContext(KEY, diem);

export function useDiem(): Diem {
  const diem = getContext<Diem | undefined>(KEY);
  if (diem === undefined) throw new Error("no provideDiem above this component");
  return diem;
}

function reactive<S>(name: Name, make: (name: string) => Store<S>): Reactive<S> {
  let made: { name: string; store: Store<S>; subscribe: () => void } | undefined;
  return {
    get current() {
      const wanted = typeof name === "function" ? name() : name;
      if (made?.name !== wanted) {
        const store = make(wanted);
        made = { name: wanted, store, subscribe: createSubscriber(store.subscribe) };
      }
      made.subscribe();
      return made.store.value;
    },
  };
}

/** The latest version of `endpoint`, whose values have the type `T`, and whether it is live. */
export function useEndpoint<T>(endpoint: Name): Reactive<EndpointState<T>> {
  const diem = useDiem();
  return reactive(endpoint, (name) => new EndpointStore<T>(diem, name));
}

/** The members of the collection `prefix`. */
export function useCollection<T>(prefix: Name, options?: CollectionOptions): Reactive<CollectionState<T>> {
  const diem = useDiem();
  return reactive(prefix, (name) => new CollectionStore<T>(diem, name, options));
}

/** The state of the connection, its reason, and whether changes arrive as they happen. */
export function useConnection(): Reactive<ConnectionView> {
  const diem = useDiem();
  return reactive("", () => new ConnectionStore(diem));
}
