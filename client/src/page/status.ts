/** The connection in the page's header: one word, two attributes for scripts, and a button when it was closed for good. */

import type { Diem } from "../sdk/index.ts";
import { find, setData, setText } from "./dom.ts";
import { isOffline } from "./offline.ts";

/** The text of the header. */
export function wording(state: string, live: boolean, reachable: boolean, offline = false): string {
  if (offline && state.endsWith("connecting")) return "Offline";
  if (state === "connecting") return "Connecting";
  if (state === "reconnecting") return "Reconnecting";
  if (state === "closed") return "Disconnected";
  if (!reachable) return "Data Service unreachable";
  return live ? "Live" : "Source not live";
}

/** Keeps the element up to date; returns a function that updates its countdown. */
export function showStatus(diem: Diem, element: HTMLElement): () => void {
  const text = find(element, ".connection-text");
  const countdown = find(element, ".countdown");
  const button = find<HTMLButtonElement>(element, ".connect");
  const { updates, data } = diem;

  const tick = (): void => {
    const { retryAt } = updates.connection.value;
    const seconds = retryAt === null ? 0 : Math.ceil((retryAt - performance.now()) / 1_000);
    setText(countdown, seconds > 1 ? `in ${seconds} s` : "");
  };
  const show = (): void => {
    const { state, code, reason } = updates.connection.value;
    const { live } = updates.live.value;
    // If it answers, but not with the announced version, each view shows that.
    const reachable = [...data.health.value.failing.values()].every(({ code, status }) => code === "stale" || code === "lost" || status === 404);
    setData(element, "state", state);
    setData(element, "live", String(live));
    setData(element, "reachable", String(reachable));
    setText(text, wording(state, live, reachable, isOffline()));
    element.title = state === "closed" && code !== null ? `Closed by the server: ${reason || "no reason"} (${code})` : "";
    if (state !== "closed" && document.activeElement === button) element.focus(); // otherwise the focus would be lost
    button.hidden = state !== "closed";
    tick();
  };
  button.addEventListener("click", () => updates.connect());
  updates.connection.observe(show);
  updates.live.observe(show);
  data.health.observe(show);
  for (const event of ["online", "offline"]) addEventListener(event, show);
  return tick;
}
