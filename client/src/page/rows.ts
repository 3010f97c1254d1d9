/** Parts that the tables share. */

import { flash, make, setData, setNumber } from "./dom.ts";
import { zoneName } from "./zones.ts";

/** A row's head: the code and the name of a zone, a button where it can be picked. */
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

/** Writes a number, "–" for none; glows when a number became another one, unless somebody only looks at another hour. */
export function writeNumber(cell: HTMLElement, value: number | null, format: (value: number) => string, glow = true): void {
  const empty = cell.textContent === "–";
  setData(cell, "value", value === null ? "" : String(value));
  if (setNumber(cell, value === null ? "–" : format(value)) && glow && !empty) flash(cell);
}

/** A table of strings inside a `<details>`, written only while it is open. */
export class Unfolded {
  readonly #details: HTMLDetailsElement;
  readonly #rows: () => { head: string[]; body: string[][] };
  #written = "";

  constructor(details: HTMLDetailsElement, rows: () => { head: string[]; body: string[][] }) {
    this.#details = details;
    this.#rows = rows;
    details.addEventListener("toggle", () => this.draw());
  }

  draw(): void {
    if (!this.#details.open) return;
    const { head, body } = this.#rows();
    const written = [head, ...body].join("\n");
    if (written === this.#written) return;
    this.#written = written;
    const cell = (text: string, index: number, tag: "td" | "th"): HTMLElement => {
      const made = make(tag, index > 0 ? "num" : "", text);
      if (tag === "th") (made as HTMLTableCellElement).scope = index === 0 && head[0] !== text ? "row" : "col";
      return made;
    };
    const table = make("table");
    const caption = make("caption", "sr", this.#details.querySelector("summary")?.textContent ?? "");
    const [top, rest] = [make("thead"), make("tbody")];
    top.append(make("tr"));
    top.firstElementChild?.append(...head.map((text, index) => cell(text, index, "th")));
    for (const row of body) {
      const line = make("tr");
      line.append(...row.map((text, index) => cell(text, index, index === 0 ? "th" : "td")));
      rest.append(line);
    }
    table.append(caption, top, rest);
    this.#details.querySelector(".scroll")?.replaceChildren(table);
  }
}
