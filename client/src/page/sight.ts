/** Visibility of views: a view that is scrolled far away costs no subscription and no drawing. */

/** Views are drawn up to so many heights of the window away: pictures of the page are often taken beyond it. */
const MARGIN = 1.5;
/** A view that was left for less than this stays subscribed: scrolling past must not subscribe and unsubscribe. */
const LINGER_MS = 2_000;

interface Watched {
  readonly changed: (inSight: boolean) => void;
  inSight: boolean;
  leaving?: ReturnType<typeof setTimeout>;
}

/** Calls `changed` at once, and whenever the element becomes visible or has been invisible for a while. */
export class Sight {
  readonly #observer: IntersectionObserver;
  readonly #views = new Map<Element, Watched>();
  #all = false;

  constructor() {
    this.#observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) this.#seen(target, isIntersecting);
      },
      { rootMargin: `${MARGIN * 100}% 0px` },
    );
  }

  watch(element: HTMLElement, changed: (inSight: boolean) => void): void {
    const inSight = isInSight(element);
    this.#views.set(element, { changed, inSight });
    changed(inSight || (this.#all && isLaidOut(element)));
    this.#observer.observe(element);
  }

  /** Other views have become part of a page in the background, where the observer has no frame to report with. */
  look(): void {
    for (const [element, view] of this.#views) {
      if (!view.inSight && isInSight(element)) this.#seen(element, true);
    }
  }

  /** All views of the page count as visible, wherever they are; false: only those that are. */
  showAll(all: boolean): void {
    if (all === this.#all) return;
    this.#all = all;
    for (const [element, { changed, inSight }] of this.#views) changed(inSight || (all && isLaidOut(element)));
  }

  #seen(element: Element, inSight: boolean): void {
    const view = this.#views.get(element);
    if (view === undefined) return;
    clearTimeout(view.leaving);
    if (inSight) this.#set(view, true);
    else view.leaving = setTimeout(() => this.#set(view, false), LINGER_MS);
  }

  #set(view: Watched, inSight: boolean): void {
    view.inSight = inSight;
    if (inSight || !this.#all) view.changed(inSight);
  }
}

function isInSight(element: Element): boolean {
  const { top, bottom } = element.getBoundingClientRect();
  return isLaidOut(element) && bottom > -MARGIN * innerHeight && top < (1 + MARGIN) * innerHeight;
}

/** Whether an element is part of the visible page. */
const isLaidOut = (element: Element): boolean => element.getClientRects().length > 0;
