/** A JSON value as the rows of a tree, of which branches are open or closed, with the marks of a difference. Pure. */

import { count } from "../format.ts";
import type { Delta, Mark } from "./difference.ts";
import { isArray, isObject } from "./difference.ts";

/** Rows of a tree at most: more would be slow to draw at every change. */
const MAX_ROWS = 2_000;
/** Members of a branch that are shown until more are asked for, and how many more then. */
export const MEMBERS = 100;
/** Members beyond these that are shown because they differ. */
const MAX_BEYOND = 20;
/** Characters of a value in a row. */
const CHARS = 120;
/** Characters of an older value, of one that differs, and of the members of a closed branch. */
const SHORT_CHARS = 60;
/** Characters of a text that is open. */
const LONG_CHARS = 10_000;
/** Rows of a tree that is opened by itself. */
const ROWS_AT_FIRST = 60;
/** A branch that comes with an update is open if it has no more members. */
const SMALL = 10;

export type Type = "object" | "array" | "string" | "number" | "boolean" | "null";

export interface Row {
  /** The JSON Pointer (RFC 6901) of the value, with a suffix for rows that are not of the value itself: unique in a tree. */
  readonly id: string;
  /** The JSON Pointer of the value, or of the branch with more members. */
  readonly path: string;
  /** "more": members that are not shown; "end": the rest of the tree is not shown. */
  readonly kind: "value" | "more" | "end";
  /** From 1. */
  readonly level: number;
  /** Position among its siblings from 1, and their number. */
  readonly position: number;
  readonly size: number;
  /** Field name or index; "" for a value without a parent. */
  readonly label: string;
  readonly type: Type;
  readonly text: string;
  /** Null: it cannot be opened. */
  readonly isOpen: boolean | null;
  readonly mark: Mark | null;
  /** The older value of one that has changed. */
  readonly before: string;
  /** Number of differences that a closed branch, or members that are not shown, have. */
  readonly hidden: number;
}

export interface Shape {
  /** Whether a branch, or a long text, is open. */
  isOpen(path: string, value: unknown): boolean;
  /** Number of members of a branch that are shown. */
  members(path: string): number;
}

