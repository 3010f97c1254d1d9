/** The dialog for a file that is dropped on the page, or chosen: a layout is suggested, its endpoints are shown, and then stored. */

import type { Point } from "../../sdk/index.ts";
import { find, make, setText } from "../dom.ts";
import { count, unit as written } from "../format.ts";
import { steps } from "../series.ts";
import { makeSpark, sparkPaths } from "../spark.ts";
import type { MarketTime } from "../time.ts";
import { timeIn, UTC } from "../time.ts";
import type { Converted, Layout, Part, Preview, Question, Suggestion } from "./files.ts";
import { FilesClient, Refused, withValue } from "./files.ts";
import { sizeWords } from "./media.ts";
import { digitsOf, every, figure, startWords } from "./values.ts";

export interface UploadOptions {
  /** Base URL of the REST API. */
  rest(): Promise<string>;
  /** An endpoint is stored, and shown next. */
  pick(endpoint: string): void;
  /** There is data of an endpoint that is not in the catalogue. */
  unlisted(): void;
}

/** What the button does next: a write key is needed; the layout has changed since it was tried; the endpoints can be stored. */
type Stage = "key" | "changed" | "ready";

const PARTS: readonly Part[] = ["key", "endpoint", "layout", "file"];

export class Upload {
  readonly #dialog: HTMLDialogElement;
  readonly #options: UploadOptions;
  readonly #client: FilesClient;
  readonly #key: HTMLInputElement;
  readonly #endpoint: HTMLInputElement;
  readonly #preset: HTMLSelectElement;
  readonly #layout: HTMLTextAreaElement;
  readonly #submit: HTMLButtonElement;
  #file: File | null = null;
  #suggestion: Suggestion | null = null;
  #stage: Stage = "key";
  #count = 0;
  /** Of the request under way. */
  #request: AbortController | null = null;

  /** `button` opens the dialog; while `isShown`, so does a file dropped anywhere on the page. */
  constructor(dialog: HTMLDialogElement, button: HTMLElement, isShown: () => boolean, options: UploadOptions) {
    this.#dialog = dialog;
    this.#options = options;
    this.#client = new FilesClient(options.rest);
    this.#key = find(dialog, "[name=key]");
    this.#endpoint = find(dialog, "[name=endpoint]");
    this.#preset = find(dialog, "[name=preset]");
    this.#layout = find(dialog, "[name=layout]");
    this.#submit = find(dialog, "[type=submit]");
    const chosen = find<HTMLInputElement>(document, "#file");
    button.addEventListener("click", () => chosen.click());
    chosen.addEventListener("change", () => {
      this.open([...(chosen.files ?? [])]);
      chosen.value = ""; // the same file can be chosen again
    });
    find(dialog, ".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => this.#stop());
    find(dialog, "form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#next();
    });
    for (const field of [this.#endpoint, this.#layout]) field.addEventListener("input", () => this.#show("changed"));
    this.#preset.addEventListener("change", () => {
      // A preset is as it is, until something is written above it.
      this.#layout.value = this.#preset.value === (this.#suggestion?.preset ?? "") ? (this.#suggestion?.layout ?? "") : "";
      this.#show("changed");
      void this.#next();
    });
    this.#receiveDrops(isShown);
  }

