import { expect, test } from "vitest";
import { Ledger } from "../../src/sdk/ledger.ts";
import type { ClientMessage, Rejection } from "../../src/sdk/messages.ts";

const nothing = (): number => 0;

test("a request names at most 100 endpoints, departures first", () => {
  const ledger = new Ledger();
  for (let n = 0; n < 150; n += 1) ledger.want(`/e/${n}`);
  const sizes = [ledger.next(nothing), ledger.next(nothing)].map((message) => Object.keys(message?.endpoints ?? {}).length);
  expect(sizes).toEqual([100, 50]);
  expect(ledger.next(nothing)).toBeNull();
  ledger.release("/e/7");
  ledger.want("/new");
  expect(ledger.next(nothing)?.type).toBe("unsubscribe");
  expect(ledger.next(nothing)?.type).toBe("subscribe");
  expect(ledger.settled).toBe(true);
});

test("known versions are what is held, null for nothing", () => {
  const ledger = new Ledger();
  ledger.want("/a");
  ledger.want("/b");
  expect(ledger.next((name) => (name === "/a" ? 7 : 0))).toEqual({ type: "subscribe", id: 1, endpoints: { "/a": 7, "/b": null } });
});

test("a rejection of an older request says nothing about a newer one", () => {
  const ledger = new Ledger();
  const rejection = { "/a": { code: "forbidden", message: "" } };
  ledger.want("/a");
  const first = ledger.next(nothing) as ClientMessage;
  ledger.release("/a");
  ledger.next(nothing);
  ledger.want("/a");
  const third = ledger.next(nothing) as ClientMessage;
  expect(ledger.rejected(first.id, rejection)).toEqual([]);
  expect(ledger.isRefused("/a")).toBe(false);
  expect(ledger.rejected(third.id, rejection)).toHaveLength(1);
  expect(ledger.isRefused("/a")).toBe(true);
  expect(ledger.settled).toBe(true);
});

test("a name released and wanted again before the server heard is asked for again with what is held", () => {
  const ledger = new Ledger();
  ledger.want("/a");
  ledger.next(nothing);
  ledger.release("/a");
  ledger.want("/a");
  expect(ledger.next(() => 4)).toEqual({ type: "subscribe", id: 2, endpoints: { "/a": 4 } });
  ledger.release("/a");
  expect(ledger.next(nothing)).toEqual({ type: "unsubscribe", id: 3, endpoints: ["/a"] });
});

test("what was refused for the limit is asked for again when places became free", () => {
  const ledger = new Ledger();
  ledger.want("/a");
  ledger.want("/b");
  ledger.next(nothing);
  ledger.rejected(1, { "/a": { code: "limit", message: "" }, "/b": { code: "forbidden", message: "" } });
  ledger.retryLimited();
  expect(ledger.next(nothing)?.endpoints).toEqual({ "/a": null });
});

test("what is given up after its second request has failed is unsubscribed: the first may have registered it", () => {
  const ledger = new Ledger();
  ledger.want("/a");
  ledger.next(nothing);
  ledger.renew("/a");
  ledger.next(nothing);
  ledger.failed(2);
  ledger.release("/a");
  expect(ledger.next(nothing)).toEqual({ type: "unsubscribe", id: 3, endpoints: ["/a"] });
  expect(ledger.settled).toBe(true);
});

/** A server that works through its messages in order, some time after they were sent, and refuses some names. */
class Server {
  readonly inbox: ClientMessage[] = [];
  readonly registered = new Set<string>();
  readonly replies: { id: number; rejected: Record<string, Rejection>; error: boolean }[] = [];
  readonly random: () => number;

  constructor(random: () => number) {
    this.random = random;
  }

  step(): void {
    const message = this.inbox.shift();
    if (message === undefined) return;
    const rejected: Record<string, Rejection> = {};
    if (message.type === "unsubscribe") {
      for (const name of message.endpoints) this.registered.delete(name);
      return;
    }
    const error = this.random() < 0.1;
    for (const name of error ? [] : Object.keys(message.endpoints)) {
      if (this.random() < 0.1) rejected[name] = { code: "forbidden", message: "" };
      if (name in rejected) this.registered.delete(name);
      else this.registered.add(name);
    }
    this.replies.push({ id: message.id, rejected, error });
  }
}

test("whatever the interleaving, the server ends with the wanted set without what it refused", () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < 300; round += 1) {
    const ledger = new Ledger();
    let server = new Server(random);
    const wanted = new Set<string>();
    const reply = (): void => {
      const answer = server.replies.shift();
      if (answer?.error) ledger.failed(answer.id);
      else if (answer) ledger.rejected(answer.id, answer.rejected);
    };
    const send = (): void => {
      const message = ledger.next(nothing);
      if (message) server.inbox.push(message);
    };
    for (let step = 0; step < 60; step += 1) {
      const name = `/e/${Math.floor(random() * 6)}`;
      const dice = random();
      if (dice < 0.25) wanted.add(name), ledger.want(name);
      else if (dice < 0.45) wanted.delete(name), ledger.release(name);
      else if (dice < 0.65) send();
      else if (dice < 0.83) server.step();
      else if (dice < 0.98) reply();
      else (server = new Server(random)), ledger.reset();
    }
    while (!ledger.settled || server.inbox.length > 0 || server.replies.length > 0) send(), server.step(), reply();
    const expected = [...wanted].filter((name) => !ledger.isRefused(name)).sort();
    expect([...server.registered].sort(), `round ${round}`).toEqual(expected);
  }
});

test("registered is what the latest request for a name was answered with, until it is given up or refused", () => {
  const ledger = new Ledger();
  for (const name of ["/a", "/b"]) ledger.want(name);
  ledger.next(nothing);
  expect(ledger.confirmed(7, ["/a"])).toEqual([]);
  expect(ledger.confirmed(1, ["/a", "/stranger"])).toEqual(["/a"]);
  expect([ledger.isConfirmed("/a"), ledger.unconfirmed]).toEqual([true, ["/b"]]);
  ledger.renew("/a");
  ledger.next(nothing);
  expect([ledger.isConfirmed("/a"), ledger.confirmed(1, ["/a"])]).toEqual([true, []]); // asked again, it is delivered still
  ledger.rejected(2, { "/a": { code: "not_owner", message: "" } });
  expect(ledger.isConfirmed("/a")).toBe(false);
  ledger.confirmed(1, ["/b"]);
  ledger.release("/b");
  expect([ledger.isConfirmed("/b"), ledger.unconfirmed]).toEqual([false, ["/a"]]);
});
