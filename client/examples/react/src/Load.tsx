import type { Series } from "diem-client";
import { useEndpoint } from "diem-client/react";

export function Load({ zone }: { zone: string }) {
  const { data, live } = useEndpoint<Series>(`/load/${zone}`);
  if (data === null) return <p>…</p>;
  return (
    <p className={live ? "current" : "stale"}>
      {data.points.at(-1)?.value} {data.unit}
    </p>
  );
}
