import { DiemProvider, useConnection } from "diem-client/react";
import { diem } from "./diem";
import { Load } from "./Load";
import { Scores } from "./Scores";

function Connection() {
  const { state, reason } = useConnection();
  return <footer>{`${state} ${reason}`.trim()}</footer>;
}

export function App() {
  return (
    <DiemProvider diem={diem}>
      <Load zone="GR" />
      <Scores />
      <Connection />
    </DiemProvider>
  );
}
