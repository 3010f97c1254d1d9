// @vitest-environment jsdom
import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { ForecastView } from "../../src/page/forecast.ts";
import { Frames } from "../../src/page/frames.ts";
import { Watching } from "../../src/page/watching.ts";
import type { Dataset, Diem } from "../../src/sdk/index.ts";

vi.mock("uplot", () => ({ default: { paths: {} } })); // it draws on a canvas, which jsdom does not have
vi.mock("../../src/page/plot.ts", () => ({
  Plot: class {
    show(): void {}
    tick(): void {}
  },
}));

test("a load that its source has withdrawn stays in sight, and says so", async () => {
  document.documentElement.innerHTML = readFileSync(`${import.meta.dirname}/../../index.html`, "utf8").replace(/<script.*<\/script>/g, "");
  const takers = new Map<string, (dataset: Dataset) => void>();
  const diem = {
    watch: (endpoint: string, take: (dataset: Dataset) => void) => {
      takers.set(endpoint, take);
      return () => void takers.delete(endpoint);
    },
    updates: { connection: { value: { state: "open" } }, isLive: () => true },
    data: { health: { value: { failing: new Map() } } },
  } as unknown as Diem;
  const root = document.querySelector<HTMLElement>(".view.forecast") as HTMLElement;
  const frames: (() => void)[] = [];
  const view = new ForecastView({ diem, frames: new Frames((run) => void frames.push(run)), watching: new Watching(diem) }, root);
  view.select({ actual: "/load/GR", forecast: null, zone: "GR" }, "Greece");
  view.show(true);
  await Promise.resolve();
  const told = (version: number, gone: boolean): void => {
    const points = gone ? [] : [{ time: "2026-01-01T00:00:00Z", value: 4000 }];
    const time = "2026-01-01T00:00:01Z";
    takers.get("/load/GR")?.({ endpoint: "/load/GR", version, time, unit: "MW", resolution: "PT15M", points, gone, confirmed: true });
    for (const run of frames.splice(0)) run();
  };
  const seen = (): unknown => [root.dataset.stale, root.querySelector(".note")?.textContent, root.querySelector(".actual b")?.textContent];
  told(1, false);
  expect(seen()).toEqual(["false", "", "4000"]);
  told(2, true);
  expect(seen()).toEqual(["true", "Withdrawn by its source", "4000"]);
  told(3, false);
  expect(seen()).toEqual(["false", "", "4000"]);
});
