// @vitest-environment jsdom
import type { Diem } from "diem-client";
import { createDiem } from "diem-client";
import { StrictMode } from "react";
import type { Root } from "react-dom/client";
import { createRoot } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DiemContext } from "../../examples/react/diem.tsx";
import { Load } from "../../examples/react/Load.tsx";
import { FakeServer, eventually } from "./server.ts";

let server: FakeServer;
let diem: Diem;
let root: Root;

beforeEach(() => {
  server = new FakeServer().install();
  diem = createDiem();
  document.body.innerHTML = "<main></main>";
  root = createRoot(document.querySelector("main") as HTMLElement);
});

afterEach(() => {
  root.unmount();
  diem.close();
  vi.unstubAllGlobals();
});

const show = (zone: string): void =>
  root.render(<StrictMode><DiemContext value={diem}><Load zone={zone} /></DiemContext></StrictMode>);
const shown = (): string | null | undefined => document.querySelector("p")?.textContent;

test("React: renders the dataset and each change of it, and ends its subscription with the component", async () => {
  server.data.set("/load/GR", 5_000);
  show("GR");
  await eventually(() => expect(shown()).toBe("5000 MW"));
  await eventually(() => expect(document.querySelector("p")?.className).toBe("current"));
  server.change("/load/GR", 5_001);
  await eventually(() => expect(shown()).toBe("5001 MW"));
  root.render(null);
  await eventually(() => expect(server.subscribed).toEqual([]));
});

test("React: another endpoint never shows the data of the one before", async () => {
  server.data.set("/load/GR", 5_000);
  show("GR");
  await eventually(() => expect(shown()).toBe("5000 MW"));
  show("IT");
  await eventually(() => expect(shown()).toBe("…"));
  await eventually(() => expect(server.subscribed).toEqual(["/load/IT"]));
  server.change("/load/IT", 30_000);
  await eventually(() => expect(shown()).toBe("30000 MW"));
});
