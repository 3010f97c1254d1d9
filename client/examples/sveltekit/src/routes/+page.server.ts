import { readEndpoints } from "diem-client/initial";
import type { PageServerLoad } from "./$types";

export const load: PageServerLoad = async () => ({
  initial: await readEndpoints("http://localhost:8080/config.json", ["/load/GR"]),
});
