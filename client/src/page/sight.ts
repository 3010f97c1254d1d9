/** Visibility of views: a view that is scrolled away costs no subscription and no drawing. */

/** Views this close to the window are prepared. */
const MARGIN_PX = 160;
/** A view that was left for less than this stays subscribed: scrolling past must not subscribe and unsubscribe. */
const LINGER_MS = 2_000;

/** Calls `changed` at once, and whenever the element becomes visible or has been invisible for a while. */
export class Sight {
  readonly #observer: IntersectionObserver;
  readonly #views = new Map<Element, (inSight: boolean) => void>();
  readonly #leaving = new Map<Element, ReturnType<typeof setTimeout>>();

  constructor() {
    this.#observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) this.#seen(target, isIntersecting);
      },
      { rootMargin: `${MARGIN_PX}px 0px` },
    );
  }

  watch(element: HTMLElement, changed: (inSight: boolean) => void): void {
    this.#views.set(element, changed);
    // The observer first reports with a frame, which a background tab does not have.
    const { top, bottom } = element.getBoundingClientRect();
    changed(!element.hidden && bottom > -MARGIN_PX && top < innerHeight + MARGIN_PX);
    this.#observer.observe(element);
  }

  #seen(element: Element, inSight: boolean): void {
    clearTimeout(this.#leaving.get(element));
    this.#leaving.delete(element);
    const changed = this.#views.get(element);
    if (inSight) changed?.(true);
    else this.#leaving.set(element, setTimeout(() => changed?.(false), LINGER_MS));
  }
}
