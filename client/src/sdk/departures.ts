/** When requests for data may go out: later where the service asked for it, spread where a crowd asks for the same reason. */

import type { Environment } from "./environment.ts";
import type { Flight } from "./flight.ts";

const SPREAD_MS = 2_000;

export class Departures {
  readonly #env: Environment;
  #notBefore = 0;
  #spreadUntil = -1;

  constructor(env: Environment) {
    this.#env = env;
  }

  /** Many tabs are about to fetch for the same reason: what starts within the next two seconds starts at a random moment. */
  spread(): void {
    this.#spreadUntil = Math.max(this.#spreadUntil, this.#env.now() + SPREAD_MS);
  }

  /** The service wants to be left alone for `ms`; what comes then is spread, too. */
  hold(ms: number): void {
    this.#notBefore = Math.max(this.#notBefore, this.#env.now() + ms);
    this.#spreadUntil = Math.max(this.#spreadUntil, this.#notBefore + SPREAD_MS);
  }

  /** The delay of a request that could go out now, milliseconds. */
  get delay(): number {
    const spread = this.#env.now() < this.#spreadUntil ? this.#env.random() * SPREAD_MS : 0;
    return this.#held + spread;
  }

  /** Resolves after `ms`; when the flight is hurried, within two seconds, but not while the service wants to be left alone. */
  wait(flight: Flight, ms: number): Promise<void> {
    if (ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        flight.hurry = null;
        resolve();
      };
      let due = this.#env.now() + ms;
      let timer = this.#env.later(ms, done);
      flight.hurry = () => {
        const now = this.#env.now();
        const delay = this.#held + this.#env.random() * SPREAD_MS;
        if (now + delay >= due) return;
        due = now + delay;
        this.#env.cancel(timer);
        timer = this.#env.later(delay, done);
      };
    });
  }

  get #held(): number {
    return Math.max(0, this.#notBefore - this.#env.now());
  }
}
