/** A world in which all of the SDK is loaded, also what is imported when it is needed: under load, that takes longer than a walk. */

import { World, turns } from "./world.ts";

import.meta.glob(["../../src/sdk/*.ts", "!**/node.ts"], { eager: true });

/** Waits for nothing real. */
export class LoadedWorld extends World {
  override settle(): Promise<void> {
    return turns();
  }
}
