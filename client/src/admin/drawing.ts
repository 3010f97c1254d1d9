/** Draws the topology as inline SVG. Levels have a shape and a word as well as a colour. */

import { layOut, type Box, type Layout } from "./layout.ts";
import type { Diagram, Level, Link, Node } from "./status.ts";
import { make } from "./svg.ts";

/** Symbols of 12 by 12, around the origin. */
const SYMBOLS: Record<Level, string> = {
  ok: "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
  warning: "M0 -5L5.4 4.4H-5.4Z",
  critical: "M-4.4 -4.4H4.4V4.4H-4.4Z",
};

/** Replaces the content of `root` with the drawing, in the width of `root`. */
export function draw(root: HTMLElement, diagram: Diagram, width = root.clientWidth): void {
  const layout = layOut(diagram, Math.max(260, width));
  const svg = make("svg", { viewBox: `0 0 ${layout.width} ${layout.height}`, width: layout.width, height: layout.height, role: "img" });
  svg.setAttribute("aria-label", describe(diagram));
  for (const frame of layout.frames) svg.append(frameOf(frame));
  svg.append(layout.stacked ? stems(diagram, layout) : links(diagram.links, layout));
  for (const { title, x, y } of layout.titles) svg.append(text(title, "stage", x, y));
  // Without frames, the composite's number identifies the parent of a child.
  const numbered = layout.stacked && new Set(diagram.nodes.map(({ group }) => group)).size > 2;
  for (const node of diagram.nodes) {
    const box = layout.nodes.get(node.id);
    const label = numbered && node.group ? `${node.group.split("-").at(-1)}/${node.label}` : node.label;
    if (box) svg.append(nodeOf({ ...node, label }, box));
  }
  root.replaceChildren(svg);
}

/** The drawing in words: the table of processes has the rest. */
export function describe({ stages, nodes }: Diagram): string {
  const parts = stages.map(({ name, title }) => {
    const inside = nodes.filter(({ stage }) => stage === name);
    const bad = inside.filter(({ level }) => level !== "ok").map(({ label, word }) => `${label} ${word}`);
    return `${title}: ${bad.length > 0 ? bad.join(", ") : inside.length === 1 ? (inside[0]?.detail || "ready") : `${inside.length} ready`}`;
  });
  return `Topology from the sources to the clients. ${parts.join(". ")}.`;
}

function nodeOf(node: Node, { x, y, width, height }: Box): SVGElement {
  const group = make("g", { class: "node", transform: `translate(${x} ${y})` });
  group.dataset.level = node.level;
  group.dataset.node = node.id;
  group.append(
    make("rect", { width, height, rx: 9 }),
    make("path", { class: "symbol", d: SYMBOLS[node.level], transform: "translate(15 17)" }),
    text(fit(node.label, width - 34, 7.4), "label", 27, 21),
  );
  if (node.detail) group.append(text(fit(node.detail, width - 20), "detail", 12, 38));
  return group;
}

/** Cuts a text to about so many pixels, at so many for a letter. */
function fit(label: string, width: number, letter = 6.2): string {
  const most = Math.floor(width / letter);
  return label.length > most ? `${label.slice(0, most - 1)}…` : label;
}

function frameOf({ name, x, y, width, height }: Box & { name: string }): SVGElement {
  const group = make("g", { class: "frame" });
  group.append(make("rect", { x, y, width, height, rx: 14 }), text(name, "frame-name", x + 12, y + 15));
  return group;
}

function links(all: readonly Link[], { nodes }: Layout): SVGElement {
  const group = make("g", { class: "links" });
  // Those that carry nothing are drawn last, above the others.
  for (const link of [...all].sort((one, other) => Number(other.flows) - Number(one.flows))) {
    const [from, to] = [nodes.get(link.source), nodes.get(link.target)];
    if (!from || !to) continue;
    const path = make("path", { d: way(from, to, [...nodes.values()]) });
    mark(path, link.flows, link.control);
    group.append(path);
  }
  return group;
}

const BEND = 26; // as wide as the narrowest gap between two stages

/** The path from one node to another; over a stage between them in a row that is free there. */
export function way(from: Box, to: Box, boxes: readonly Box[]): string {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.x, to.y + to.height / 2];
  const curve = (a: number, b: number, c: number, d: number): string => `C${(a + c) / 2} ${b} ${(a + c) / 2} ${d} ${c} ${d}`;
  const between = boxes.filter(({ x, width }) => x > x1 && x + width < x2);
  const isFree = (level: number): boolean => !between.some(({ y, height }) => level > y && level < y + height);
  if (between.length > 0 && isFree(y1)) return `M${x1} ${y1}H${x2 - BEND}${curve(x2 - BEND, y1, x2, y2)}`;
  if (between.length > 0 && isFree(y2)) return `M${x1} ${y1}${curve(x1, y1, x1 + BEND, y2)}H${x2}`;
  return `M${x1} ${y1}${curve(x1, y1, x2, y2)}`;
}

/** One line from each stage to the next, marked if any of its links is idle. */
function stems({ stages, nodes, links: all }: Diagram, layout: Layout): SVGElement {
  const group = make("g", { class: "links" });
  const stageOf = new Map(nodes.map(({ id, stage }) => [id, stage]));
  stages.slice(1).forEach(({ name }) => {
    const into = all.filter(({ target, control }) => !control && stageOf.get(target) === name);
    const boxes = nodes.filter(({ stage }) => stage === name).flatMap(({ id }) => layout.nodes.get(id) ?? []);
    if (into.length === 0 || boxes.length === 0) return;
    const top = Math.min(...boxes.map(({ y }) => y));
    const path = make("path", { d: `M20 ${top - 52}V${top - 24}` });
    mark(path, into.every(({ flows }) => flows), false);
    group.append(path);
  });
  return group;
}

function mark(path: SVGElement, flows: boolean, control: boolean): void {
  path.dataset.flows = String(flows);
  path.dataset.control = String(control);
}

function text(content: string, className: string, x: number, y: number): SVGElement {
  const element = make("text", { class: className, x, y });
  element.textContent = content;
  return element;
}
