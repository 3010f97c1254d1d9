/** Parts that the tables share. */

import { flash, make, setData, setNumber, setText } from "./dom.ts";
import { zoneName } from "./zones.ts";

/** A row's head: the code and the name of a zone, a button where it can be selected. */
export function zoneHead(code: string, zone: string | null, select: ((zone: string) => void) | null): HTMLElement {
  const head = make("th");
  head.scope = "row";
  const label = select && zone ? make("button", "zone-name") : make("span", "zone-name");
  const name = zone ? zoneName(zone) : "";
  label.append(make("b", "", code));
  if (name && name !== code) label.append(" ", make("span", "", name));
  if (select && zone) {
    (label as HTMLButtonElement).type = "button";
    label.title = `Show ${name || code}`;
    label.addEventListener("click", () => select(zone));
  }
  head.append(label);
  return head;
}

/** Writes a number, "–" for none; glows when it has changed, unless only another hour was selected. */
export function writeNumber(cell: HTMLElement, value: number | null, format: (value: number) => string, glow = true): void {
  const empty = cell.textContent === "–";
  setData(cell, "value", value === null ? "" : String(value));
  if (setNumber(cell, value === null ? "–" : format(value)) && glow && !empty) flash(cell);
}

/** A table of strings inside a `<details>`, written only while it is open, and in place, so that readers keep their position. */
export class Unfolded {
  readonly #details: HTMLDetailsElement;
  readonly #rows: () => { head: string[]; body: string[][] };
  readonly #head = make("thead");
  readonly #body = make("tbody");

  constructor(details: HTMLDetailsElement, rows: () => { head: string[]; body: string[][] }) {
    this.#details = details;
    this.#rows = rows;
    details.addEventListener("toggle", () => this.draw());
  }

  draw(): void {
    if (!this.#details.open) return;
    if (!this.#body.isConnected) this.#place();
    const { head, body } = this.#rows();
    fit(this.#head, 1, () => make("tr"));
    fit(this.#body, body.length, () => make("tr"));
    write(this.#head.children[0] as Element, head, () => headOf("col"));
    body.forEach((row, index) => write(this.#body.children[index] as Element, row, (column) => (column === 0 ? headOf("row") : make("td"))));
  }

  #place(): void {
    const table = make("table");
    const caption = make("caption", "sr", this.#details.querySelector("summary")?.textContent ?? "");
    table.append(caption, this.#head, this.#body);
    this.#details.querySelector(".scroll")?.replaceChildren(table);
  }
}

/** Sets the number of children to `count`. */
function fit(parent: Element, count: number, child: (index: number) => HTMLElement): void {
  while (parent.children.length > count) parent.lastElementChild?.remove();
  while (parent.children.length < count) parent.append(child(parent.children.length));
}

function write(row: Element, texts: readonly string[], cell: (column: number) => HTMLElement): void {
  fit(row, texts.length, (column) => {
    const made = cell(column);
    if (column > 0) made.className = "num";
    return made;
  });
  texts.forEach((text, column) => setText(row.children[column] as Element, text));
}

function headOf(scope: "row" | "col"): HTMLElement {
  const head = make("th");
  head.scope = scope;
  return head;
}
