/** A resettable timer, and work that is batched to the end of a turn of the event loop. */

import type { Environment, Timer } from "./environment.ts";

/** One timer: setting it again replaces the previous callback. */
export class ResettableTimer {
  readonly #env: Environment;
  #timer: Timer = null;

  constructor(env: Environment) {
    this.#env = env;
  }

  get isSet(): boolean {
    return this.#timer !== null;
  }

  set(ms: number, run: () => void): void {
    this.clear();
    this.#timer = this.#env.later(ms, () => {
      this.#timer = null;
      run();
    });
  }

  clear(): void {
    this.#env.cancel(this.#timer);
    this.#timer = null;
  }
}

/** A function that runs `run` once after this turn of the event loop, however often it is called before. */
export function soon(env: Environment, run: () => void): () => void {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    env.microtask(() => {
      due = false;
      run();
    });
  };
}
