import { DiemProvider, useConnection } from "diem-client/solid";
import { diem } from "./diem";
import { Load } from "./Load";
import { Scores } from "./Scores";

function Connection() {
  const connection = useConnection();
  return <footer>{`${connection().state} ${connection().reason}`.trim()}</footer>;
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
