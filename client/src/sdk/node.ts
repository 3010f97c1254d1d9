/** `createDiem` for programs: Node 22 or later, or an earlier one with the WebSocket of `ws`. Pages never load it. */

import type { Diem, DiemOptions, OnProblem } from "./diem.ts";
import { createDiem as createForHost } from "./diem.ts";
import { clientId } from "./environment.ts";
import type { Environment, Socket, Timer } from "./environment.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Subscription } from "./updates.ts";

export interface NodeOptions extends Omit<DiemOptions, "configUrl"> {
  /** Where the configuration is, as `https://diem.example/config.json`. */
  readonly configUrl: string;
  /** The class of connections, where Node has none: `import { WebSocket } from "ws"`. */
  readonly WebSocket?: unknown;
}

export interface NodeDiem extends Omit<Diem, "watch"> {
  /** As in a page. */
  watch<T = unknown>(endpoint: string, onData: (snapshot: Snapshot<T>) => void, onProblem?: OnProblem): Subscription;
  /**
   * Iterates over the snapshot that is held and every newer one. A slow loop gets the latest: one waits at most. Leaving the loop ends
   * the subscription, and so does `signal`. A refused subscription is thrown.
   */
  watch<T = unknown>(endpoint: string, options?: { readonly signal?: AbortSignal }): AsyncIterableIterator<Snapshot<T>>;
}

type SocketType = new (url: string, protocols: string[]) => Socket;

/** What the SDK takes from Node: nothing is stored on a disk. */
export function nodeEnvironment(configUrl: string, WebSocket?: unknown): Environment {
  const Connection = (WebSocket ?? globalThis.WebSocket) as SocketType | undefined;
  if (!Connection) throw new Error('this Node has no WebSocket: use Node 22, or createDiem({ WebSocket }) with that of "ws"');
  return {
    now: () => performance.now(),
    wall: () => Date.now(),
    random: () => Math.random(),
    later: (ms, run) => setTimeout(run, ms),
    cancel: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
    microtask: (run) => queueMicrotask(run),
    // As an error that a callback of an event emitter throws.
    report: (error) => void setTimeout(() => { throw error; }),
    // An error without a handler would end the program with the class of `ws`; a close always follows it.
    socket: (url, protocol) => Object.assign(new Connection(url, [protocol]), { onerror: () => undefined }),
    client: clientId(null),
    fetch: (url, options) => fetch(url, options),
    storage: null,
    baseUrl: configUrl,
  };
}

/** Connects to a deployment until `close()`, after which nothing keeps the program running. Throws without a WebSocket. */
export function createDiem({ WebSocket, ...options }: NodeOptions): NodeDiem {
  const host = options.environment ?? nodeEnvironment(options.configUrl, WebSocket);
  const timers = new Set<Timer>();
  let closed = false;
  const unref = (timer: Timer): void => (timer as { unref?(): void }).unref?.();
  const cancel = (timer: Timer): void => {
    timers.delete(timer);
    host.cancel(timer);
  };
  const later = (ms: number, run: () => void): Timer => {
    const timer = host.later(ms, () => {
      timers.delete(timer);
      run();
    });
    timers.add(timer);
    if (closed) unref(timer);
    return timer;
  };
  const environment: Environment = { ...host, later, cancel };
  const diem = createForHost({ ...options, environment });
  const watch = diem.watch as (endpoint: string, onData: (snapshot: Snapshot) => void, onProblem?: OnProblem) => Subscription;
  const ends = new Set<() => void>(); // of iterations
  return {
    ...diem,
    watch: ((endpoint: string, how?: ((snapshot: Snapshot) => void) | { signal?: AbortSignal }, onProblem?: OnProblem) =>
      typeof how === "function" ? watch(endpoint, how, onProblem) : iterate(watch, ends, endpoint, how?.signal)) as NodeDiem["watch"],
    close: () => {
      diem.close();
      for (const end of ends) end();
      closed = true;
      for (const timer of timers) unref(timer); // views that were not stopped repeat their requests
    },
  };
}

async function* iterate(
  watch: (endpoint: string, onData: (snapshot: Snapshot) => void, onProblem: OnProblem) => Subscription,
  ends: Set<() => void>,
  endpoint: string,
  signal?: AbortSignal,
): AsyncGenerator<Snapshot> {
  let latest: Snapshot | null = null;
  let refusal: Error | null = null;
  let ended = signal?.aborted ?? false;
  let wake: () => void = () => undefined;
  const end = (): void => {
    ended = true;
    wake();
  };
  const stop = watch(endpoint, (snapshot) => {
    latest = snapshot;
    wake();
  }, (problem) => {
    // What is fetched again later ends nothing.
    if (!(problem instanceof Error) && problem.code !== "lost") refusal = new Error(`${endpoint}: ${problem.message}`, { cause: problem });
    wake();
  });
  signal?.addEventListener("abort", end);
  ends.add(end);
  try {
    while (!ended) {
      const found = latest as Snapshot | null;
      latest = null;
      if (found) yield found;
      else if (refusal) throw refusal as Error;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  } finally {
    ends.delete(end);
    signal?.removeEventListener("abort", end);
    stop();
  }
}
