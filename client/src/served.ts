/** The SDK as deployments serve it, `diem.js`: its deployment is the one that it came from, below a path, too. */

import type { Diem, DiemOptions } from "./sdk/index.ts";
import { createDiem as create } from "./sdk/index.ts";

export * from "./sdk/index.ts";

/** Connects to the deployment that serves this module, unless `configUrl` names another one. */
export const createDiem = (options: DiemOptions = {}): Diem => create({ configUrl: new URL(/* @vite-ignore */ "config.json", import.meta.url).href, ...options });
