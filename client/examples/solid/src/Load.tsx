import type { Series } from "diem-client";
import { useEndpoint } from "diem-client/solid";
import { Show } from "solid-js";

export function Load(props: { zone: string }) {
  const load = useEndpoint<Series>(() => `/load/${props.zone}`);
  return (
    <Show when={load().data} fallback={<p>…</p>}>
      {(series) => (
        <p class={load().live ? "current" : "stale"}>
          {series().points.at(-1)?.value} {series().unit}
        </p>
      )}
    </Show>
  );
}