  /** Begins with a file; of several, the first. */
  open([file, ...others]: readonly File[]): void {
    if (file === undefined) return;
    this.#stop();
    this.#file = file;
    this.#suggestion = null;
    setText(find(this.#dialog, ".file-name"), `${file.name}, ${sizeWords(file.size)}${others.length > 0 ? `; the first of ${others.length + 1} files` : ""}`);
    this.#explain(null);
    this.#describe(null);
    this.#show(this.#client.key === "" ? "key" : "changed");
    if (!this.#dialog.open) this.#dialog.showModal();
    if (this.#stage === "changed") void this.#next();
  }

  #stop(): void {
    this.#request?.abort();
    this.#request = null;
  }

  #receiveDrops(isShown: () => boolean): void {
    const mark = (isOver: boolean): void => void document.documentElement.toggleAttribute("data-dropping", isOver);
    const has = (event: DragEvent): boolean => isShown() && event.dataTransfer?.types.includes("Files") === true;
    document.addEventListener("dragover", (event) => {
      if (!has(event)) return;
      event.preventDefault();
      mark(true);
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) mark(false);
    });
    document.addEventListener("drop", (event) => {
      mark(false);
      if (!has(event)) return;
      event.preventDefault();
      this.open([...(event.dataTransfer?.files ?? [])]);
    });
  }

  /** Does what the button says. */
  async #next(): Promise<void> {
    const file = this.#file;
    if (file === null) return;
    this.#stop();
    const request = (this.#request = new AbortController());
    this.#explain(null);
    this.#say("One moment …");
    try {
      if (this.#stage === "key") this.#client.key = this.#key.value.trim();
      if (this.#suggestion === null) this.#take(await this.#client.suggest(file, request.signal));
      else if (this.#stage === "ready") this.#published(await this.#client.publish(file, this.#asked, request.signal));
      else this.#describe(await this.#client.preview(file, this.#asked, request.signal));
    } catch (error) {
      if (request.signal.aborted) return;
      if (!(error instanceof Refused)) throw error;
      this.#say("");
      this.#refuse(error);
    }
  }

  #say(words: string): void {
    setText(find(this.#dialog, ".said"), words);
  }

  get #asked(): Layout {
    return { endpoint: this.#endpoint.value.trim(), preset: this.#preset.value, layout: this.#layout.value };
  }

  #refuse({ part, message }: Refused): void {
    if (part === "key") {
      this.#client.key = "";
      this.#key.value = "";
      this.#show("key");
    } else this.#show(this.#client.key === "" ? "key" : "changed");
    this.#explain({ part, message });
    const field = { key: this.#key, endpoint: this.#endpoint, layout: this.#layout, file: null }[part];
    field?.focus();
  }

  #take(suggestion: Suggestion): void {
    this.#suggestion = suggestion;
    this.#key.value = "";
    this.#endpoint.value = suggestion.endpoint;
    this.#layout.value = suggestion.layout;
    this.#preset.replaceChildren(new Option("none: the layout below alone", ""), ...suggestion.presets.map((name) => new Option(name, name)));
    this.#preset.value = suggestion.preset;
    this.#describe(suggestion);
    if (suggestion.problem) this.#explain({ part: "layout", message: `No layout was found: ${suggestion.problem}.` });
    this.#showQuestions(suggestion.questions);
    this.#endpoint.focus();
  }

  #published(endpoints: readonly string[]): void {
    this.#dialog.close();
    this.#options.unlisted();
    if (endpoints[0] !== undefined) this.#options.pick(endpoints[0]);
  }

  #show(stage: Stage): void {
    this.#stage = stage;
    find(this.#dialog, ".of-key").hidden = stage !== "key";
    find(this.#dialog, ".of-layout").hidden = this.#suggestion === null;
    const words = { key: "Read the file", changed: "Preview", ready: `Publish ${count(this.#count)} ${this.#count === 1 ? "endpoint" : "endpoints"}` };
    setText(this.#submit, words[stage]);
  }

  /** Writes a problem beside its part; null removes them all. */
  #explain(problem: { part: Part; message: string } | null): void {
    for (const part of PARTS) {
      const note = find(this.#dialog, `#problem-${part}`);
      const words = problem?.part === part ? problem.message : "";
      setText(note, words);
      note.hidden = words === "";
      const field = this.#dialog.querySelector(`[name=${part}]`);
      if (words) field?.setAttribute("aria-invalid", "true");
      else field?.removeAttribute("aria-invalid");
    }
  }

  #showQuestions(questions: readonly Question[]): void {
    const list = find(this.#dialog, ".questions");
    list.hidden = questions.length === 0;
    find(list, "ul").replaceChildren(...questions.map((question) => this.#question(question)));
  }

  /** A question with its answers as buttons, of which one is pressed. */
  #question({ key, assumed, text, others }: Question): HTMLElement {
    const item = make("li");
    item.append(make("b", "", key), `: ${text}. `);
    const own = key === "zone" ? [Intl.DateTimeFormat().resolvedOptions().timeZone] : [];
    const answers = [...new Set([assumed, ...own, ...others])];
    if (answers.length === 1) item.append(`It is taken as ${assumed}.`);
    const buttons = answers.length === 1 ? [] : answers.map((answer) => make("button", "small", answer));
    buttons.forEach((button, index) => {
      button.type = "button";
      button.ariaPressed = String(index === 0);
      button.addEventListener("click", () => {
        for (const each of buttons) each.ariaPressed = String(each === button);
        this.#answer(key, button.textContent ?? "");
      });
      item.append(button, " ");
    });
    return item;
  }

  #answer(key: string, answer: string): void {
    if (key === "preset") this.#preset.value = answer;
    else this.#layout.value = withValue(this.#layout.value, key, answer);
    this.#show("changed");
    void this.#next();
  }

  /** Shows what would be stored; null: nothing yet. */
  #describe(preview: Preview | null): void {
    const shown = preview?.endpoints ?? [];
    this.#count = preview?.count ?? 0;
    const time = timeIn(preview?.zone ?? "") ?? UTC;
    const words = `${count(this.#count)} ${this.#count === 1 ? "endpoint" : "endpoints"}`;
    find(this.#dialog, ".preview").hidden = shown.length === 0;
    find(this.#dialog, ".preview tbody").replaceChildren(...shown.map((each) => row(each, time)));
    const part = shown.length < this.#count ? `the first ${shown.length} of ${words}` : words;
    setText(find(this.#dialog, ".preview caption"), `${part}; times in ${time.zone}`);
    this.#say(shown.length > 0 ? `Nothing is stored yet: ${words} can be published.` : "");
    this.#show(shown.length > 0 ? "ready" : "changed");
  }
}

function row({ endpoint, title, bytes, unit = "", resolution = "", points, first = [], last = [], curve = [] }: Converted, time: MarketTime): HTMLElement {
  const made = make("tr");
  const name = make("th");
  name.scope = "row";
  const facts = points === undefined ? ["document", sizeWords(bytes)] : [written(unit), every(resolution), `${count(points)} ${points === 1 ? "value" : "values"}`];
  name.append(make("b", "", endpoint), make("span", "quiet", [title, ...facts].filter(Boolean).join(" · ")));
  const trend = make("td", "trend");
  if (curve.length > 1) {
    const spark = makeSpark();
    spark.draw(sparkPaths(curve.map((value, start) => ({ start, end: start + 1, value })), []));
    trend.append(spark.element);
  }
  const ends = make("td", "ends");
  const digits = digitsOf(steps({ points: [...first, ...last], resolution }));
  const rest = (points ?? 0) - first.length - last.length;
  ends.append(...first.map((each) => pair(each, resolution, time, digits)), ...(rest > 0 ? [make("span", "quiet", `${count(rest)} more`)] : []));
  ends.append(...last.map((each) => pair(each, resolution, time, digits)));
  made.append(name, trend, ends);
  return made;
}

function pair(point: Point, resolution: string, time: MarketTime, digits: number): HTMLElement {
  const [step] = steps({ points: [point], resolution });
  const made = make("span", "", step ? `${startWords(step, resolution, time)} ` : "");
  made.append(make("b", "", point.value === null ? "–" : figure(point.value, digits)));
  return made;
}
