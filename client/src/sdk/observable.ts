/** A value that can be read and observed. */

export interface Observable<T> {
  readonly value: T;
  /** Calls `listener` with the present value at once and with every later one; returns a function that stops it. */
  observe(listener: (value: T) => void): () => void;
}

/** Calls the application: an error that it throws is reported as an uncaught one, and stops neither the SDK nor other listeners. */
export function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

export class Subject<T> implements Observable<T> {
  #value: T;
  readonly #listeners = new Set<(value: T) => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) if (this.#listeners.has(listener)) guarded(() => listener(value));
  }

  observe(listener: (value: T) => void): () => void {
    const own = (value: T): void => listener(value);
    this.#listeners.add(own);
    own(this.#value);
    return () => void this.#listeners.delete(own);
  }
}
