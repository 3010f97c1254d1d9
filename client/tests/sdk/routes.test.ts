import { beforeEach, expect, test } from "vitest";
import type { Located } from "../../src/sdk/routes.ts";
import { Routes } from "../../src/sdk/routes.ts";

const [A, B, C] = ["ws://a/ws", "ws://b/ws", "ws://c/ws"];
const NONE = new Map<string, boolean>();
let routes: Routes;

beforeEach(() => {
  routes = new Routes(() => 0.999999);
});

function answer(owners: Record<string, string | null>, hot: string[] = [], servers: string[] = []): Located {
  const places = Object.entries(owners).map(([endpoint, owner]) => [endpoint, { owner, hot: hot.includes(endpoint) }] as const);
  return { clone: 1, endpoints: new Map(places), rejected: {}, servers, foreign: null, epoch: 0 };
}

/** Locates what is due now; the steps as "+/a a" and "-/a a". */
function located(now: number, owners: Record<string, string | null>, hot: string[] = [], servers: string[] = [], open = NONE): string[] {
  const names = routes.toLocate(now);
  return told(routes.located(names, answer(owners, hot, servers), open, now));
}

const told = (steps: { kind: string; endpoint: string; url: string }[]): string[] =>
  steps.map(({ kind, endpoint, url }) => `${kind === "join" ? "+" : "-"}${endpoint} ${url[5]}`);

/** The endpoint arrives at `url`. */
function arrive(url: string, now = 0, endpoint = "/a"): void {
  routes.want(endpoint, now);
  located(now, { [endpoint]: url });
  routes.registered(url, [endpoint], now);
}

const due = (now: number): number => Math.round(routes.nextDue - now);

test("what is wanted is located at once, and joined at its owner", () => {
  routes.want("/a", 0);
  routes.want("/b", 0);
  expect(routes.hasUnplaced).toBe(true);
  expect(located(0, { "/a": A, "/b": B })).toEqual(["+/a a", "+/b b"]);
  expect([routes.hasUnplaced, routes.nextDue, routes.isRegistered("/a")]).toEqual([false, Number.POSITIVE_INFINITY, false]);
  expect(routes.registered(A, ["/a", "/b"], 0)).toEqual([]);
  expect([routes.isRegistered("/a"), routes.isRegistered("/b")]).toEqual([true, false]);
});

test("a request names at most a thousand endpoints", () => {
  for (let n = 0; n < 1_001; n += 1) routes.want(`/e/${n}`, 0);
  expect([routes.toLocate(0).length, routes.toLocate(0).length, routes.toLocate(0).length]).toEqual([1_000, 1, 0]);
});

test("moved with an owner: joined there first, and left here when that server has answered", () => {
  arrive(A);
  expect(told(routes.moved(A, ["/a", "/stranger"], B, 50))).toEqual(["+/a b"]);
  expect([routes.uses(A), routes.isRegistered("/a")]).toEqual([true, false]);
  expect(told(routes.registered(B, ["/a"], 60))).toEqual(["-/a a"]);
  expect([routes.uses(A), routes.isRegistered("/a")]).toEqual([false, true]);
});

test("moved without an owner: located, and what still names the same server is asked there again", () => {
  arrive(A);
  expect(routes.moved(A, ["/a"], null, 50)).toEqual([]);
  expect(located(50, { "/a": A })).toEqual(["+/a a"]);
  expect(routes.registered(A, ["/a"], 60)).toEqual([]);
  expect(routes.isRegistered("/a")).toBe(true);
});

test("a second moved of the server that is being left says nothing new", () => {
  arrive(A);
  routes.moved(A, ["/a"], B, 50);
  expect(routes.moved(A, ["/a"], C, 51)).toEqual([]);
  expect(routes.url("/a")).toBe(B);
});

