/** A document as a tree (the pattern "tree view" of the ARIA Authoring Practices), with its differences marked; a list as a table, too. */

import { find, flash, make, setData, setText } from "../../dom.ts";
import { count } from "../../format.ts";
import { marketTime } from "../../time.ts";
import type { Body, Shown } from "../body.ts";
import type { Delta, Mark } from "../difference.ts";
import { difference, tally } from "../difference.ts";
import type { Row, Shape } from "../tree.ts";
import { MEMBERS, branchesWith, isSmall, openAtFirst, rows } from "../tree.ts";
import { DocumentTable } from "./table.ts";

/** Branches that are opened at once to show what differs. */
const MAX_OPENED = 200;
/** Choices of the user, and of the page, that are kept: fields may come and go for days. */
const MAX_CHOICES = 5_000;
/** Values that glow at once. */
const MAX_GLOWING = 50;

const SIGNS: Record<Mark, string> = { added: "+", changed: "≠", removed: "−" };

export class DocumentBody implements Body {
  readonly time = marketTime(null);
  differences = "";
  readonly #root: HTMLElement;
  readonly #table: DocumentTable;
  readonly #showAll: HTMLButtonElement;
  readonly #elements = new Map<string, HTMLElement>();
  readonly #choices = new Map<string, boolean>();
  readonly #members = new Map<string, number>();
  #value: unknown = undefined;
  #base: unknown = undefined;
  #delta: Delta | null = null;
  /** Null until a value was shown. */
  #first: Set<string> | null = null;
  #rows: readonly Row[] = [];
  /** The row that Tab leads to. */
  #active = "";

