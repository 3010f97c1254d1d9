import { DIEM } from "diem-client/vue";
import { createApp } from "vue";
import App from "./App.vue";
import { diem } from "./diem";

createApp(App).provide(DIEM, diem).mount("#app");
