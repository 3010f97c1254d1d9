/** What every view of the page has, and what the page gives to it. */

import type { Dataset, Diem } from "../sdk/index.ts";
import { Ages } from "./ages.ts";
import { find, setText } from "./dom.ts";
import type { Frames } from "./frames.ts";
import { Freshness } from "./freshness.ts";
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

/** A section of the page with its subscriptions and its age. Changes are drawn in the next frame, and only while it is in sight. */
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

  /** Whether the view can be seen: only then it is subscribed to anything. */
  show(inSight: boolean): void {
    this.#inSight = inSight;
    this.group.show(inSight);
    if (inSight) this.changed();
  }

  /** The colours are other ones. */
  repaint(): void {
    // Most views take theirs from the style sheet.
  }

  /** A second has passed. */
  tick(): void {
    if (!this.#inSight) return;
    this.passed();
    this.#age();
  }

  #age(): void {
    const problem = this.problem() || (this.group.curbed ? "More than one page may follow at once" : "");
    this.#freshness.show(this.followed, this.acceptedAt, problem, this.time(), this.#ages.behind);
  }

  /** The endpoints whose liveness the view depends on; null: it does not hear of changes at all. */
  protected get followed(): readonly string[] | null {
    return this.group.endpoints;
  }

  /** When the newest data in sight was accepted at its source, Unix milliseconds; null before any. */
  protected get acceptedAt(): number | null {
    return this.#ages.newest;
  }

  /** The clock that the view's times are of. */
  protected time(): MarketTime {
    return marketTime(null);
  }

  /** What is wrong with the data itself; "" = nothing. */
  protected problem(): string {
    return "";
  }

  /** What depends on the time, besides the age. */
  protected passed(): void {
    // Nothing in most views.
  }

  /** Writes the view to the page. */
  protected abstract draw(): void;

  /** Something is to be drawn. */
  protected changed(): void {
    this.frames.draw(this.#draw);
  }

  /** The view shows other data now, which has its own age. */
  protected forget(): void {
    this.#ages.clear();
  }

  /** `name`: what people call this part of the view. What is withdrawn is no longer shown, unless `shown` says so. */
  protected accepted(dataset: Dataset, name = "", shown = !dataset.gone): void {
    const every = durationMs(dataset.resolution) ?? 0;
    this.#ages.set(dataset.endpoint, { name, at: Date.parse(dataset.time) || dataset.version, every, shown });
    this.changed();
  }

  /** The view is no longer about this endpoint. */
  protected dropped(endpoint: string): void {
    this.#ages.drop(endpoint);
  }

  /** The short text beside the title. */
  protected about(text: string): void {
    setText(find(this.root, ".about"), text);
  }

  /** Names what is in another unit than the rest, and therefore not in the picture. */
  protected leaveOut(parts: LeftOut): void {
    const line = find(this.root, ".left-out");
    setText(line, leftOut(parts));
    line.hidden = line.textContent === "";
  }

  /** Says why the view is empty; "" = it is not. */
  explain(text: string): void {
    const empty = find(this.root, ".empty");
    setText(empty, text);
    empty.hidden = text === "";
  }
}