test("not_owner leads on, at most three times, then to back-off with a doubling window", () => {
  routes.want("/a", 0);
  located(0, { "/a": A });
  expect(told(routes.notOwner(A, "/a", B, 1))).toEqual(["-/a a", "+/a b"]);
  expect(told(routes.notOwner(B, "/a", A, 2))).toEqual(["-/a b", "+/a a"]);
  expect(told(routes.notOwner(A, "/a", B, 3))).toEqual(["-/a a", "+/a b"]);
  const windows = [];
  for (let round = 0, now = 4; round < 8; round += 1) {
    expect(told(routes.notOwner(B, "/a", A, now))).toEqual(["-/a b"]);
    expect([routes.hasUnplaced, routes.toLocate(now)]).toEqual([true, []]);
    windows.push(due(now));
    now = routes.nextDue;
    expect(located(now, { "/a": B })).toEqual(["+/a b"]);
  }
  expect(windows).toEqual([500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
});

test("servers that take it and give it away again do not send it round for ever", () => {
  arrive(A);
  let joins = 0;
  for (let now = 1, [here, there] = [A, B]; now < 100; now += 1, [here, there] = [there, here]) {
    joins += routes.moved(here, ["/a"], there, now).filter(({ kind }) => kind === "join").length;
    routes.registered(there, ["/a"], now);
  }
  expect(joins).toBe(3);
});

test("hops are forgotten once it has stayed for a second", () => {
  arrive(A);
  for (const [now, from, to] of [[1, A, B], [2, B, C], [3, C, A], [1_003, A, B]] as const) {
    expect(told(routes.moved(from, ["/a"], to, now))).toContain(`+/a ${to[5]}`);
    routes.registered(to, ["/a"], now);
  }
});

test("servers that refuse it after it has stayed somewhere do not send it round for ever", () => {
  arrive(A);
  let joins = told(routes.moved(A, ["/a"], B, 50_000)).length;
  for (let now = 50_001, [here, there] = [B, C]; now < 50_100; now += 1, [here, there] = [there, here]) {
    joins += routes.notOwner(here, "/a", there, now).filter(({ kind }) => kind === "join").length;
  }
  expect(joins).toBe(3);
});

test("a server that names itself, or nobody, is a reason to locate", () => {
  arrive(A);
  expect(routes.moved(A, ["/a"], A, 5)).toEqual([]);
  expect(due(5)).toBe(0);
  routes.want("/b", 5);
  located(5, { "/b": B });
  expect(told(routes.notOwner(B, "/b", null, 6))).toEqual(["-/b b"]);
  expect(routes.toLocate(6)).toContain("/b");
});

test("refused where it is going: back to where it still is", () => {
  arrive(A);
  routes.moved(A, ["/a"], B, 50);
  expect(told(routes.notOwner(B, "/a", A, 51))).toEqual(["-/a b", "+/a a"]);
  expect(routes.registered(A, ["/a"], 52)).toEqual([]);
});

test("refused where it still was, after a reconnect: only that is left", () => {
  arrive(A);
  routes.moved(A, ["/a"], B, 50);
  expect(told(routes.notOwner(A, "/a", C, 51))).toEqual(["-/a a"]);
  expect(routes.url("/a")).toBe(B);
});

test("a lost connection: what was there is asked for again, and what was leaving has left", () => {
  arrive(A);
  arrive(B, 0, "/b");
  routes.moved(A, ["/a"], B, 50);
  expect(told(routes.lost(A))).toEqual(["-/a a"]);
  expect([routes.isRegistered("/a"), routes.isRegistered("/b")]).toEqual([false, true]);
  expect(routes.lost(B)).toEqual([]);
  expect([routes.isRegistered("/b"), routes.url("/b")]).toEqual([false, B]);
});

test("doubt: the same owner changes nothing, another one is joined before the present one is left, none keeps it", () => {
  arrive(A);
  routes.suspect(A, 9);
  expect(located(9, { "/a": A })).toEqual([]);
  routes.suspect(A, 10);
  expect(located(10, { "/a": null })).toEqual([]);
  expect([routes.isRegistered("/a"), routes.nextDue]).toEqual([true, Number.POSITIVE_INFINITY]);
  routes.suspect(A, 11);
  expect(located(11, { "/a": B })).toEqual(["+/a b"]);
  expect(told(routes.registered(B, ["/a"], 12))).toEqual(["-/a a"]);
});

test("what is located elsewhere after its connection was lost is left at once", () => {
  arrive(A);
  routes.lost(A);
  routes.suspect(A, 9);
  expect(located(9, { "/a": B })).toEqual(["+/a b", "-/a a"]);
});

test("an endpoint that nobody owns is located again with back-off", () => {
  routes.want("/a", 0);
  expect(located(0, { "/a": null })).toEqual([]);
  expect(due(0)).toBe(500);
  expect(located(500, {})).toEqual([]);
  expect(due(500)).toBe(1000);
});

test("an answer that was overtaken, by a move or by the end of the subscription, says nothing", () => {
  arrive(A);
  routes.suspect(A, 9);
  let names = routes.toLocate(9);
  routes.moved(A, ["/a"], B, 10);
  expect(routes.located(names, answer({ "/a": A }), NONE, 11)).toEqual([]);
  expect(routes.url("/a")).toBe(B);
  routes.suspect(B, 12);
  names = routes.toLocate(12);
  routes.release("/a");
  expect(routes.located(names, answer({ "/a": A }), NONE, 13)).toEqual([]);
});

test("a request without an answer leaves everything where it is, and due", () => {
  arrive(A);
  routes.suspect(A, 9);
  const names = routes.toLocate(9);
  routes.unanswered(names, 10);
  expect([routes.url("/a"), routes.isRegistered("/a"), due(10)]).toEqual([A, true, 0]);
});

test("releasing leaves both where it is and where it was", () => {
  arrive(A);
  routes.moved(A, ["/a"], B, 50);
  expect(told(routes.release("/a")).sort()).toEqual(["-/a a", "-/a b"]);
  expect([routes.uses(A), routes.uses(B), [...routes.endpoints]]).toEqual([false, false, []]);
});

test("a hot endpoint goes where the others go, else to the first of the servers", () => {
  for (const name of ["/hot", "/a"]) routes.want(name, 0);
  expect(located(0, { "/hot": null, "/a": B }, ["/hot"], [A, B])).toEqual(["+/a b", "+/hot b"]);
  routes = new Routes(() => 0);
  for (const name of ["/hot", "/hotter"]) routes.want(name, 0);
  expect(located(0, { "/hot": null, "/hotter": null }, ["/hot", "/hotter"], [C, A])).toEqual(["+/hot c", "+/hotter c"]);
});

test("a hot endpoint stays where it is live, and leaves a server that is not for one that is", () => {
  arrive(A, 0, "/hot");
  const doubted = (open: [string, boolean][], servers: string[]): string[] => {
    routes.suspect(routes.url("/hot") as string, 9);
    const steps = located(9, { "/hot": null }, ["/hot"], servers, new Map(open));
    routes.registered(routes.url("/hot") as string, ["/hot"], 9);
    return steps;
  };
  expect(doubted([[A, true]], [B])).toEqual([]);
  expect(doubted([[A, false]], [A, B])).toEqual([]); // all of them may be like that: no reason to roam
  expect(doubted([[A, false], [B, true]], [A, B])).toEqual(["+/hot b"]);
  expect(doubted([[B, false]], [C])).toEqual(["+/hot c"]); // no longer listed: it has left its group
  expect(doubted([], [C])).toEqual([]); // nowhere else to go
});

test("a name that the metadata service refuses is no longer looked for", () => {
  routes.want("/a", 0);
  const names = routes.toLocate(0);
  routes.located(names, { ...answer({}), rejected: { "/a": { code: "bad_name", message: "" } } }, NONE, 0);
  expect([routes.isRefused("/a"), routes.hasUnplaced, routes.nextDue]).toEqual([true, false, Number.POSITIVE_INFINITY]);
});

test("restart: all is to be located anew", () => {
  arrive(A);
  routes.restart(99);
  expect([routes.url("/a"), routes.toLocate(99)]).toEqual([null, ["/a"]]);
});
