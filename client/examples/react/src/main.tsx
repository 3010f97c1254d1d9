import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";

const element = document.querySelector("#app");
if (element) createRoot(element).render(<StrictMode><App /></StrictMode>);
