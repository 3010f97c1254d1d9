// @vitest-environment jsdom
import { expect, test, vi } from "vitest";
import { ForecastView } from "../../src/page/forecast.ts";
import { World, find, openPage, text } from "./desk.ts";

vi.mock("uplot", () => ({ default: { paths: {} } })); // it draws on a canvas, which jsdom does not have
vi.mock("../../src/page/plot.ts", () => ({
  Plot: class {
    show(): void {}
    tick(): void {}
  },
}));

test("a load that its source has withdrawn stays in sight, and says so", async () => {
  openPage();
  const world = new World();
  const view = new ForecastView(world.desk, find(".view.forecast"));
  view.select({ actual: "/load/GR", forecast: null, zone: "GR" }, "Greece");
  view.show(true);
  await Promise.resolve();
  const told = (gone: boolean): unknown => {
    world.tell("/load/GR", gone ? [] : [4000], { gone });
    world.frame();
    return [find(".view.forecast").dataset.stale, text(".forecast .note"), text(".forecast .actual b")];
  };
  expect(told(false)).toEqual(["false", "", "4000"]);
  expect(told(true)).toEqual(["true", "Withdrawn by its source", "4000"]);
  expect(told(false)).toEqual(["false", "", "4000"]);
});
