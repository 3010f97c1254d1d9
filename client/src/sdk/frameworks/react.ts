"use client"; // React Server Components can render the provider, with first data from `diem-client/initial`

/** DIEM for React 18 and later. */

import type { FunctionComponentElement, ProviderProps, ReactNode } from "react";
import { createContext, createElement, useContext, useMemo, useSyncExternalStore } from "react";
import type { Diem } from "../diem.ts";
import { isPage } from "../environment.ts";
import type { InitialData } from "../initial.ts";
import { hydrate } from "../initial.ts";
import type { Snapshot } from "../snapshot.ts";
import { readSnapshot } from "../snapshot.ts";
import type { CollectionState, ConnectionView, EndpointState, Store } from "./stores.ts";
import { CollectionStore, ConnectionStore, EndpointStore, UNCONNECTED, stateOf } from "./stores.ts";

export type { CollectionState, ConnectionView, EndpointState, Problem } from "./stores.ts";

interface Provided {
  readonly diem: Diem;
  /** What the server has rendered, which the first render in the browser repeats. */
  readonly rendered: ReadonlyMap<string, Snapshot | null>;
  /** Stores of endpoints for which components are suspended. */
  readonly awaited: Map<string, EndpointStore<unknown>>;
}

const Context = createContext<Provided | null>(null);
/** A component that was suspended is displayed within this, or its subscription ends. */
const MOUNT_MS = 5_000;

/** Provides `diem`, made outside of any component, and `initial`, the first data of a page that a server renders. */
export function DiemProvider({ diem, initial = [], children }: {
  diem: Diem; initial?: InitialData | undefined; children?: ReactNode;
}): FunctionComponentElement<ProviderProps<Provided | null>> {
  const text = JSON.stringify(initial); // a new array may have the same data
  const value = useMemo(() => {
    const read = JSON.parse(text) as InitialData;
    if (isPage()) hydrate(diem, read); // that of a server is shared by all its visitors
    return { diem, rendered: new Map(read.map((one) => [one.endpoint, readSnapshot(one.endpoint, one)])), awaited: new Map() };
  }, [diem, text]);
  return createElement(Context.Provider, { value }, children);
}

function useProvided(): Provided {
  const provided = useContext(Context);
  if (provided === null) throw new Error("no DiemProvider above this component");
  return provided;
}

export const useDiem = (): Diem => useProvided().diem;

const useStore = <S>(store: Store<S>, first: S): S => useSyncExternalStore(store.subscribe, () => store.value, () => first);

/** The latest version of `endpoint`, whose values have the type `T`, and whether it is live. */
export function useEndpoint<T>(endpoint: string): EndpointState<T> {
  const { diem, rendered, awaited } = useProvided();
  const store = useMemo(() => (awaited.get(endpoint) as EndpointStore<T> | undefined) ?? new EndpointStore<T>(diem, endpoint), [diem, awaited, endpoint]);
  const first = useMemo(() => stateOf((rendered.get(endpoint) ?? null) as Snapshot<T> | null), [rendered, endpoint]);
  return useStore(store, first);
}

/** The same, suspended until there is a value, or a problem. */
export function useSuspenseEndpoint<T>(endpoint: string): EndpointState<T> {
  const { diem, awaited } = useProvided();
  const state = useEndpoint<T>(endpoint);
  if (state.snapshot ?? state.problem) return state;
  if (!isPage()) throw new Error(`no first data of ${endpoint}: read it with readEndpoints, or leave it to the browser`);
  let store = awaited.get(endpoint);
  if (!store) awaited.set(endpoint, store = new EndpointStore(diem, endpoint));
  const awaiting = store;
  throw new Promise<void>((resolve) => {
    const check = (): void => {
      if (!(awaiting.value.snapshot ?? awaiting.value.problem)) return;
      resolve();
      setTimeout(() => {
        stop();
        awaited.delete(endpoint);
      }, MOUNT_MS);
    };
    const stop = awaiting.subscribe(check);
  });
}

const NONE: CollectionState<never> = { members: new Map(), collections: [], problem: null };

/** The members of the collection `prefix`; with `deep`, those of the collections below it, too. */
export function useCollection<T>(prefix: string, { deep = false }: { deep?: boolean } = {}): CollectionState<T> {
  const diem = useDiem();
  return useStore(useMemo(() => new CollectionStore<T>(diem, prefix, { deep }), [diem, prefix, deep]), NONE);
}

/** The state of the connection, its reason, and whether changes arrive as they happen. */
export function useConnection(): ConnectionView {
  const diem = useDiem();
  return useStore(useMemo(() => new ConnectionStore(diem), [diem]), UNCONNECTED);
}
