/** Check of this device's clock against the server's. */

import type { Environment } from "./environment.ts";

/** Answers and updates take a while; no clock that is set by a network is off by as much. */
const TOLERANCE_MS = 60_000;

/** Says so, once, where the clock differs from the server's by more than a minute; `server`: its time in Unix milliseconds, NaN if unknown. */
export function checkClock(env: Environment, server: number): void {
  const aheadMs = env.wall() - server;
  if (Math.abs(aheadMs) > TOLERANCE_MS) void import("./skew.ts").then(({ warn }) => warn(env, aheadMs), () => undefined); // few clocks are wrong
}
