// @vitest-environment jsdom
import "@angular/compiler"; // the example is compiled here as it is read; an application is compiled when it is built
import type { ApplicationRef } from "@angular/core";
import { provideZonelessChangeDetection } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";
import { provideDiem } from "diem-client/angular";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LoadComponent } from "../../examples/angular/src/app/load.component.ts";
import { FakeServer, eventually } from "./server.ts";

let server: FakeServer;
let app: ApplicationRef;

beforeEach(async () => {
  server = new FakeServer().install();
  server.data.set("/load/GR", 5_000);
  document.body.innerHTML = "<diem-load></diem-load>";
  app = await bootstrapApplication(LoadComponent, { providers: [provideZonelessChangeDetection(), provideDiem()] });
});

afterEach(() => {
  if (!app.destroyed) app.destroy();
  vi.unstubAllGlobals();
});

const shown = (): string | undefined => document.querySelector("p")?.textContent?.trim();

test("Angular: renders the dataset and each change of it", async () => {
  await eventually(() => expect(shown()).toBe("5000 MW"));
  await eventually(() => expect(document.querySelector("p.stale")).toBeNull());
  server.change("/load/GR", 5_001);
  await eventually(() => expect(shown()).toBe("5001 MW"));
});

test("Angular: the subscription ends with the component, the connection with the application", async () => {
  await eventually(() => expect(server.subscribed).toEqual(["/load/GR"]));
  app.components[0]?.destroy();
  await eventually(() => expect(server.subscribed).toEqual([]));
  expect(server.connections).toBe(1);
  app.destroy();
  expect(server.connections).toBe(0);
});
