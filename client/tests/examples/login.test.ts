// @vitest-environment jsdom
/** The login page: a key becomes tokens, and is kept nowhere. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import html from "../../public/login.html?raw";
import { jwt } from "../sdk/world.ts";
import { FakeServer, eventually } from "./server.ts";

let server: FakeServer;
/** The keys that tokens were requested with. */
let keys: (string | null)[];

beforeEach(async () => {
  keys = [];
  server = new FakeServer().install();
  server.data.set("/load/GR", 5_000);
  const others = fetch;
  vi.stubGlobal("fetch", (url: string, options: RequestInit) => {
    if (url !== "v1/tokens") return others(url, options);
    const key = new Headers(options.headers).get("Authorization");
    keys.push(key);
    const iat = Date.now() / 1000;
    const isGood = options.method === "POST" && key === "Bearer diem_good";
    return Promise.resolve(Response.json({ token: jwt({ iat, exp: iat + 900 }) }, { status: isGood ? 200 : 401 }));
  });
  document.body.innerHTML = new DOMParser().parseFromString(html, "text/html").body.innerHTML;
  vi.resetModules();
  await import("../../public/login.js");
});

afterEach(async () => {
  // Else it goes on in the tests after this one, which have another page.
  document.getElementById("logout")?.click();
  await eventually(() => expect(text("state")).toBe("logged out"));
  vi.unstubAllGlobals();
});

const text = (id: string): string | null | undefined => document.getElementById(id)?.textContent;
const input = (id: string): HTMLInputElement => document.getElementById(id) as HTMLInputElement;

function submit(key: string, endpoint: string): void {
  input("key").value = key;
  input("endpoint").value = endpoint;
  document.getElementById("login")?.dispatchEvent(new Event("submit", { cancelable: true }));
}

test("a user logs in, sees what the key covers, is told what it does not, and logs out", async () => {
  server.forbidden.add("/secret");
  submit("diem_good", "/load/GR");
  await eventually(() => expect([text("state"), text("endpoints")]).toEqual(["logged in", "/load/GR: 5000 MW (version 5000)"]));
  expect([input("key").value, keys, server.tokens.length]).toEqual(["", ["Bearer diem_good"], 1]);
  submit("", "/secret");
  await eventually(() => expect(text("endpoints")).toContain("/secret: your key does not cover it"));
  server.change("/load/GR", 5_001);
  await eventually(() => expect(text("endpoints")).toContain("5001 MW"));
  expect(JSON.stringify({ ...localStorage, ...sessionStorage })).not.toContain("diem_good");
  document.getElementById("logout")?.click();
  await eventually(() => expect([text("state"), text("endpoints"), server.connections]).toEqual(["logged out", "", 0]));
});

test("a wrong key is named, and nobody is connected", async () => {
  submit("diem_bad", "/load/GR");
  await eventually(() => expect(text("state")).toBe("the key is not valid"));
  expect([server.connections, keys, text("endpoints")]).toEqual([0, ["Bearer diem_bad"], ""]);
});

test("the page keeps what it shows, and says so, while the quota of the key is used up", async () => {
  submit("diem_good", "/load/GR");
  await eventually(() => expect(text("endpoints")).toContain("5000 MW"));
  server.usedUp = true;
  server.change("/load/GR", 5_001);
  await eventually(() => expect(text("health")).toBe("not up to date: the quota of the key is used up"));
  expect([text("state"), text("endpoints")]).toEqual(["logged in", "/load/GR: 5000 MW (version 5000)"]);
  server.usedUp = false;
  await eventually(() => expect([text("health"), text("endpoints")]).toEqual(["", "/load/GR: 5001 MW (version 5001)"]));
});

test("the page shows that the key was revoked", async () => {
  submit("diem_good", "/load/GR");
  await eventually(() => expect(text("state")).toBe("logged in"));
  server.end(4503);
  await eventually(() => expect(text("state")).toBe("logged out: the key was revoked"));
});
