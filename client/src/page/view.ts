/** The base of all views, and what the page passes to them. */

import type { Diem, Snapshot } from "../sdk/index.ts";
import { Ages } from "./ages.ts";
import { find, setText } from "./dom.ts";
import type { Frames } from "./frames.ts";
import { Freshness, LOST } from "./freshness.ts";
import { durationMs } from "./series.ts";
import { marketTime } from "./time.ts";
import type { MarketTime } from "./time.ts";
import type { LeftOut } from "./units.ts";
import { leftOut } from "./units.ts";
import type { Group, Watching } from "./watching.ts";

export interface Desk {
  readonly diem: Diem;
  readonly frames: Frames;
  readonly watching: Watching;
}

/** A section of the page with its subscriptions and its age. Changes are drawn in the next frame, and only while it is visible. */
export abstract class View {
  readonly root: HTMLElement;
  readonly group: Group;
  protected readonly frames: Frames;
  readonly #freshness: Freshness;
  readonly #draw: () => void;
  readonly #ages = new Ages();
  #inSight = false;

  constructor({ diem, frames, watching }: Desk, root: HTMLElement) {
    this.root = root;
    this.frames = frames;
    this.group = watching.group();
    this.#freshness = new Freshness(diem, root);
    this.#draw = () => {
      if (!this.#inSight) return;
      this.draw();
      this.#age();
    };
  }

  /** True while the view is visible; only then it has subscriptions. */
  show(inSight: boolean): void {
    this.#inSight = inSight;
    this.group.show(inSight);
    if (inSight) this.changed();
  }

  /** The colours have changed. */
  repaint(): void {
    // Most views get theirs from the style sheet.
  }

  /** A second has passed. */
  tick(): void {
    if (!this.#inSight) return;
    this.passed();
    this.#age();
  }

  #age(): void {
    const problem = (this.group.isPutBack ? LOST : this.problem()) || (this.group.curbed ? "Too many endpoints for one page to watch" : "");
    this.#freshness.show(this.followed, this.acceptedAt, problem, this.time(), this.#ages.behind);
  }

  /** The endpoints whose liveness the view depends on; null: it has no subscriptions. */
  protected get followed(): readonly string[] | null {
    return this.group.endpoints;
  }

  /** When the newest data shown was accepted at its source, Unix milliseconds; null without data. */
  protected get acceptedAt(): number | null {
    return this.#ages.newest;
  }

  /** The clock of the view's times. */
  protected time(): MarketTime {
    return marketTime(null);
  }

  /** A problem of the data itself; "" = none. */
  protected problem(): string {
    return "";
  }

  /** Updates time-dependent parts other than the age. */
  protected passed(): void {
    // Nothing in most views.
  }

  /** Writes the view to the page. */
  protected abstract draw(): void;

  /** Requests a drawing. */
  protected changed(): void {
    this.frames.draw(this.#draw);
  }

  /** The view shows other data from now on, which has its own age. */
  protected forget(): void {
    this.#ages.clear();
  }

  /** `name`: the title of this part of the view. What was deleted is not shown, unless `shown`. */
  protected accepted(snapshot: Snapshot & { readonly resolution?: string }, name = "", shown = !snapshot.gone): void {
    const every = durationMs(snapshot.resolution ?? "") ?? 0;
    this.#ages.set(snapshot.endpoint, { name, at: Date.parse(snapshot.time) || snapshot.version, every, shown });
    this.changed();
  }

  /** The view no longer has this endpoint. */
  protected dropped(endpoint: string): void {
    this.#ages.drop(endpoint);
  }

  /** The short text beside the title. */
  protected about(text: string): void {
    setText(find(this.root, ".about"), text);
  }

  /** Names the parts with another unit than the rest, which are not in the picture. */
  protected leaveOut(parts: LeftOut): void {
    const line = find(this.root, ".left-out");
    setText(line, leftOut(parts));
    line.hidden = line.textContent === "";
  }

  /** Shows why the view is empty; "" = it is not. */
  explain(text: string): void {
    const empty = find(this.root, ".empty");
    setText(empty, text);
    empty.hidden = text === "";
  }
}
