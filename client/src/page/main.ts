/** The demo page: puts the views on the page, and keeps the list of zones in step with the catalogue. */

import "./style.css";
import type { CatalogueEntry, Diem } from "../sdk/index.ts";
import { createDiem } from "../sdk/index.ts";
import { find, make, setText } from "./dom.ts";
import { timeZone } from "./format.ts";
import { LoadTable } from "./load.ts";
import { PriceView } from "./price.ts";
import { showStatus } from "./status.ts";
import { setUpTheme } from "./theme.ts";
import { loadRows, priceEndpoint, priceZones, wish, zoneName } from "./zones.ts";

declare global {
  interface Window {
    /** For tests, and for the curious: `diem.stats` in the console. */
    diem: Diem;
  }
}

const ZONE_KEY = "diem.zone";
const asked = wish(location.search);
const diem = createDiem({ configUrl: "./config.json" });
window.diem = diem;

const priceView = new PriceView(diem, find(document, ".view.price"));
const loadTable = new LoadTable(diem, find(document, ".view.load"), (zone) => pick(zone));
const picker = find<HTMLSelectElement>(document, "#zone");
const tally = find(document, "#tally");
const tickStatus = showStatus(diem, find(document, "#connection"));

let zones: string[] = [];
let picked = asked.price === null ? (asked.zone ?? remembered() ?? "GR") : null;
/** Whether the zone is one that somebody chose: then it stays even if the catalogue does not have it yet. */
let chosen = asked.zone !== null;

showPrice();
if (asked.load) loadTable.show(loadRows([], asked.load), new Set());
setUpTheme(find(document, "#theme"), () => priceView.repaint());
setText(find(document, ".timezone"), `Times in ${timeZone(new Date())}`);
picker.addEventListener("change", () => picker.value && pick(picker.value));

function pick(zone: string): void {
  picked = zone;
  chosen = true;
  try {
    localStorage.setItem(ZONE_KEY, zone);
  } catch {
    // Forbidden storage: the choice lasts as long as the page.
  }
  showPrice();
}

function remembered(): string | null {
  try {
    return localStorage.getItem(ZONE_KEY);
  } catch {
    return null;
  }
}

function showPrice(): void {
  const options = picked === null || zones.includes(picked) ? zones : [picked, ...zones];
  const name = picked === null ? (asked.price ?? "") : zoneName(picked);
  picker.replaceChildren(...(picked === null ? [new Option(name, "")] : []), ...options.map((zone) => new Option(zoneName(zone), zone)));
  picker.value = picked ?? "";
  document.title = `${name} – DIEM`;
  priceView.select(picked === null ? (asked.price ?? "") : priceEndpoint(picked), name);
  loadTable.mark(picked);
}

function showCatalogue(catalogue: readonly CatalogueEntry[]): void {
  zones = priceZones(catalogue);
  const [first] = zones;
  if (picked !== null && !chosen && first !== undefined && !zones.includes(picked)) picked = zones.includes("GR") ? "GR" : first;
  const rows = loadRows(catalogue, asked.load);
  loadTable.show(rows, new Set(zones));
  loadTable.explain(rows.length > 0 ? "" : "No load in the catalogue yet.");
  showPrice();
}

/** Reads the catalogue until it succeeds once; `delayMs` grows with failures. */
let reading: ReturnType<typeof setTimeout> | undefined;
function readCatalogue(delayMs: number, nextMs = 1_000): void {
  clearTimeout(reading);
  reading = setTimeout(() => {
    diem.data.catalogue().then(showCatalogue, () => readCatalogue(Math.random() * nextMs, Math.min(nextMs * 2, 10_000)));
  }, delayMs);
}

readCatalogue(0);
let wasOpen: boolean | null = null;
diem.updates.connection.observe(({ state }) => {
  const isOpen = state === "open";
  if (isOpen && wasOpen === false) readCatalogue(Math.random() * 2_000); // every tab that came back would ask at once
  if (state !== "connecting") wasOpen = isOpen || (wasOpen === null ? null : false);
  tick();
});
diem.updates.live.observe(tick);
diem.data.health.observe(tick);

function tick(): void {
  tickStatus();
  priceView.tick();
  loadTable.tick();
  const { frames, updateFrames, fetches } = diem.stats;
  const requests = Object.values(fetches).reduce((sum, count) => sum + count, 0);
  const { server, mode } = diem.updates.connection.value;
  const facts: [string, string][] = [
    ["Endpoints watched", String(diem.updates.subscriptions)],
    ["Updates received", String(updateFrames)],
    ["Frames", String(frames)],
    ["Fetches", String(requests)],
    ["Server", server ? `${server}, mode ${mode}` : "none yet"],
  ];
  facts.forEach(([label, value], index) => {
    const item = tally.children[index] ?? tally.appendChild(make("p"));
    if (item.childElementCount === 0) item.append(make("span", "", label), make("b"));
    setText(find(item, "b"), value);
  });
}
setInterval(tick, 1_000);
