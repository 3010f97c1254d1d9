"use client";

import type { Series } from "diem-client";
import { createDiem } from "diem-client";
import type { InitialData } from "diem-client/initial";
import { DiemProvider, useConnection, useEndpoint } from "diem-client/react";

/** One connection for the whole page; on a server it does nothing. */
const diem = createDiem({ configUrl: "http://localhost:8080/config.json" });

function Load({ zone }: { zone: string }) {
  const { data, live } = useEndpoint<Series>(`/load/${zone}`);
  if (data === null) return <p>…</p>;
  return <p className={live ? "current" : "stale"}>{`${data.points.at(-1)?.value} ${data.unit}`}</p>;
}

function Connection() {
  const { state, reason } = useConnection();
  return <footer>{`${state} ${reason}`.trim()}</footer>;
}

export function Live({ initial }: { initial: InitialData }) {
  return (
    <DiemProvider diem={diem} initial={initial}>
      <Load zone="GR" />
      <Connection />
    </DiemProvider>
  );
}
