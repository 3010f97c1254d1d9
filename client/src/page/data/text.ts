/** The lines of a text with the marks of a difference. Pure. */

import type { Mark } from "./difference.ts";
import { difference } from "./difference.ts";

export interface Line {
  readonly mark: Exclude<Mark, "changed"> | null;
  readonly text: string;
}

/** Lines, and characters of two texts, that are compared at most. */
const MAX_LINES = 2_000;
const MAX_CHARS = 200_000;

/** The lines of `after` with those of `before` that it lacks; null if nothing differs, or they are too long to compare. */
export function lines(before: string, after: string): Line[] | null {
  if (before.length + after.length > MAX_CHARS) return null;
  const [old, made] = [before.split("\n", MAX_LINES + 1), after.split("\n", MAX_LINES + 1)];
  if (old.length > MAX_LINES || made.length > MAX_LINES) return null;
  const { delta } = difference(old, made);
  if (delta === null) return null;
  const found: Line[] = [];
  let next = 0;
  made.forEach((text, index) => {
    for (let gone = delta.removed[next]; gone && gone.at <= index; gone = delta.removed[++next]) found.push({ mark: "removed", text: String(gone.value) });
    const member = delta.members.get(index);
    if (member?.mark === "changed") found.push({ mark: "removed", text: String(member.before) });
    found.push({ mark: member ? "added" : null, text });
  });
  for (const { value } of delta.removed.slice(next)) found.push({ mark: "removed", text: String(value) });
  return found;
}
