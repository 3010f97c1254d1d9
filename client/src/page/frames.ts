/** Draws at most once a frame, however many changes arrive between two frames. */

export class Frames {
  readonly #request: (run: () => void) => void;
  #due = new Set<() => void>();

  /** `request` runs its argument before the next paint; in a hidden tab that is when it becomes visible. */
  constructor(request: (run: () => void) => void = (run) => void requestAnimationFrame(run)) {
    this.#request = request;
  }

  /** Runs `draw` in the next frame, once however often it is requested, so pending work is bounded by the parts of the page. */
  draw(draw: () => void): void {
    if (this.#due.size === 0) this.#request(() => this.#run());
    this.#due.add(draw);
  }

  /** Runs all due callbacks now: there is no further frame before a printout. */
  flush(): void {
    if (this.#due.size > 0) this.#run();
  }

  #run(): void {
    const due = this.#due;
    this.#due = new Set();
    for (const draw of due) {
      try {
        draw();
      } catch (error) {
        reportError(error); // an error of one view does not affect the others
      }
    }
  }
}
