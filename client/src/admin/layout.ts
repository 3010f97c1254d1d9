/** Positions of the drawing: stages from left to right where there is width, from top to bottom where there is none. */

import type { Diagram, Node } from "./status.ts";

export const NODE_HEIGHT = 46;
const ROW = NODE_HEIGHT + 14;
const HEAD = 26; // the titles of the stages
const FRAME = 9; // around the children of a composite
const MIN_WIDTH = 120;
const MAX_WIDTH = 176;
const MIN_GAP = 26;
const STACKED_GAP = 34;

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly nodes: ReadonlyMap<string, Box>;
  /** Where the title of each stage begins. */
  readonly titles: readonly { readonly title: string; readonly x: number; readonly y: number }[];
  /** Frames around the children of composites. */
  readonly frames: readonly (Box & { readonly name: string })[];
  /** Links are drawn between stages, not between nodes. */
  readonly stacked: boolean;
}

/** Lays out a diagram within `width` pixels. */
export function layOut(diagram: Diagram, width: number): Layout {
  const columns = diagram.stages.length;
  return columns * MIN_WIDTH + (columns - 1) * MIN_GAP <= width ? across(diagram, width) : stacked(diagram, width);
}

function across(diagram: Diagram, width: number): Layout {
  const columns = diagram.stages.length;
  const nodeWidth = Math.min(MAX_WIDTH, (width - 2 * FRAME - (columns - 1) * MIN_GAP) / columns);
  const step = columns > 1 ? (width - 2 * FRAME - nodeWidth) / (columns - 1) : 0;
  const column = new Map(diagram.stages.map(({ name }, index) => [name, FRAME + index * step]));
  const framed = diagram.nodes.some(({ group }) => group !== "");
  const top = HEAD + (framed ? FRAME + 14 : 0);
  const nodes = new Map<string, Box>();
  for (const node of diagram.nodes) {
    nodes.set(node.id, { x: column.get(node.stage) ?? 0, y: top + node.row * ROW, width: nodeWidth, height: NODE_HEIGHT });
  }
  const titles = diagram.stages.map(({ name, title }) => ({ title, x: column.get(name) ?? 0, y: 14 }));
  const height = Math.max(...[...nodes.values()].map((box) => box.y + box.height)) + (framed ? FRAME : 0) + 4;
  return { width, height, nodes, titles, frames: frames(diagram.nodes, nodes), stacked: false };
}

function frames(nodes: readonly Node[], boxes: ReadonlyMap<string, Box>): (Box & { name: string })[] {
  const groups = new Map<string, Box[]>();
  for (const { group, id } of nodes) {
    const box = boxes.get(id);
    if (group !== "" && box !== undefined) groups.set(group, [...(groups.get(group) ?? []), box]);
  }
  return [...groups].map(([name, inside]) => {
    const x = Math.min(...inside.map((box) => box.x)) - FRAME;
    const y = Math.min(...inside.map((box) => box.y)) - FRAME - 14;
    const right = Math.max(...inside.map((box) => box.x + box.width)) + FRAME;
    const bottom = Math.max(...inside.map((box) => box.y + box.height)) + FRAME;
    return { name, x, y, width: right - x, height: bottom - y };
  });
}

function stacked(diagram: Diagram, width: number): Layout {
  const nodes = new Map<string, Box>();
  const titles: { title: string; x: number; y: number }[] = [];
  const most = Math.max(1, Math.floor((width + 10) / (MIN_WIDTH + 22)));
  let y = 0;
  for (const { name, title } of diagram.stages) {
    const inside = diagram.nodes.filter(({ stage }) => stage === name);
    titles.push({ title, x: 0, y: y + 14 });
    y += HEAD - 4;
    const perRow = Math.min(most, inside.length);
    const nodeWidth = Math.min(220, (width - 2 - (perRow - 1) * 10) / perRow);
    inside.forEach(({ id }, index) => {
      const x = 1 + (index % perRow) * (nodeWidth + 10); // of half a border
      nodes.set(id, { x, y: y + Math.floor(index / perRow) * (NODE_HEIGHT + 8), width: nodeWidth, height: NODE_HEIGHT });
    });
    y += Math.ceil(inside.length / perRow) * (NODE_HEIGHT + 8) - 8 + STACKED_GAP;
  }
  return { width, height: Math.max(1, y - STACKED_GAP + 4), nodes, titles, frames: [], stacked: true };
}
