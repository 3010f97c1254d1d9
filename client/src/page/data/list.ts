/** The catalogue: every endpoint as a link, searched by words, a page at a time. */

import { find, make, setText } from "../dom.ts";
import { count, unit as written } from "../format.ts";
import type { Listed } from "../zones.ts";
import { kindIn, kindWords } from "./media.ts";
import { Pager } from "./pager.ts";
import type { Searchable } from "./search.ts";
import { COLLECTION, matching, searchable } from "./search.ts";

/** Links in the document at once. */
const SIZE = 50;

export interface ListOptions {
  /** The address of an endpoint. */
  href(endpoint: string): string;
  /** The user selects an endpoint. */
  pick(endpoint: string): void;
}

export class EndpointList {
  readonly #root: HTMLElement;
  readonly #options: ListOptions;
  readonly #search: HTMLInputElement;
  readonly #links: HTMLElement;
  readonly #pager: Pager;
  #all: Searchable[] = [];
  #found: Listed[] = [];
  #selected: string | null = null;

  constructor(root: HTMLElement, options: ListOptions) {
    this.#root = root;
    this.#options = options;
    this.#search = find(root, "input");
    this.#links = find(root, ".endpoint-links");
    this.#pager = new Pager(find(root, ".pager"), SIZE, () => {
      this.#draw();
      this.#links.scrollTop = 0;
    });
    this.#search.addEventListener("input", () => this.#searched());
    root.addEventListener("keydown", (event) => this.#key(event));
    this.#links.addEventListener("click", (event) => this.#click(event));
  }

  /** Shows the endpoints of a catalogue; the search stays. */
  list(catalogue: readonly Listed[]): void {
    const isFirst = this.#all.length === 0;
    this.#all = searchable(catalogue);
    this.#find();
    if (isFirst) this.#reveal();
  }

  /** Marks the endpoint that is shown, and turns to its page if it is in the list. */
  select(endpoint: string | null): void {
    if (endpoint === this.#selected) return;
    this.#selected = endpoint;
    if (this.#all.length > 0) this.#reveal();
  }

  /** Turns to the page with the endpoint that is shown, and scrolls the list to it. */
  #reveal(): void {
    const item = this.#found.findIndex(({ endpoint }) => endpoint === this.#selected);
    if (item >= 0) this.#pager.turnTo(item);
    this.#draw();
    const link = this.#links.querySelector<HTMLElement>('[aria-current="true"]');
    if (link === null) return;
    const { top, bottom } = link.getBoundingClientRect();
    const box = this.#links.getBoundingClientRect();
    // `scrollIntoView` would move the window, too.
    if (top < box.top || bottom > box.bottom) this.#links.scrollTop += top - box.top - (box.height - (bottom - top)) / 2;
  }

  #searched(): void {
    this.#pager.turnTo(0);
    this.#find();
    this.#links.scrollTop = 0;
  }

  #find(): void {
    this.#found = matching(this.#all, this.#search.value);
    const number = (entries: readonly Listed[]): number => entries.filter(({ kind }) => kind !== COLLECTION).length;
    const [all, found] = [number(this.#all.map(({ entry }) => entry)), number(this.#found)];
    const collections = this.#found.length - found;
    const words = found === all ? `${count(all)} ${all === 1 ? "endpoint" : "endpoints"}` : `${count(found)} of ${count(all)} endpoints`;
    setText(find(this.#root, ".found"), words + (collections > 0 ? `, ${count(collections)} ${collections === 1 ? "collection" : "collections"}` : ""));
    this.#draw();
  }

  #draw(): void {
    const { from, to } = this.#pager.show(this.#found.length);
    const shown = this.#found.slice(from, to);
    shown.forEach((entry, index) => this.#write(this.#links.children[index] ?? this.#links.appendChild(emptyItem()), entry));
    while (this.#links.children.length > shown.length) this.#links.lastElementChild?.remove();
    const none = find(this.#root, ".none");
    setText(none, this.#all.length === 0 ? "There are no endpoints." : "No endpoint matches.");
    none.hidden = shown.length > 0;
  }

  #write(item: Element, entry: Listed): void {
    const { endpoint, title = "", unit = "", area = "", mediaType } = entry;
    const link = find<HTMLAnchorElement>(item, "a");
    const facts = [title || area, kindWords(kindIn(entry), mediaType), written(unit)].filter(Boolean).join(" · ");
    if (link.dataset.endpoint !== endpoint) {
      link.dataset.endpoint = endpoint;
      link.setAttribute("href", this.#options.href(endpoint));
      setText(find(link, "b"), endpoint);
    }
    setText(find(link, "span"), facts);
    const current = endpoint === this.#selected ? "true" : null;
    if (link.ariaCurrent !== current) link.ariaCurrent = current;
  }

  #click(event: MouseEvent): void {
    const endpoint = (event.target as HTMLElement).closest("a")?.dataset.endpoint;
    // A click with a modifier opens a tab or a window, as with any link.
    if (endpoint === undefined || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    this.#options.pick(endpoint);
  }

  /** Up and down move from the search through the links, Escape goes back to the search and empties it. */
  #key(event: KeyboardEvent): void {
    const links = [...this.#links.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    const inSearch = document.activeElement === this.#search;
    if (event.altKey || event.ctrlKey || event.metaKey || (at < 0 && !inSearch)) return;
    if (event.key === "Escape" && (at >= 0 || this.#search.value !== "")) this.#empty();
    else if (event.key === "ArrowDown") links[at + 1]?.focus();
    else if (event.key === "ArrowUp" && at >= 0) (links[at - 1] ?? this.#search).focus();
    else return;
    event.preventDefault();
  }

  #empty(): void {
    this.#search.focus();
    if (this.#search.value === "") return;
    this.#search.value = "";
    this.#searched();
  }
}

function emptyItem(): HTMLLIElement {
  const item = make("li");
  const link = make("a");
  link.append(make("b"), make("span"));
  item.append(link);
  return item;
}