export const pointer = (path: string, key: string | number): string => `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** The rows of `value`; the branches of its members are nested in it. */
export function rows(value: unknown, delta: Delta | null, shape: Shape): Row[] {
  const made = new Rows(shape);
  if (lengthOf(value) + (delta?.removed.length ?? 0) > 0 && delta?.mark !== "changed") made.branch("", value, delta, 1);
  else made.value({ path: "", label: "", value, delta, mark: delta?.mark ?? null, level: 1, position: 1, size: 1 });
  return made.rows;
}

/** The branches that are open at first: as many levels as there is room for. */
export function openAtFirst(value: unknown): Set<string> {
  const open = new Set<string>();
  let room = ROWS_AT_FIRST;
  for (let level = [{ path: "", value }]; level.length > 0; ) {
    const next: typeof level = [];
    for (const branch of level) {
      const length = lengthOf(branch.value);
      if (length === 0 || (length > room && branch.path !== "")) continue;
      room -= length;
      open.add(branch.path);
      for (const [key, member] of entries(branch.value, MEMBERS)) if (lengthOf(member) > 0) next.push({ path: pointer(branch.path, key), value: member });
    }
    level = next;
  }
  return open;
}

/** Whether a branch that was not there at first is open. */
export const isSmall = (value: unknown): boolean => typeof value !== "string" && lengthOf(value) <= SMALL;

/** The branches with differences in them, at most so many. */
export function branchesWith(delta: Delta, limit: number, path = "", found: string[] = []): string[] {
  for (const [key, member] of delta.members) {
    if (found.length >= limit) break;
    if (member.mark !== null) continue;
    const branch = pointer(path, key);
    found.push(branch);
    branchesWith(member, limit, branch, found);
  }
  return found;
}

/** A value as JSON with blanks after separators, cut off after `chars` characters: the rest is not looked at. */
export function brief(value: unknown, chars = SHORT_CHARS): string {
  let text = "";
  const write = (part: unknown): void => {
    if (text.length > chars) return;
    if (!isArray(part) && !isObject(part)) {
      text += typeof part === "string" ? JSON.stringify(part.slice(0, chars + 1)) : String(part);
      return;
    }
    text += isArray(part) ? "[" : "{";
    let separator = "";
    for (const [key, member] of entries(part, chars)) {
      if (text.length > chars) return;
      text += isArray(part) ? separator : `${separator}${JSON.stringify(key)}: `;
      separator = ", ";
      write(member);
    }
    text += isArray(part) ? "]" : "}";
  };
  write(value);
  return cut(text, chars);
}

/** Number of members of an array or object; 0 of other values. */
function lengthOf(value: unknown): number {
  if (isArray(value)) return value.length;
  return isObject(value) ? Object.keys(value).length : 0;
}

const isLong = (value: unknown): value is string => typeof value === "string" && value.length > CHARS;

function typeOf(value: unknown): Type {
  if (value === null || value === undefined) return "null";
  if (isArray(value)) return "array";
  const type = typeof value;
  return type === "string" || type === "number" || type === "boolean" ? type : "object";
}

/** The first members of a branch. */
function entries(branch: unknown, limit: number): [string | number, unknown][] {
  if (isArray(branch)) return branch.slice(0, limit).map((item, index) => [index, item]);
  return isObject(branch) ? Object.keys(branch).slice(0, limit).map((key) => [key, branch[key]]) : [];
}

interface Place {
  readonly path: string;
  readonly label: string;
  readonly value: unknown;
  readonly delta: Delta | null;
  readonly mark: Mark | null;
  readonly level: number;
  readonly position: number;
  readonly size: number;
}

class Rows {
  readonly rows: Row[] = [];
  readonly #shape: Shape;

  constructor(shape: Shape) {
    this.#shape = shape;
  }

  /** Adds the members of a branch, removed ones where they were. */
  branch(path: string, branch: unknown, delta: Delta | null, level: number): void {
    const keys = isArray(branch) ? [...branch.keys()] : Object.keys(branch as object);
    const removed = delta?.removed ?? [];
    const size = keys.length + removed.length;
    const limit = this.#shape.members(path);
    let position = 0;
    let beyond = 0;
    let skipped = 0;
    let hidden = 0;
    const more = (): void => {
      if (skipped > 0) this.#add({ ...BLANK, id: `${path}~more${position}`, path, kind: "more", level, position, size, text: `${count(skipped)} more`, hidden });
      skipped = hidden = 0;
    };
    const show = (member: Pick<Place, "path" | "value" | "delta" | "mark">, key: string | number): void => {
      const marks = member.delta?.count ?? (member.mark ? 1 : 0);
      if (position < limit || (marks > 0 && beyond++ < MAX_BEYOND)) {
        more();
        this.value({ ...member, label: cut(String(key), CHARS), level, position: ++position, size });
      } else {
        position += 1;
        skipped += 1;
        hidden += marks;
      }
    };
    let next = 0;
    const showRemoved = (until: number): void => {
      for (let gone = removed[next]; gone && gone.at <= until; gone = removed[++next]) {
        show({ path: `${pointer(path, gone.key)}~removed`, value: gone.value, delta: null, mark: "removed" }, gone.key);
      }
    };
    keys.forEach((key, index) => {
      showRemoved(index);
      const member = delta?.members.get(key) ?? null;
      show({ path: pointer(path, key), value: (branch as Record<string | number, unknown>)[key], delta: member, mark: member?.mark ?? null }, key);
    });
    showRemoved(Infinity);
    more();
  }

  /** Adds a value, and its members if it is open. */
  value({ path, label, value, delta, mark, level, position, size }: Place): void {
    const inside = mark === null ? delta : null;
    const members = mark === "removed" ? 0 : lengthOf(value) + (inside?.removed.length ?? 0);
    const isOpen = members > 0 || (isLong(value) && mark !== "removed") ? this.#shape.isOpen(path, value) : null;
    const older = mark === "changed" ? delta?.before : undefined;
    const isText = typeof older === "string" && typeof value === "string" && !isOpen;
    const [before, text] = isText ? apart(older, value) : [brief(older), textOf(value, isOpen)];
    this.#add({
      id: path, path, kind: "value", level, position, size, label, type: typeOf(value), text, isOpen, mark,
      before: mark === "changed" ? before : "",
      hidden: isOpen ? 0 : (inside?.count ?? 0),
    });
    if (members > 0 && isOpen && this.rows.length <= MAX_ROWS) this.branch(path, value, inside, level + 1);
  }

  #add(row: Row): void {
    if (this.rows.length < MAX_ROWS) this.rows.push(row);
    else if (this.rows.length === MAX_ROWS) this.rows.push({ ...BLANK, id: "~end", path: "", kind: "end", level: 1, position: 1, size: 1, text: END });
  }
}

const BLANK = { label: "", type: "null", isOpen: null, mark: null, before: "", hidden: 0 } as const;
const END = "The rest is not shown: close a branch above";

function textOf(value: unknown, isOpen: boolean | null): string {
  const length = lengthOf(value);
  if (isOpen && isArray(value)) return `${count(length)} ${length === 1 ? "item" : "items"}`;
  if (isOpen && isObject(value)) return `${count(length)} ${length === 1 ? "field" : "fields"}`;
  if (isOpen && isLong(value)) return value.length > LONG_CHARS ? `${value.slice(0, LONG_CHARS)}… ${count(value.length - LONG_CHARS)} more characters` : value;
  return brief(value, length > 0 ? SHORT_CHARS : CHARS);
}

const cut = (text: string, chars: number): string => (text.length > chars ? `${text.slice(0, chars)}…` : text);

/** Two texts as JSON; long ones begin shortly before the first difference. */
function apart(before: string, after: string): [string, string] {
  let same = 0;
  while (same < before.length && before[same] === after[same]) same += 1;
  const from = Math.max(before.length, after.length) > SHORT_CHARS ? Math.max(0, same - SHORT_CHARS / 3) : 0;
  const write = (text: string): string => (from === 0 ? brief(text) : `"…${brief(text.slice(from)).slice(1)}`);
  return [write(before), write(after)];
}
