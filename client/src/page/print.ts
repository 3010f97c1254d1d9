/**
 * Printing: every view of the page, drawn on light paper. A printout is made at once, so views that were never in sight have
 * no data then; with Ctrl+P the page waits for it first.
 */

import type { Frames } from "./frames.ts";
import type { Sight } from "./sight.ts";
import type { View } from "./view.ts";

const PATIENCE_MS = 10_000;
const POLL_MS = 50;

export interface PrintOptions {
  readonly sight: Sight;
  readonly frames: Frames;
  views(): readonly View[];
}

/** Draws everything for printouts, and for media of the type print. */
export function setUpPrint({ sight, frames, views }: PrintOptions): void {
  const root = document.documentElement;
  const paper = matchMedia("print");
  let theme: string | undefined;
  let isOn = false;

  const begin = (): void => {
    if (isOn) return;
    isOn = true;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    sight.showAll(true);
    frames.flush();
    for (const view of views()) view.repaint();
  };
  const end = (): void => {
    if (!isOn) return;
    isOn = false;
    if (theme === undefined) delete root.dataset.theme;
    else root.dataset.theme = theme;
    sight.showAll(false);
    for (const view of views()) view.repaint();
  };
  const complete = (): boolean => views().every(({ group }) => !group.inSight || group.isComplete);
  const printComplete = async (): Promise<void> => {
    sight.showAll(true);
    const deadline = performance.now() + PATIENCE_MS;
    do {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS)); // views subscribe in a later microtask
    } while (performance.now() < deadline && !complete());
    print();
    if (!isOn) sight.showAll(false);
  };

  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
  paper.addEventListener("change", () => (paper.matches ? begin() : end()));
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    void printComplete();
  });
}
