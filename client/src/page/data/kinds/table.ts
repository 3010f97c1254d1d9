/** A document that is a list of objects, as a table: one row an object, one column a field, with the marks of a difference. */

import { find, make, setData, setText } from "../../dom.ts";
import type { Delta } from "../difference.ts";
import { isArray, isObject } from "../difference.ts";
import { Pager } from "../pager.ts";
import { brief } from "../tree.ts";

/** Rows at once. */
const ROWS = 20;
/** Columns of a table at most; objects with more fields are read in the tree. */
const MAX_COLUMNS = 10;
/** Objects whose fields are the columns. */
const MAX_SCANNED = 1_000;

/** The fields of a list of objects, in the order in which they appear; none for anything else. */
export function columnsOf(value: unknown): string[] {
  if (!isArray(value)) return [];
  const found = new Set<string>();
  for (const item of value.slice(0, MAX_SCANNED)) {
    if (!isObject(item)) return [];
    for (const name of Object.keys(item)) found.add(name);
    if (found.size > MAX_COLUMNS) return [];
  }
  return [...found];
}

export class DocumentTable {
  readonly #root: HTMLElement;
  readonly #pager: Pager;
  #value: unknown = null;
  #delta: Delta | null = null;

  constructor(root: HTMLElement) {
    this.#root = root;
    this.#pager = new Pager(find(root, ".pager"), ROWS, () => this.show(this.#value, this.#delta));
  }

  clear(): void {
    this.#pager.turnTo(0);
  }

  show(value: unknown, delta: Delta | null): void {
    [this.#value, this.#delta] = [value, delta];
    const columns = columnsOf(value);
    this.#root.hidden = columns.length === 0;
    if (!isArray(value) || columns.length === 0) return;
    const { from, to } = this.#pager.show(value.length);
    fill(find(this.#root, "thead tr"), ["#", ...columns], (cell, name) => setText(cell, name), () => heading("col"));
    fill(
      find(this.#root, "tbody"),
      value.slice(from, to),
      (row, item, index) => this.#write(row, columns, item, from + index),
      () => make("tr"),
    );
  }

  #write(row: HTMLElement, columns: readonly string[], item: unknown, index: number): void {
    const of = this.#delta?.members.get(index);
    const cells = ["", ...columns].map((name, column) => {
      if (column === 0) return { text: String(index), mark: of?.mark ?? null };
      const value = isObject(item) && Object.hasOwn(item, name) ? item[name] : undefined;
      const text = value === undefined ? "" : typeof value === "string" ? value.slice(0, 100) : brief(value);
      const differs = of?.members.get(name);
      return { text, mark: differs ? (differs.mark ?? "changed") : null };
    });
    fill(row, cells, (cell, { text, mark }) => {
      setData(cell, "mark", mark ?? "");
      setText(find(cell, ".sr"), mark ? `${mark}: ` : "");
      setText(find(cell, ".value"), text);
    }, cellOf);
  }
}

function cellOf(column: number): HTMLElement {
  const cell = column === 0 ? heading("row") : make("td");
  cell.append(make("span", "sr"), make("span", "value"));
  return cell;
}

function heading(scope: string): HTMLElement {
  const cell = make("th");
  cell.scope = scope;
  return cell;
}

/** Makes the children of an element as many as the items, and writes each. */
function fill<T>(parent: HTMLElement, items: readonly T[], write: (child: HTMLElement, item: T, index: number) => void, create: (index: number) => HTMLElement): void {
  items.forEach((item, index) => write((parent.children[index] ?? parent.appendChild(create(index))) as HTMLElement, item, index));
  while (parent.children.length > items.length) parent.lastElementChild?.remove();
}
