import { readEndpoints } from "diem-client/initial";
import { connection } from "next/server";
import { Live } from "./live";

/** Rendered for each request, with the latest data. */
export default async function Page() {
  await connection();
  const initial = await readEndpoints("http://localhost:8080/config.json", ["/load/GR"]);
  return <Live initial={initial} />;
}
