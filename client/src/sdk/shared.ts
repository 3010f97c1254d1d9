/**
 * What the partitioned mode has in common with the rest. It is handed over: bundlers split off what two files import, so that
 * every page would load the SDK in two pieces, which are half a kilobyte longer after gzip.
 */

import { Backoff, windowMs } from "./backoff.ts";
import { request } from "./http.ts";
import { OFFLINE, sameLive } from "./liveness.ts";
import { Subject } from "./observable.ts";
import { Session } from "./session.ts";
import { ResettableTimer, soon } from "./timers.ts";

export const SHARED = { Backoff, OFFLINE, ResettableTimer, Session, Subject, request, sameLive, soon, windowMs };
export type Shared = typeof SHARED;
