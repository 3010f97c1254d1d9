/** DIEM for React: a context with the one connection of the page, and hooks on it. */

import type { Dataset, Diem, Snapshot } from "diem-client";
import { createContext, useCallback, useContext, useEffect, useState, useSyncExternalStore } from "react";

/** Provide it once, at the root: `<DiemContext value={createDiem()}>`, with the object made outside of any component. */
export const DiemContext = createContext<Diem | null>(null);

function useDiem(): Diem {
  const diem = useContext(DiemContext);
  if (diem === null) throw new Error("no DiemContext above this component");
  return diem;
}

/** The latest version of `endpoint`, whose values have the type `T`; null until there is one. */
export function useSnapshot<T>(endpoint: string): Snapshot<T> | null {
  const diem = useDiem();
  const [snapshot, setSnapshot] = useState<Snapshot<T> | null>(null);
  useEffect(() => diem.watch<T>(endpoint, setSnapshot), [diem, endpoint]);
  return snapshot?.endpoint === endpoint ? snapshot : null; // not the one of the endpoint before
}

/** The same for a series. */
export const useDataset = (endpoint: string): Dataset | null => useSnapshot(endpoint) as Dataset | null;

/** The members of a collection by name, as of `/game/42/`. */
export function useCollection<T>(prefix: string): ReadonlyMap<string, Snapshot<T>> {
  const diem = useDiem();
  const [members, setMembers] = useState<ReadonlyMap<string, Snapshot<T>>>(new Map());
  useEffect(() => {
    const stop = diem.watchCollection<T>(prefix, (change) => setMembers(change.members));
    return () => {
      stop();
      setMembers(new Map());
    };
  }, [diem, prefix]);
  return members;
}

/** Whether changes arrive as they happen. */
export function useLive(): boolean {
  const { live } = useDiem().updates;
  const subscribe = useCallback((changed: () => void) => live.observe(changed), [live]);
  return useSyncExternalStore(subscribe, () => live.value.live);
}
