import { useDataset, useLive } from "./diem";

export function Load({ zone }: { zone: string }) {
  const dataset = useDataset(`/load/${zone}`);
  const live = useLive();
  if (dataset === null) return <p>…</p>;
  return (
    <p className={live && dataset.confirmed ? "current" : "stale"}>
      {dataset.points.at(-1)?.value} {dataset.unit}
    </p>
  );
}
