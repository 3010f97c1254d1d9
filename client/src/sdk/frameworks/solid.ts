/** DIEM for Solid. */

import type { Accessor, JSX } from "solid-js";
import { createComponent, createContext, createMemo, createSignal, onCleanup, useContext } from "solid-js";
import type { CollectionOptions } from "../collections.ts";
import type { Diem } from "../diem.ts";
import { isPage } from "../environment.ts";
import type { CollectionState, ConnectionView, EndpointState, Store } from "./stores.ts";
import { CollectionStore, ConnectionStore, EndpointStore } from "./stores.ts";

export type { CollectionState, ConnectionView, EndpointState, Problem } from "./stores.ts";

/** A name, or an accessor of one that changes. */
export type Name = string | Accessor<string>;

const Context = createContext<Diem>();

/** Provides `diem`, made outside of any component. */
export function DiemProvider(props: { diem: Diem; children?: JSX.Element }): JSX.Element {
  return createComponent(Context.Provider, {
    get value() {
      return props.diem;
    },
    get children() {
      return props.children;
    },
  });
}

export function useDiem(): Diem {
  const diem = useContext(Context);
  if (diem === undefined) throw new Error("no DiemProvider above this component");
  return diem;
}

function useStore<S>(name: Name, make: (name: string) => Store<S>): Accessor<S> {
  const key = createMemo(() => (typeof name === "function" ? name() : name)); // changes only with the name
  const signal = createMemo(() => {
    const store = make(key());
    const [state, set] = createSignal(store.value);
    if (isPage()) onCleanup(store.subscribe(() => set(() => store.value)));
    set(() => store.value); // what is held is known at once
    return state;
  });
  return () => signal()();
}

/** The latest version of `endpoint`, whose values have the type `T`, and whether it is live. */
export function useEndpoint<T>(endpoint: Name): Accessor<EndpointState<T>> {
  const diem = useDiem();
  return useStore(endpoint, (name) => new EndpointStore<T>(diem, name));
}

/** The members of the collection `prefix`. */
export function useCollection<T>(prefix: Name, options?: CollectionOptions): Accessor<CollectionState<T>> {
  const diem = useDiem();
  return useStore(prefix, (name) => new CollectionStore<T>(diem, name, options));
}

/** The state of the connection, its reason, and whether changes arrive as they happen. */
export function useConnection(): Accessor<ConnectionView> {
  const diem = useDiem();
  return useStore("", () => new ConnectionStore(diem));
}
