// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import html from "../../examples/plain/index.html?raw";
import { FakeServer, eventually } from "./server.ts";

let server: FakeServer;

beforeEach(() => {
  server = new FakeServer().install();
});

afterEach(() => vi.unstubAllGlobals());

const text = (id: string): string | null | undefined => document.getElementById(id)?.textContent;

test("plain JavaScript: shows the load, each change of it, and stops when told", async () => {
  server.data.set("/load/GR", 5_000);
  document.body.innerHTML = new DOMParser().parseFromString(html, "text/html").body.innerHTML;
  await import("../../examples/plain/main.js");
  await eventually(() => expect([text("load"), text("live")]).toEqual(["5000 MW", "yes"]));
  server.change("/load/GR", 5_001);
  await eventually(() => expect(text("load")).toBe("5001 MW"));
  document.getElementById("stop")?.click();
  await eventually(() => expect(server.subscribed).toEqual([]));
});
