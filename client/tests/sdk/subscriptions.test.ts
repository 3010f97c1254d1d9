import { expect, test } from "vitest";
import { SubscriptionSet } from "../../src/sdk/subscriptions.ts";
import type { ClientMessage, Rejection } from "../../src/sdk/messages.ts";

/** The cases of the algorithm are in tests/cases/subscription_set.json. */
const nothing = (): number => 0;

test("what was refused for the limit is asked for again when places became free", () => {
  const subscriptions = new SubscriptionSet();
  subscriptions.add("/a");
  subscriptions.add("/b");
  subscriptions.next(nothing);
  subscriptions.rejected(1, { "/a": { code: "limit", message: "" }, "/b": { code: "forbidden", message: "" } });
  subscriptions.retry("limit");
  expect(subscriptions.next(nothing)?.endpoints).toEqual({ "/a": null });
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
      if (dice < 0.25) wanted.add(name), subscriptions.add(name);
      else if (dice < 0.45) wanted.delete(name), subscriptions.remove(name);
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
  for (const name of ["/a", "/b"]) subscriptions.add(name);
  subscriptions.next(nothing);
  expect(subscriptions.confirmed(7, ["/a"])).toEqual([]);
  expect(subscriptions.confirmed(1, ["/a", "/unknown"])).toEqual(["/a"]);
  expect([subscriptions.isConfirmed("/a"), subscriptions.unconfirmed]).toEqual([true, ["/b"]]);
  subscriptions.add("/a");
  subscriptions.next(nothing);
  expect([subscriptions.isConfirmed("/a"), subscriptions.confirmed(1, ["/a"])]).toEqual([true, []]); // asked again, it is delivered still
  subscriptions.rejected(2, { "/a": { code: "not_owner", message: "" } });
  expect(subscriptions.isConfirmed("/a")).toBe(false);
  subscriptions.confirmed(1, ["/b"]);
  subscriptions.remove("/b");
  expect([subscriptions.isConfirmed("/b"), subscriptions.unconfirmed]).toEqual([false, ["/a"]]);
});
