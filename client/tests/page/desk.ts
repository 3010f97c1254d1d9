/** The page's markup in jsdom, and a desk whose data the test hands out and whose frames it runs. */

import { readFileSync } from "node:fs";
import { vi } from "vitest";
import { Frames } from "../../src/page/frames.ts";
import type { Desk } from "../../src/page/view.ts";
import { Watching } from "../../src/page/watching.ts";
import type { Dataset, Diem } from "../../src/sdk/index.ts";

export class World {
  readonly takers = new Map<string, (dataset: Dataset) => void>();
  #frames: (() => void)[] = [];
  version = 0;

  readonly diem = {
    watch: (endpoint: string, take: (dataset: Dataset) => void) => {
      this.takers.set(endpoint, take);
      return () => void this.takers.delete(endpoint);
    },
    updates: { connection: { value: { state: "open" } }, isLive: () => true },
    data: { health: { value: { failing: new Map() } } },
  } as unknown as Diem;

  readonly desk: Desk = {
    diem: this.diem,
    frames: new Frames((run) => void this.#frames.push(run)),
    watching: new Watching(this.diem),
  };

  say(endpoint: string, ...values: number[]): void {
    this.tell(endpoint, values);
  }

  /** Says it with what is particular to it. */
  tell(endpoint: string, values: number[], particular: Partial<Dataset> = {}): void {
    const points = values.map((value, hour) => ({ time: `2026-01-01T0${hour}:00:00Z`, value }));
    const series = { unit: "MW", resolution: "PT1H", points, ...particular };
    const { unit, resolution } = series;
    this.send(endpoint, "application/vnd.diem.series+json", { unit, resolution, points: series.points }, series);
  }

  /** Says something of any kind. */
  send(endpoint: string, mediaType: string, value: unknown, particular: object = {}): void {
    const version = (this.version += 1);
    this.takers.get(endpoint)?.({ endpoint, version, time: "2026-01-01T00:00:01Z", mediaType, value, gone: false, confirmed: true, ...particular } as Dataset);
  }

  frame(): void {
    for (const run of this.#frames.splice(0)) run();
  }
}

export const find = (selector: string): HTMLElement => document.querySelector(selector) as HTMLElement;
export const text = (selector: string): string | null | undefined => document.querySelector(selector)?.textContent;

/** The markup as it is before any script has run. */
export function openPage(): void {
  vi.stubGlobal("matchMedia", () => ({ matches: true })); // less motion: jsdom has none
  document.documentElement.innerHTML = readFileSync(`${import.meta.dirname}/../../index.html`, "utf8").replace(/<script.*<\/script>/g, "");
}
