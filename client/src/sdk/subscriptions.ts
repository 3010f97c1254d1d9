/** The subscriptions of one connection: those wanted, those requested, and the next message that makes them equal. */

import type { ClientMessage, Rejection } from "./messages.ts";
import { MAX_NAMES } from "./messages.ts";

/**
 * A server works through the messages of a connection in order, so its final set follows from what was sent, whatever
 * replies are still under way. Only the reply to the *latest* request for a name says anything about it: that is why each
 * name remembers the id it was asked for with. Pure: no clock, no socket.
 */
export class SubscriptionSet {
  readonly #wanted = new Set<string>();
  /** name -> id of the subscribe that stands for it at the server, once all that was sent is processed. */
  readonly #requested = new Map<string, number>();
  readonly #refused = new Map<string, Rejection>();
  /** What the server has registered: it has answered, and delivers. */
  readonly #confirmed = new Set<string>();
  /** Released and wanted again before the server heard of it. */
  readonly #renewed = new Set<string>();
  #lastId = 0;

  /**
   * Wants `endpoint`. If it was released a moment ago, what came meanwhile was dropped: it is asked for again even though
   * the server never knew, and the known version of the new request gets back what was missed.
   */
  want(endpoint: string): void {
    if (!this.#wanted.has(endpoint) && this.#requested.has(endpoint)) this.#renewed.add(endpoint);
    this.#wanted.add(endpoint);
  }

  release(endpoint: string): void {
    this.#wanted.delete(endpoint);
    this.#renewed.delete(endpoint);
    this.#refused.delete(endpoint);
    this.#confirmed.delete(endpoint);
  }

  wants(endpoint: string): boolean {
    return this.#wanted.has(endpoint);
  }

  /** Whether the server refused this wanted name on this connection. */
  isRefused(endpoint: string): boolean {
    return this.#refused.has(endpoint);
  }

  /** Whether the server has registered it on this connection. */
  isConfirmed(endpoint: string): boolean {
    return this.#confirmed.has(endpoint);
  }

  /** What is wanted and not registered. */
  get unconfirmed(): string[] {
    return [...this.#wanted].filter((name) => !this.#confirmed.has(name));
  }

  /** Asks again for what is wanted, whatever the server answered. */
  renew(endpoint: string): void {
    this.#refused.delete(endpoint);
    this.#renewed.add(endpoint);
  }

  /** A new connection: the server knows nothing yet, and what was refused may be asked for again. */
  reset(): void {
    this.#requested.clear();
    this.#renewed.clear();
    this.#refused.clear();
    this.#confirmed.clear();
  }

  /** Whether `next` has something to say. */
  get isSynced(): boolean {
    return this.#surplus().length === 0 && this.#missing().length === 0;
  }

  /**
   * The next message that brings the server closer to the wanted set, or null when nothing is left to say. It counts as
   * sent. FetchScheduler go first: they free places under the server's limit. `held` gives known versions (0 = none).
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

  /** Takes the registered names of a `subscribed` reply; returns those that are registered for good. */
  confirmed(id: number, names: readonly string[]): string[] {
    const found = names.filter((name) => this.#requested.get(name) === id && this.#wanted.has(name));
    for (const name of found) this.#confirmed.add(name);
    return found;
  }

  /** Takes the rejected names of a `subscribed` reply; returns those that are refused now. */
  rejected(id: number, rejections: Record<string, Rejection>): [string, Rejection][] {
    return Object.entries(rejections).filter(([name, rejection]) => {
      if (this.#requested.get(name) !== id) return false;
      this.#requested.delete(name);
      this.#confirmed.delete(name);
      if (this.#wanted.has(name)) this.#refused.set(name, rejection);
      return this.#wanted.has(name);
    });
  }

  /** The names that request `id` still stands for: what an `error` reply to it leaves unregistered. */
  requestedBy(id: number): string[] {
    return [...this.#requested].filter(([, asked]) => asked === id).map(([name]) => name);
  }

  /**
   * Request `id` registered nothing: its names are asked for again. They still count as asked for, since a request before
   * that one may have registered them: what is given up meanwhile is unsubscribed.
   */
  failed(id: number): void {
    for (const name of this.requestedBy(id)) if (this.#wanted.has(name)) this.#renewed.add(name);
  }

  /** Places became free: what was refused for the limit may be asked for again. */
  retryLimited(): void {
    for (const [name, { code }] of this.#refused) if (code === "limit") this.#refused.delete(name);
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
