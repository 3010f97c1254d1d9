/** DIEM for React: a context with the one connection of the page, and hooks on it. */

import type { Dataset, Diem } from "diem-client";
import { createContext, useCallback, useContext, useEffect, useState, useSyncExternalStore } from "react";

/** Provide it once, at the root: `<DiemContext value={createDiem()}>`, with the object made outside of any component. */
export const DiemContext = createContext<Diem | null>(null);

function useDiem(): Diem {
  const diem = useContext(DiemContext);
  if (diem === null) throw new Error("no DiemContext above this component");
  return diem;
}

/** The dataset of `endpoint`, newest version first seen; null until there is one. */
export function useDataset(endpoint: string): Dataset | null {
  const diem = useDiem();
  const [dataset, setDataset] = useState<Dataset | null>(null);
  useEffect(() => diem.watch(endpoint, setDataset), [diem, endpoint]);
  return dataset?.endpoint === endpoint ? dataset : null; // not the one of the endpoint before
}

/** Whether changes arrive as they happen. */
export function useLive(): boolean {
  const { live } = useDiem().updates;
  const subscribe = useCallback((changed: () => void) => live.observe(changed), [live]);
  return useSyncExternalStore(subscribe, () => live.value.live);
}