  /** `root` has the tree, `table` the table; `showAll` is the button that opens what differs. */
  constructor(root: HTMLElement, table: HTMLElement, showAll: HTMLButtonElement) {
    this.#root = root;
    this.#table = new DocumentTable(table);
    this.#showAll = showAll;
    showAll.addEventListener("click", () => this.#openDifferences());
    root.addEventListener("click", ({ target }) => this.#click(target as HTMLElement));
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focusin", ({ target }) => this.#activate((target as HTMLElement).closest<HTMLElement>("[role=treeitem]")?.dataset.id ?? this.#active));
  }

  clear(): void {
    this.#table.clear();
    this.#choices.clear();
    this.#members.clear();
    this.#first = null;
    this.#value = this.#base = undefined;
    this.#delta = null;
    this.#active = this.differences = "";
  }

  show({ version, base, isNew }: Shown): void {
    const { value } = version;
    this.#first ??= openAtFirst(value);
    if (value !== this.#value || base?.value !== this.#base) {
      const { delta, isComplete } = base === null ? { delta: null, isComplete: true } : difference(base.value, value);
      [this.#value, this.#base, this.#delta] = [value, base?.value, delta];
      this.differences = base === null ? "" : tallyWords(delta) + (isComplete ? "" : "; not all of it was compared, for its size");
    }
    this.#table.show(value, this.#delta);
    this.#draw();
    if (isNew) this.#glow();
  }

  get #shape(): Shape {
    return {
      isOpen: (path, value) => {
        const chosen = this.#choices.get(path) ?? (this.#first?.has(path) || isSmall(value));
        // What is open stays so, whatever comes into it.
        this.#choices.set(path, chosen);
        return chosen;
      },
      members: (path) => this.#members.get(path) ?? MEMBERS,
    };
  }

  #draw(): void {
    const focused = this.#root.contains(document.activeElement) ? this.#active : null;
    const index = this.#rows.findIndex(({ id }) => id === this.#active);
    this.#rows = rows(this.#value, this.#delta, this.#shape);
    if (this.#choices.size > MAX_CHOICES) this.#forget();
    if (!this.#rows.some(({ id }) => id === this.#active)) this.#active = this.#rows[Math.min(Math.max(index, 0), this.#rows.length - 1)]?.id ?? "";
    const ids = new Set(this.#rows.map(({ id }) => id));
    for (const [id, element] of this.#elements) {
      if (ids.has(id)) continue;
      element.remove();
      this.#elements.delete(id);
    }
    let place = this.#root.firstElementChild;
    for (const row of this.#rows) {
      let element = this.#elements.get(row.id);
      if (element === undefined) this.#elements.set(row.id, (element = emptyRow(row.id)));
      if (element === place) place = place.nextElementSibling;
      else this.#root.insertBefore(element, place);
      write(element, row, row.id === this.#active);
    }
    if (focused !== null && !this.#root.contains(document.activeElement)) this.#elements.get(this.#active)?.focus();
    this.#showAll.hidden = !this.#rows.some(({ hidden }) => hidden > 0);
  }

  /** Drops the choices for what is not shown. */
  #forget(): void {
    const paths = new Set(this.#rows.map(({ path }) => path));
    for (const path of this.#choices.keys()) if (!paths.has(path)) this.#choices.delete(path);
  }

  #glow(): void {
    const marked = this.#rows.filter(({ mark }) => mark === "added" || mark === "changed");
    for (const { id } of marked.slice(0, MAX_GLOWING)) flash(find(this.#elements.get(id) as HTMLElement, ".value"));
  }

  #openDifferences(): void {
    if (this.#delta === null) return;
    for (const path of branchesWith(this.#delta, MAX_OPENED)) this.#choices.set(path, true);
    this.#draw();
    const first = this.#rows.find(({ mark }) => mark !== null);
    if (first) this.#focus(first.id);
  }

  #click(target: HTMLElement): void {
    const id = target.closest<HTMLElement>("[role=treeitem]")?.dataset.id;
    const row = this.#rows.find((each) => each.id === id);
    if (row === undefined || getSelection()?.isCollapsed === false) return; // a part of it was selected
    this.#focus(row.id);
    this.#use(row);
  }

  /** Opens or closes a row, or shows more members. */
  #use({ kind, path, isOpen }: Row): void {
    if (kind === "more") this.#members.set(path, (this.#members.get(path) ?? MEMBERS) + MEMBERS);
    else if (isOpen !== null) this.#choices.set(path, !isOpen);
    else return;
    this.#draw();
  }

  #key(event: KeyboardEvent): void {
    const at = this.#rows.findIndex(({ id }) => id === this.#active);
    const row = this.#rows[at];
    if (row === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = (index: number): void => this.#focus(this.#rows[index]?.id ?? row.id);
    switch (event.key) {
      case "ArrowDown": to(at + 1); break;
      case "ArrowUp": to(at - 1); break;
      case "Home": to(0); break;
      case "End": to(this.#rows.length - 1); break;
      case "ArrowRight":
        if (row.isOpen === false) this.#use(row);
        else if (row.isOpen && (this.#rows[at + 1]?.level ?? 0) > row.level) to(at + 1);
        break;
      case "ArrowLeft":
        if (row.isOpen) this.#use(row);
        else to(this.#rows.findLastIndex(({ level }, index) => index < at && level < row.level));
        break;
      case "Enter":
      case " ":
        this.#use(row);
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  #focus(id: string): void {
    this.#activate(id);
    this.#elements.get(id)?.focus();
  }

  /** Makes a row the one that Tab leads to. */
  #activate(id: string): void {
    if (id === this.#active) return;
    const before = this.#elements.get(this.#active);
    if (before) before.tabIndex = -1;
    this.#active = id;
    const element = this.#elements.get(id);
    if (element) element.tabIndex = 0;
  }
}

/** "2 changed, 1 added"; "no difference" without one. */
export function tallyWords(delta: Delta | null): string {
  const found = tally(delta);
  const words = (["changed", "added", "removed"] as const).flatMap((mark) => (found[mark] > 0 ? [`${count(found[mark])} ${mark}`] : []));
  return words.join(", ") || "no difference";
}

function emptyRow(id: string): HTMLElement {
  const row = make("div", "row");
  row.role = "treeitem";
  row.dataset.id = id;
  const sign = make("span", "sign");
  const arrow = make("span", "arrow");
  sign.ariaHidden = arrow.ariaHidden = "true";
  row.append(sign, make("span", "sr said"), make("span", "name"), make("span", "colon"), make("span", "sr was"), make("span", "before"), arrow, make("span", "sr now"), make("span", "value"), make("span", "inside"));
  return row;
}

function write(element: HTMLElement, row: Row, isActive: boolean): void {
  const { kind, level, position, size, label, type, text, isOpen, mark, before, hidden } = row;
  const [sign, said, name, colon, was, old, arrow, now, value, inside] = element.children as unknown as HTMLElement[] & Iterable<HTMLElement>;
  const tabIndex = isActive ? 0 : -1;
  if (element.tabIndex !== tabIndex) element.tabIndex = tabIndex;
  setAttribute(element, "aria-level", String(level));
  setAttribute(element, "aria-posinset", String(position));
  setAttribute(element, "aria-setsize", String(size));
  setAttribute(element, "aria-expanded", isOpen === null ? null : String(isOpen));
  setData(element, "kind", kind);
  setData(element, "mark", mark ?? "");
  if (element.style.getPropertyValue("--level") !== String(level)) element.style.setProperty("--level", String(level));
  setText(sign!, mark ? SIGNS[mark] : "");
  setText(said!, mark ? `${mark}: ` : "");
  setText(name!, label);
  setText(was!, before && "was ");
  setText(old!, before);
  setText(now!, before && " now ");
  setText(value!, text);
  setData(value!, "type", type);
  setText(inside!, hidden > 0 ? `${count(hidden)} ${hidden === 1 ? "difference" : "differences"}` : "");
  setText(colon!, label && ": ");
  setText(arrow!, before && "→");
}

function setAttribute(element: Element, name: string, value: string | null): void {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}
