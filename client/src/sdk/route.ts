/** Partitioned mode: one endpoint's way from server to server. */

import { jitter } from "./pace.ts";

/** What is to be done with one endpoint at one server. A `join` of what is joined already asks again. */
export interface Step {
  readonly kind: "join" | "leave";
  readonly endpoint: string;
  readonly url: string;
}

/** Moves that servers ask for are followed at once this often; then there is a delay, and the metadata service is asked. */
const MAX_HOPS = 3;
/** What stayed this long has arrived: its hops are forgotten. */
const STAYED_MS = 1_000;

/** A new server is always joined before the old one is left. Pure: it is told the time (`now`, milliseconds). */
export class Route {
  readonly #endpoint: string;
  readonly #random: () => number;
  /** Where it is subscribed, or about to be; null = nobody has said where yet. */
  url: string | null = null;
  /** Whether that server has answered. */
  settled = false;
  #settledAt = Number.POSITIVE_INFINITY;
  /** Where it is subscribed still, until `url` has answered. */
  old: string | null = null;
  /** Whether `old` was left by our own choice: it has given nothing away. */
  oldServes = false;
  /** How often servers have sent it on since it last stayed. */
  #hops = 0;
  /** When it is to be located; Infinity = not. */
  due: number;
  /** Its locate is under way, and nothing has overtaken it. */
  asking = false;
  /** The metadata service refused the name. */
  refused = false;
  /** Its server has no room for it, and no other one has it. */
  limited = false;

  constructor(endpoint: string, random: () => number, now: number) {
    this.#endpoint = endpoint;
    this.#random = random;
    this.due = now;
  }

  /** Goes to `url`. */
  join(url: string): Step[] {
    const unsettled = this.settled ? null : this.url;
    if (this.settled) {
      this.old = this.url;
      this.oldServes = true;
    }
    if (this.old === url) this.old = null;
    this.url = url;
    this.settled = false;
    this.due = Number.POSITIVE_INFINITY;
    return [this.#step("join", url), ...(unsettled === null ? [] : [this.#step("leave", unsettled)])];
  }

  /** Is nowhere any more. */
  leave(): Step[] {
    const steps = this.leaveOld();
    if (this.url !== null) steps.push(this.#step("leave", this.url));
    this.url = null;
    this.settled = false;
    return steps;
  }

  leaveOld(): Step[] {
    const url = this.old;
    this.old = null;
    return url === null ? [] : [this.#step("leave", url)];
  }

  /** Its server has answered. */
  settle(now: number): Step[] {
    this.settled = true;
    this.limited = false;
    this.#settledAt = now;
    return this.leaveOld();
  }

  /** Its server gives it away, and may go on serving it until it is left. */
  moved(owner: string | null, now: number): Step[] {
    const from = this.url;
    this.old = from;
    this.oldServes = false;
    this.url = null;
    this.settled = false;
    return this.#hop(owner, from, now);
  }

  /** Its server refused to take it. */
  sentOn(owner: string | null, now: number): Step[] {
    const from = this.url;
    this.url = null;
    this.settled = false;
    return [...(from === null ? [] : [this.#step("leave", from)]), ...this.#hop(owner, from, now)];
  }

  /** Its server has no room for it: it stays where it still is, and is located again after a delay. */
  overLimit(now: number): Step[] {
    const steps = this.url === null ? [] : [this.#step("leave", this.url)];
    this.url = this.oldServes ? this.old : null;
    this.settled = this.url !== null;
    if (this.settled) this.old = null;
    this.limited = this.url === null && this.old === null;
    this.wait(now);
    return steps;
  }

  /** Nobody has it now: it is located again, after a delay. */
  wait(now: number): void {
    this.#delay(Math.max(this.#hops, MAX_HOPS) + 1, now);
  }

  #hop(owner: string | null, from: string | null, now: number): Step[] {
    const hops = now - this.#settledAt >= STAYED_MS ? 1 : this.#hops + 1;
    this.#settledAt = Number.POSITIVE_INFINITY; // a stay counts once, or refusals after it would go round for ever
    this.#delay(hops, now);
    return hops > MAX_HOPS || owner === null || owner === from ? [] : this.join(owner);
  }

  /** It is to be located at once, or after its hops with back-off. */
  #delay(hops: number, now: number): void {
    this.#hops = hops;
    this.asking = false; // an answer that is under way is older than what was just heard
    this.due = hops > MAX_HOPS ? now + jitter(this.#random, hops - MAX_HOPS - 1) : now;
  }

  #step(kind: Step["kind"], url: string): Step {
    return { kind, endpoint: this.#endpoint, url };
  }
}
