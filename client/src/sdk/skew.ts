/** Effects of a wrong device clock on a page, for its console. */

import type { Environment } from "./environment.ts";

const MINUTE_MS = 60_000;
const HOUR_MIN = 60;
const DAY_MIN = 24 * HOUR_MIN;

const warned = new WeakSet<Environment>();

/** Warns once a page; `aheadMs` is negative where the device's clock is behind. */
export function warn(env: Environment, aheadMs: number): void {
  if (warned.has(env)) return;
  warned.add(env);
  const minutes = Math.round(Math.abs(aheadMs) / MINUTE_MS);
  const [count, unit] = minutes < HOUR_MIN ? [minutes, "minutes"] : minutes < 2 * DAY_MIN ? [Math.round(minutes / HOUR_MIN), "hours"] : [Math.round(minutes / DAY_MIN), "days"];
  const effect = aheadMs < -DAY_MIN * MINUTE_MS ? "every update is fetched, up to two seconds late, and ages of data are wrong" : "ages of data are wrong";
  console.warn(`DIEM: the clock of this device and the server's differ: this one is ${count} ${unit} ${aheadMs < 0 ? "behind" : "ahead"}, so ${effect}. Set it right.`);
}
