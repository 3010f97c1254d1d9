/** Bytes: text as text, with its differences marked, images as images, anything else as its type and size. Never as a part of the page. */

import { find, make, setText } from "../../dom.ts";
import { count } from "../../format.ts";
import { marketTime } from "../../time.ts";
import type { Body, Shown } from "../body.ts";
import { charsetOf, fileName, formOf, sizeOf, sizeWords, textOf } from "../media.ts";
import type { Line } from "../text.ts";
import { lines } from "../text.ts";

/** Characters of a text that are shown until all are asked for, and then. */
const CHARS = 20_000;
const MAX_CHARS = 2_000_000;
/** Time for a browser to begin a download. */
const DOWNLOAD_MS = 10_000;

export class BytesBody implements Body {
  readonly time = marketTime(null);
  differences = "";
  readonly #text: HTMLElement;
  readonly #more: HTMLButtonElement;
  readonly #figure: HTMLElement;
  readonly #image: HTMLImageElement;
  readonly #note: HTMLElement;
  #shown: Shown | null = null;
  #isLong = false;
  #url = "";

  constructor(root: HTMLElement) {
    this.#text = find(root, ".text");
    this.#more = find(root, ".more");
    this.#figure = find(root, "figure");
    this.#image = find(root, "img");
    this.#note = find(root, ".file");
    this.#more.addEventListener("click", () => {
      this.#isLong = true;
      if (this.#shown) this.#showText(this.#shown);
    });
    this.#image.addEventListener("load", () => setText(find(this.#figure, "figcaption"), `${this.#image.naturalWidth} × ${this.#image.naturalHeight} pixels`));
    this.#image.addEventListener("error", () => this.#url && setText(find(this.#figure, "figcaption"), "The browser cannot decode this image."));
  }

  clear(): void {
    this.#release();
    this.#shown = null;
    this.#isLong = false;
    this.differences = "";
  }

  show(shown: Shown): void {
    const { mediaType, value } = shown.version;
    const isSame = this.#shown?.version === shown.version;
    this.#shown = shown;
    const form = formOf(mediaType);
    const text = form === "text" ? textOf(value, mediaType) : null;
    this.differences = "";
    this.#text.hidden = this.#more.hidden = text === null;
    this.#figure.hidden = form !== "image";
    this.#note.hidden = text !== null || form === "image";
    if (text !== null) this.#showText(shown);
    if (form === "image" && !isSame) this.#showImage(shown);
    setText(this.#note, `${form === "text" ? `This is no text in ${charsetOf(mediaType).toUpperCase()}` : "There is no view for this type"}: ${sizeWords(sizeOf(value))} to download.`);
  }

  #showText({ version, base }: Shown): void {
    const text = textOf(version.value, version.mediaType) ?? "";
    const before = base && textOf(base.value, base.mediaType);
    const found = before === null ? null : lines(before, text);
    this.differences = before === null ? "" : lineWords(found, before === text);
    const limit = this.#isLong ? MAX_CHARS : CHARS;
    if (found === null) setText(this.#text, text.slice(0, limit));
    else this.#text.replaceChildren(...found.map(lineElement));
    this.#more.hidden = found !== null || text.length <= limit;
    setText(this.#more, this.#isLong ? `${count(text.length - limit)} more characters are in the download` : `Show ${count(Math.min(text.length, MAX_CHARS) - limit)} more characters`);
    this.#more.disabled = this.#isLong;
  }

  #showImage({ endpoint, version }: Shown): void {
    this.#release();
    // The type is one of an image, so that the address is that of an image wherever it is opened.
    this.#url = URL.createObjectURL(blobOf(version.value, version.mediaType));
    setText(find(this.#figure, "figcaption"), "");
    this.#image.alt = `The image ${endpoint}`;
    this.#image.src = this.#url;
  }

  #release(): void {
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = "";
    this.#image.removeAttribute("src");
  }

  /** Saves what is shown as a file. */
  download(): void {
    if (this.#shown === null) return;
    const { endpoint, version } = this.#shown;
    const link = make("a");
    // Without its type: at an address of this origin, HTML would run as the page's own.
    link.href = URL.createObjectURL(blobOf(version.value, "application/octet-stream"));
    link.download = fileName(endpoint, version.mediaType);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), DOWNLOAD_MS);
  }
}

const blobOf = (value: unknown, type: string): Blob => new Blob([value instanceof Uint8Array ? (value as Uint8Array<ArrayBuffer>) : String(value ?? "")], { type });

/** "2 lines added, 1 removed". */
function lineWords(found: readonly Line[] | null, isEqual: boolean): string {
  if (found === null) return isEqual ? "no difference" : "too long to compare";
  const [added, removed] = (["added", "removed"] as const).map((wanted) => found.filter(({ mark }) => mark === wanted).length);
  return [added ? `${count(added)} ${added === 1 ? "line" : "lines"} added` : "", removed ? `${count(removed)} ${removed === 1 ? "line" : "lines"} removed` : ""].filter(Boolean).join(", ");
}

function lineElement({ mark, text }: Line): HTMLElement {
  const line = make(mark === "added" ? "ins" : mark === "removed" ? "del" : "span", "line");
  if (mark) {
    line.dataset.sign = mark === "added" ? "+" : "−";
    line.append(make("span", "sr", `${mark}: `));
  }
  line.append(`${text}\n`);
  return line;
}
