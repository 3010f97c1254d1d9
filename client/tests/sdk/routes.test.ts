/** What the SDK alone has of routes, for the status of the page; the algorithm's cases are in tests/cases/routes.json. */

import { expect, test } from "vitest";
import { windowMs } from "../../src/sdk/backoff.ts";
import type { Located } from "../../src/sdk/routes.ts";
import { Routes } from "../../src/sdk/routes.ts";

const A = "ws://a/ws";

const answer = (owner: string | null): Located =>
  ({ clone: 1, endpoints: new Map([["/a", { owner, hot: false }]]), rejected: {}, servers: [], untrusted: null, epoch: 0 });

function located(owner: string | null, now = 0): Routes {
  const routes = new Routes(windowMs);
  routes.add("/a", now);
  routes.located(routes.toLocate(now), answer(owner), new Map(), now);
  return routes;
}

test("an endpoint is unplaced until its server is known, and unregistered until that has answered", () => {
  const routes = located(A);
  expect([routes.hasUnplaced, routes.hasUnregistered]).toEqual([false, true]);
  routes.registered(A, ["/a"], 0);
  expect([routes.hasUnplaced, routes.hasUnregistered]).toEqual([false, false]);
  routes.notOwner(A, "/a", null, 1);
  expect([routes.hasUnplaced, routes.hasUnregistered]).toEqual([true, false]);
  expect(located(null).hasUnplaced).toBe(true);
});

test("an endpoint that is subscribed at its old server still is not unregistered", () => {
  const routes = located(A);
  routes.registered(A, ["/a"], 0);
  routes.moved(A, ["/a"], "ws://b/ws", 1);
  expect([routes.hasUnplaced, routes.hasUnregistered]).toEqual([false, false]);
});

test("what is refused, by the metadata service or for the limit, is neither", () => {
  const routes = located(A);
  routes.overLimit(A, "/a", 0);
  expect([routes.hasUnplaced, routes.hasUnregistered]).toEqual([false, false]);
  const rejected = new Routes(windowMs);
  rejected.add("/a", 0);
  rejected.located(rejected.toLocate(0), { ...answer(null), rejected: { "/a": { code: "bad_name", message: "" } } }, new Map(), 0);
  expect([rejected.hasUnplaced, rejected.isRefused("/a")]).toEqual([false, true]);
});

test("restart: everything is to be located anew", () => {
  const routes = located(A);
  routes.registered(A, ["/a"], 0);
  routes.restart(99);
  expect([routes.url("/a"), routes.toLocate(99), [...routes.endpoints]]).toEqual([null, ["/a"], ["/a"]]);
});
