/** The line under each view: how old its data is, and whether it may be out of date. */

import type { DataError, Diem } from "../sdk/index.ts";
import type { Behind } from "./ages.ts";
import { find, setData, setText } from "./dom.ts";
import { duration, updatedAgo } from "./format.ts";
import { isOffline } from "./offline.ts";
import type { MarketTime } from "./time.ts";
import { marketTime } from "./time.ts";

/** Why the data shown may be out of date; "" = it is not. */
export function doubt(diem: Diem, endpoints: readonly string[], offline = isOffline()): string {
  const { updates, data } = diem;
  const { state } = updates.connection.value;
  const live = endpoints.length > 0 && endpoints.every((endpoint) => updates.isLive(endpoint));
  // With several servers the missing connection may be that of other endpoints.
  if (state !== "open" && !live) return offline && state !== "closed" ? "Offline" : WORDS[state];
  const failure = endpoints.map((endpoint) => data.health.value.failing.get(endpoint)).find((error) => error !== undefined);
  if (failure) return failureWords(failure);
  return endpoints.every((endpoint) => updates.isLive(endpoint)) ? "" : "Source not live";
}

/** Why the data of an endpoint cannot be had. */
export function failureWords({ code, status }: DataError): string {
  if (code === "stale") return "An old copy is served";
  if (code === "lost") return LOST;
  return status === 404 ? "Not in the catalogue" : "Data Service unreachable";
}

/** The Data Service answers, and has an older version than the page was notified of, or showed. */
export const LOST = "A newer version is lost: the store was put back";

const WORDS = { closed: "Disconnected", connecting: "Connecting", reconnecting: "Reconnecting" };

/**
 * "updated 3 s ago", and the parts that lag: "updated 3 s ago; Solar 3 h ago". If it may be out of date also the time of day,
 * because the age alone is then not enough.
 */
export function ageText(
  acceptedAt: number | null,
  now: number,
  doubted: boolean,
  time: MarketTime = marketTime(null),
  behind: Behind | null = null,
): string {
  if (acceptedAt === null) return "";
  const others = behind && behind.others > 0 ? ` and ${behind.others} more, up to` : "";
  const late = behind ? `; ${behind.name}${others} ${duration(now - behind.at)} ${doubted ? "old" : "ago"}` : "";
  if (!doubted) return `${updatedAgo(now - acceptedAt)}${late}`;
  const age = now - acceptedAt < 1_000 ? "" : `, ${duration(now - acceptedAt)} old`;
  return `data of ${time.clockSeconds(acceptedAt)}${age}${late}`;
}

/**
 * Updates the age line of `view` and its `data-stale`, by which the style dims it. `acceptedAt` returns when the newest
 * data shown was accepted at its source (Unix milliseconds), `problem` a problem of the data itself.
 */
export class Freshness {
  readonly #diem: Diem;
  readonly #view: HTMLElement;
  readonly #note: HTMLElement;
  readonly #age: HTMLElement;

  constructor(diem: Diem, view: HTMLElement) {
    this.#diem = diem;
    this.#view = view;
    this.#note = find(view, ".note");
    this.#age = find(view, ".age");
  }

  /** `endpoints` null: the view does not depend on the connection. `behind`: the parts that lag. */
  show(endpoints: readonly string[] | null, acceptedAt: number | null, problem: string, time: MarketTime, behind: Behind | null): void {
    const note = (endpoints && doubt(this.#diem, endpoints)) || problem;
    const stale = note !== "";
    setData(this.#view, "stale", String(stale));
    setText(this.#note, note);
    setText(this.#age, ageText(acceptedAt, Date.now(), stale, time, behind) || (stale ? "" : "waiting for data"));
  }
}
