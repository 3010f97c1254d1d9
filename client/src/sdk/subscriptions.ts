/** The subscriptions of one connection: those wanted, those requested, and the next message that makes them equal. */

import type { ClientMessage, Rejection } from "./messages.ts";
import { MAX_NAMES } from "./messages.ts";

/**
 * A server processes the messages of a connection in order, so its final set follows from what was sent, whatever replies
 * are pending. Only the reply to the *latest* request for a name says anything about it: each name keeps the id of that
 * request. Pure. The Python client has the same class (diem/client/link.py); tests/cases/subscription_set.json has the
 * cases that both pass.
 */
export class SubscriptionSet {
  readonly #wanted = new Set<string>();
  /** Name -> id of the latest request that subscribes to it, on this connection. */
  readonly #requested = new Map<string, number>();
  /** Wanted names that the server rejected on this connection. */
  readonly #refused = new Map<string, Rejection>();
  /** Wanted names that the server has registered. */
  readonly #confirmed = new Set<string>();
  /** Wanted names to request again. */
  readonly #renewed = new Set<string>();
  /** How many the server registers for one connection. */
  #limit = Infinity;
  #lastId = 0;

  /**
   * Wants `endpoint`; one that is wanted already is requested again. So is one that the server has not unsubscribed yet:
   * updates that came meanwhile were dropped, and the known version of the new request gets them back.
   */
  add(endpoint: string): void {
    if (this.#wanted.has(endpoint) || this.#requested.has(endpoint)) this.#renewed.add(endpoint);
    this.#refused.delete(endpoint);
    this.#wanted.add(endpoint);
  }

  /** Stops wanting `endpoint`. */
  remove(endpoint: string): void {
    this.#wanted.delete(endpoint);
    this.#renewed.delete(endpoint);
    this.#refused.delete(endpoint);
    this.#confirmed.delete(endpoint);
  }

  has(endpoint: string): boolean {
    return this.#wanted.has(endpoint);
  }

  /** True if the server refused this wanted name on this connection. */
  isRefused(endpoint: string): boolean {
    return this.#refused.has(endpoint);
  }

  /** True if the server has registered it on this connection. */
  isConfirmed(endpoint: string): boolean {
    return this.#confirmed.has(endpoint);
  }

  /** Wanted names that are not registered. */
  get unconfirmed(): string[] {
    return [...this.#wanted].filter((name) => !this.#confirmed.has(name));
  }

  /**
   * Begins a new connection, on which nothing was requested yet, and nothing rejected but what the token does not cover, to a
   * server that registers `limit` names; 0 = it does not say.
   */
  reset(limit = 0): void {
    this.#limit = limit || Infinity;
    this.#requested.clear();
    this.#renewed.clear();
    this.#confirmed.clear();
    this.retry();
  }

  /** Refuses wanted names beyond the server's limit, without a request; returns them. Earlier names have priority. */
  refuseExcess(): [string, Rejection][] {
    const message = `over ${this.#limit} subscriptions (DIEM_*_SUBSCRIPTIONS)`;
    const excess = [...this.#wanted].filter((name) => !this.#refused.has(name)).slice(this.#limit).filter((name) => !this.#requested.has(name));
    return excess.map((name) => {
      const rejection = { code: "limit", message };
      this.#refused.set(name, rejection);
      return [name, rejection];
    });
  }

  /** Whether `next` has no message. */
  get isSynced(): boolean {
    return this.#surplus().length === 0 && this.#missing().length === 0;
  }

  /**
   * The next message that brings the server closer to the wanted set; null: there is none. It counts as sent. Unsubscribes
   * go first, because they free places under the server's limit. `held` gives known versions (0 = none).
   */
  next(held: (endpoint: string) => number): ClientMessage | null {
    const surplus = this.#surplus();
    if (surplus.length > 0) {
      for (const name of surplus) this.#requested.delete(name);
      return { type: "unsubscribe", id: ++this.#lastId, endpoints: surplus };
    }
    const missing = this.#missing();
    if (missing.length === 0) return null;
    const id = ++this.#lastId;
    for (const name of missing) {
      this.#requested.set(name, id);
      this.#renewed.delete(name);
    }
    return { type: "subscribe", id, endpoints: Object.fromEntries(missing.map((name) => [name, held(name) || null])) };
  }

  /** Applies the registered names of a `subscribed` reply; returns those that are wanted, and whose latest request it is. */
  confirmed(id: number, names: readonly string[]): string[] {
    const found = names.filter((name) => this.#requested.get(name) === id && this.#wanted.has(name));
    for (const name of found) this.#confirmed.add(name);
    return found;
  }

  /**
   * Applies the rejected names of a `subscribed` reply; returns those that are wanted, and whose latest request it is. What is
   * about to be requested again has a later one. With id 0, that of `auth`, a server drops names that the token does not cover,
   * whatever their request was.
   */
  rejected(id: number, rejections: Record<string, Rejection>): [string, Rejection][] {
    return Object.entries(rejections).filter(([name, rejection]) => {
      const latest = this.#requested.get(name);
      if (!latest || (id && latest !== id) || this.#renewed.has(name)) return false;
      this.#requested.delete(name);
      this.#confirmed.delete(name);
      if (this.#wanted.has(name)) this.#refused.set(name, rejection);
      return this.#wanted.has(name);
    });
  }

  /** The names whose latest request is `id`: an `error` leaves them unregistered. */
  requestedBy(id: number): string[] {
    return [...this.#requested].filter(([, latest]) => latest === id).map(([name]) => name);
  }

  /**
   * Requests the names of a failed request again. They still count as requested, because an earlier request may have
   * registered them: those that are removed meanwhile are unsubscribed.
   */
  failed(id: number): void {
    for (const name of this.requestedBy(id)) if (this.#wanted.has(name)) this.#renewed.add(name);
  }

  /** Requests again the first `most` names that were refused with the code `only`; without it, all but what another token may allow. */
  retry(only?: "limit" | "forbidden", most = Infinity): void {
    for (const [name, { code }] of this.#refused) {
      if ((only ? code === only : code !== "forbidden") && most-- > 0) this.#refused.delete(name);
    }
  }

  #surplus(): string[] {
    return first(this.#requested.keys(), (name) => !this.#wanted.has(name));
  }

  #missing(): string[] {
    return first(this.#wanted, (name) => this.#renewed.has(name) || !(this.#requested.has(name) || this.#refused.has(name)));
  }
}

function first(names: Iterable<string>, keep: (name: string) => boolean): string[] {
  const found: string[] = [];
  for (const name of names) {
    if (found.length === MAX_NAMES) break;
    if (keep(name)) found.push(name);
  }
  return found;
}
