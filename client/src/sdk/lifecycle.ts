/**
 * The life of a page: what a browser does to it, and what its connection does then (docs/sdk.md section 4.1). Every page loads it, after
 * what it needs to connect; it imports types alone.
 */

import type { DataCache } from "./cache.ts";
import type { Environment } from "./environment.ts";
import type { UpdatesService } from "./updates.ts";

/** How often the clocks are compared. */
const TICK_MS = 2_000;
/** A clock that has advanced by so much more than the other: the machine was asleep, or its clock was set. */
const JUMP_MS = 5_000;

/** The part of `navigator.connection` (Network Information API) that is used; browsers without it say `online` alone. */
interface Network extends EventTarget {
  readonly type?: string;
}

/** Follows the page's events until the returned function is called; `cache` is saved when the page may end. */
export function follow(env: Environment, updates: UpdatesService, cache: DataCache): () => void {
  const { navigator, document } = globalThis as { navigator?: { connection?: Network }; document?: EventTarget & { readonly visibilityState?: string } };
  const network = navigator?.connection;
  const state = (): string => updates.connection.value.state;
  let isPaused = false;
  /** Frames that had been received when the network was lost; -1: it was not. */
  let framesBefore = -1;
  let { type } = network ?? {};
  let timer: unknown = null;
  let ahead = 0;

  /** A page with a connection is not kept for `back`, and a frozen one does not read: servers would close it. */
  const pause = (): void => {
    cache.save();
    isPaused ||= state() !== "closed";
    if (isPaused) updates.close();
  };
  /** Restores what `pause` has closed, or checks a connection that may be dead since. */
  const resume = (): void => {
    if (document?.visibilityState === "hidden") return;
    if (isPaused || state() === "open") updates.connect();
    isPaused = false;
  };
  /** Dials now, unless a server has forbidden it; a connection that was silent since the network was lost is of no use. */
  const dial = (isOther: boolean): void => {
    if (state() === "closed") return;
    if (state() === "open" && isOther) updates.close();
    updates.connect();
  };
  const events: [EventTarget | undefined, Record<string, () => void>][] = [
    [globalThis as unknown as EventTarget, {
      pagehide: pause,
      pageshow: resume,
      focus: resume,
      offline: () => (framesBefore = updates.stats.frames),
      online: () => {
        dial(framesBefore === updates.stats.frames);
        framesBefore = -1;
      },
      visibilitychange: resume,
    }],
    [document, { freeze: pause, resume }],
    [network, {
      // It also comes with every estimate of the round trip.
      change: () => {
        if (network?.type !== type) dial(true);
        type = network?.type;
      },
    }],
  ];
  const listen = (verb: "addEventListener" | "removeEventListener"): void => {
    for (const [target, listeners] of events) {
      for (const [event, listener] of Object.entries(listeners)) target?.[verb]?.(event, listener);
    }
  };
  /** While a machine is asleep its monotonic clock may stand still, and its timers with it. */
  const tick = (): void => {
    const before = ahead;
    ahead = env.wall() - env.now();
    if (timer !== null && ahead - before > JUMP_MS) dial(false);
    timer = state() === "closed" ? null : env.later(TICK_MS, tick);
  };
  const unobserve = updates.connection.observe(() => timer ?? tick());
  listen("addEventListener");
  return () => {
    listen("removeEventListener");
    unobserve();
    env.cancel(timer);
  };
}
