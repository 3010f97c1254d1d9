import { expect, test } from "vitest";
import { way } from "../../src/admin/drawing.ts";
import { NODE_HEIGHT, layOut, type Box } from "../../src/admin/layout.ts";
import type { Diagram } from "../../src/admin/status.ts";
import { node } from "./overview.ts";

const STAGES = ["data", "log", "bridges", "servers", "clients"];

function pairs(count: number, group = ""): Diagram {
  const numbers = Array.from({ length: count }, (_, index) => index);
  return {
    stages: STAGES.map((name) => ({ name, title: name })),
    rows: count,
    nodes: [
      node("data", "data", (count - 1) / 2), node("kafka", "log", (count - 1) / 2), node("clients", "clients", (count - 1) / 2),
      ...numbers.flatMap((row) => [node(`${group}bridge-${row}`, "bridges", row, { group }), node(`${group}websocket-${row}`, "servers", row, { group })]),
    ],
    links: [],
  };
}

function overlap(one: Box, other: Box): boolean {
  return one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;
}

test.each([[320, 2], [360, 12], [768, 5], [1280, 12], [1320, 1]])("%d pixels hold %d pairs, and no node covers another", (width, count) => {
  const { nodes, width: used, height } = layOut(pairs(count), width);
  const boxes = [...nodes.values()];
  expect(boxes).toHaveLength(2 * count + 3);
  for (const [index, box] of boxes.entries()) {
    expect(box.x).toBeGreaterThanOrEqual(0);
    expect(box.x + box.width).toBeLessThanOrEqual(used + 0.01);
    expect(box.y + box.height).toBeLessThanOrEqual(height);
    expect(box.width).toBeGreaterThan(90);
    for (const other of boxes.slice(index + 1)) expect(overlap(box, other)).toBe(false);
  }
});

test("stages are columns where there is width, and bands where there is none", () => {
  const wide = layOut(pairs(2), 1200), narrow = layOut(pairs(2), 400);
  expect([wide.stacked, narrow.stacked]).toEqual([false, true]);
  expect(new Set(["bridge-0", "bridge-1"].map((id) => wide.nodes.get(id)?.x)).size).toBe(1);
  expect(wide.nodes.get("bridge-1")?.y).toBe(wide.nodes.get("websocket-1")?.y);
  const tops = ["data", "kafka", "bridge-0", "websocket-0", "clients"].map((id) => narrow.nodes.get(id)?.y ?? 0);
  expect(tops).toEqual([...tops].sort((one, other) => one - other));
  expect(new Set(tops).size).toBe(5);
});

test("a composite has a frame around its children", () => {
  const { frames, nodes } = layOut(pairs(2, "composite-1"), 1200);
  expect(frames.map(({ name }) => name)).toEqual(["composite-1"]);
  const [frame] = frames;
  for (const id of ["composite-1bridge-0", "composite-1websocket-1"]) {
    const box = nodes.get(id);
    expect(box && frame && box.x > frame.x && box.y > frame.y && box.y + NODE_HEIGHT < frame.y + frame.height).toBe(true);
  }
  expect(layOut(pairs(2), 1200).frames).toEqual([]);
});

test("a way over a stage takes a row that is free there", () => {
  const box = (x: number, y: number): Box => ({ x, y, width: 100, height: 40 });
  const [from, to] = [box(0, 0), box(400, 200)];
  expect(way(from, to, [from, to])).toBe("M100 20C250 20 250 220 400 220");
  expect(way(from, to, [from, to, box(200, 200)])).toBe("M100 20H374C387 20 387 220 400 220");
  expect(way(from, to, [from, to, box(200, 0)])).toBe("M100 20C113 20 113 220 126 220H400");
  expect(way(from, to, [from, to, box(200, 0), box(200, 200)])).toBe("M100 20C250 20 250 220 400 220");
});
