import { createDiem } from "diem-client";
import { DIEM } from "diem-client/vue";

/** One for each request on the server, where it does nothing, and one for the whole page in the browser. */
export default defineNuxtPlugin(({ vueApp }) => {
  vueApp.provide(DIEM, createDiem({ configUrl: "http://localhost:8080/config.json" }));
});
