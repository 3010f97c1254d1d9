import { expect, test } from "vitest";
import { SubscriptionSet } from "../../src/sdk/subscriptions.ts";
import type { ClientMessage, Rejection } from "../../src/sdk/messages.ts";

const nothing = (): number => 0;

test("a request names at most 100 endpoints, departures first", () => {
  const subscriptions = new SubscriptionSet();
  for (let n = 0; n < 150; n += 1) subscriptions.want(`/e/${n}`);
  const sizes = [subscriptions.next(nothing), subscriptions.next(nothing)].map((message) => Object.keys(message?.endpoints ?? {}).length);
  expect(sizes).toEqual([100, 50]);
  expect(subscriptions.next(nothing)).toBeNull();
  subscriptions.release("/e/7");
  subscriptions.want("/new");
  expect(subscriptions.next(nothing)?.type).toBe("unsubscribe");
  expect(subscriptions.next(nothing)?.type).toBe("subscribe");
  expect(subscriptions.isSynced).toBe(true);
});

test("known versions are what is held, null for nothing", () => {
  const subscriptions = new SubscriptionSet();
  subscriptions.want("/a");
  subscriptions.want("/b");
  expect(subscriptions.next((name) => (name === "/a" ? 7 : 0))).toEqual({ type: "subscribe", id: 1, endpoints: { "/a": 7, "/b": null } });
});

test("a rejection of an older request says nothing about a newer one", () => {
  const subscriptions = new SubscriptionSet();
  const rejection = { "/a": { code: "forbidden", message: "" } };
  subscriptions.want("/a");
  const first = subscriptions.next(nothing) as ClientMessage;
  subscriptions.release("/a");
  subscriptions.next(nothing);
  subscriptions.want("/a");
  const third = subscriptions.next(nothing) as ClientMessage;
  expect(subscriptions.rejected(first.id, rejection)).toEqual([]);
  expect(subscriptions.isRefused("/a")).toBe(false);
  expect(subscriptions.rejected(third.id, rejection)).toHaveLength(1);
  expect(subscriptions.isRefused("/a")).toBe(true);
  expect(subscriptions.isSynced).toBe(true);
});

test("a name released and wanted again before the server heard is asked for again with what is held", () => {
  const subscriptions = new SubscriptionSet();
  subscriptions.want("/a");
  subscriptions.next(nothing);
  subscriptions.release("/a");
  subscriptions.want("/a");
  expect(subscriptions.next(() => 4)).toEqual({ type: "subscribe", id: 2, endpoints: { "/a": 4 } });
  subscriptions.release("/a");
  expect(subscriptions.next(nothing)).toEqual({ type: "unsubscribe", id: 3, endpoints: ["/a"] });
});

test("what was refused for the limit is asked for again when places became free", () => {
  const subscriptions = new SubscriptionSet();
  subscriptions.want("/a");
  subscriptions.want("/b");
  subscriptions.next(nothing);
  subscriptions.rejected(1, { "/a": { code: "limit", message: "" }, "/b": { code: "forbidden", message: "" } });
  subscriptions.retryLimited();
  expect(subscriptions.next(nothing)?.endpoints).toEqual({ "/a": null });
});

test("what is given up after its second request has failed is unsubscribed: the first may have registered it", () => {
  const subscriptions = new SubscriptionSet();
  subscriptions.want("/a");
  subscriptions.next(nothing);
  subscriptions.renew("/a");
  subscriptions.next(nothing);
  subscriptions.failed(2);
  subscriptions.release("/a");
  expect(subscriptions.next(nothing)).toEqual({ type: "unsubscribe", id: 3, endpoints: ["/a"] });
  expect(subscriptions.isSynced).toBe(true);
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
    const subscriptions = new SubscriptionSet();
    let server = new Server(random);
    const wanted = new Set<string>();
    const reply = (): void => {
      const answer = server.replies.shift();
      if (answer?.error) subscriptions.failed(answer.id);
      else if (answer) subscriptions.rejected(answer.id, answer.rejected);
    };
    const send = (): void => {
      const message = subscriptions.next(nothing);
      if (message) server.inbox.push(message);
    };
    for (let step = 0; step < 60; step += 1) {
      const name = `/e/${Math.floor(random() * 6)}`;
      const dice = random();
      if (dice < 0.25) wanted.add(name), subscriptions.want(name);
      else if (dice < 0.45) wanted.delete(name), subscriptions.release(name);
      else if (dice < 0.65) send();
      else if (dice < 0.83) server.step();
      else if (dice < 0.98) reply();
      else (server = new Server(random)), subscriptions.reset();
    }
    while (!subscriptions.isSynced || server.inbox.length > 0 || server.replies.length > 0) send(), server.step(), reply();
    const expected = [...wanted].filter((name) => !subscriptions.isRefused(name)).sort();
    expect([...server.registered].sort(), `round ${round}`).toEqual(expected);
  }
});

test("registered is what the latest request for a name was answered with, until it is given up or refused", () => {
  const subscriptions = new SubscriptionSet();
  for (const name of ["/a", "/b"]) subscriptions.want(name);
  subscriptions.next(nothing);
  expect(subscriptions.confirmed(7, ["/a"])).toEqual([]);
  expect(subscriptions.confirmed(1, ["/a", "/stranger"])).toEqual(["/a"]);
  expect([subscriptions.isConfirmed("/a"), subscriptions.unconfirmed]).toEqual([true, ["/b"]]);
  subscriptions.renew("/a");
  subscriptions.next(nothing);
  expect([subscriptions.isConfirmed("/a"), subscriptions.confirmed(1, ["/a"])]).toEqual([true, []]); // asked again, it is delivered still
  subscriptions.rejected(2, { "/a": { code: "not_owner", message: "" } });
  expect(subscriptions.isConfirmed("/a")).toBe(false);
  subscriptions.confirmed(1, ["/b"]);
  subscriptions.release("/b");
  expect([subscriptions.isConfirmed("/b"), subscriptions.unconfirmed]).toEqual([false, ["/a"]]);
});
