import { createDiem } from "diem-client";

/** One connection for the whole page. */
export const diem = createDiem({ configUrl: "http://localhost:8080/config.json" });
