import { render } from "solid-js/web";
import { App } from "./App";

const element = document.querySelector("#app");
if (element) render(() => <App />, element);
