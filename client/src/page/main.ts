/** The demo page: puts the views on the page, and keeps the list of zones in step with the catalogue. */

import "./style.css";
import type { CatalogueEntry, Diem } from "../sdk/index.ts";
import { createDiem } from "../sdk/index.ts";
import { readHash, writeHash } from "./address.ts";
import { find, make, setText } from "./dom.ts";
import { FlowsView } from "./flows.ts";
import { ForecastView } from "./forecast.ts";
import { Frames } from "./frames.ts";
import { setUpLinks } from "./links.ts";
import { MixView } from "./mix.ts";
import { IMBALANCES, LOADS, PairTable } from "./pairs.ts";
import { PriceView } from "./price.ts";
import { Sight } from "./sight.ts";
import { SourcesView } from "./sources.ts";
import { showStatus } from "./status.ts";
import { setUpTheme } from "./theme.ts";
import { Watching } from "./watching.ts";
import { flowPairs, generationOf, imbalanceRows, loadRows, priceEndpoint, priceZones, wish, zoneName } from "./zones.ts";

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

let rest: string | null = null;
const desk = { diem, frames: new Frames(), watching: new Watching(diem) };
const priceView = new PriceView(desk, find(document, ".view.price"), (picked) => {
  day = picked;
  keepPlace();
});
const loadTable = new PairTable(desk, find(document, ".view.load"), LOADS, pick);
const forecastView = new ForecastView(desk, find(document, ".view.forecast"));
const mixView = new MixView(desk, find(document, ".view.mix"));
const imbalanceTable = new PairTable(desk, find(document, ".view.imbalance"), IMBALANCES, pick);
const flowsView = new FlowsView(desk, find(document, ".view.flows"));
const sourcesView = new SourcesView(desk, find(document, ".view.sources"), restUrl);
const views = [priceView, loadTable, forecastView, mixView, imbalanceTable, flowsView, sourcesView];
const picker = find<HTMLSelectElement>(document, "#zone");
const tally = find(document, "#tally");
const tickStatus = showStatus(diem, find(document, "#connection"));

let catalogue: readonly CatalogueEntry[] = [];
let zones: string[] = [];
let { zone: linked, day } = readHash(location.hash);
let picked = asked.price === null ? (linked ?? asked.zone ?? remembered() ?? "GR") : null;
/** Whether the zone is one that somebody chose: then it stays even if the catalogue does not have it yet. */
let chosen = (linked ?? asked.zone) !== null;

priceView.showDay(day);
showZone();
if (asked.load) loadTable.list(loadRows([], asked.load), new Set());
setUpTheme(find(document, "#theme"), () => views.forEach((view) => view.repaint()));
setUpLinks(document);
picker.addEventListener("change", () => picker.value && pick(picker.value));
addEventListener("hashchange", () => {
  ({ zone: linked, day } = readHash(location.hash));
  priceView.showDay(day);
  if (linked !== null && linked !== picked && asked.price === null) choose(linked);
});
const sight = new Sight();
for (const view of views) sight.watch(view.root, (inSight) => view.show(inSight));

/** Somebody picked a zone on the page. */
function pick(zone: string): void {
  choose(zone);
  keepPlace();
}

function choose(zone: string): void {
  picked = zone;
  chosen = true;
  try {
    localStorage.setItem(ZONE_KEY, zone);
  } catch {
    // Forbidden storage: the choice lasts as long as the page.
  }
  showZone();
}

/** Puts zone and day into the address, without a step in the history for each. */
function keepPlace(): void {
  history.replaceState(history.state, "", `${location.pathname}${location.search}${writeHash({ zone: picked, day })}`);
}

function remembered(): string | null {
  try {
    return localStorage.getItem(ZONE_KEY);
  } catch {
    return null;
  }
}

function showZone(): void {
  const options = picked === null || zones.includes(picked) ? zones : [picked, ...zones];
  const name = picked === null ? (asked.price ?? "") : zoneName(picked);
  picker.replaceChildren(...(picked === null ? [new Option(name, "")] : []), ...options.map((zone) => new Option(zoneName(zone), zone)));
  picker.value = picked ?? "";
  document.title = `${name} – DIEM`;
  priceView.select(picked === null ? (asked.price ?? "") : priceEndpoint(picked), name, picked);
  const [row = null] = picked === null ? [] : loadRows(catalogue, null).filter(({ zone, forecast }) => zone === picked && forecast !== null);
  forecastView.select(row, name);
  mixView.select(picked, name, generationOf(catalogue, picked));
  for (const view of [loadTable, imbalanceTable, flowsView]) view.mark(picked);
}

function showCatalogue(found: readonly CatalogueEntry[]): void {
  catalogue = found;
  zones = priceZones(catalogue);
  const [first] = zones;
  if (picked !== null && !chosen && first !== undefined && !zones.includes(picked)) picked = zones.includes("GR") ? "GR" : first;
  const rows = loadRows(catalogue, asked.load);
  loadTable.list(rows, new Set(zones));
  loadTable.explain(rows.length > 0 ? "" : "No load in the catalogue yet.");
  const imbalances = imbalanceRows(catalogue);
  imbalanceTable.list(imbalances, new Set(zones));
  imbalanceTable.root.hidden = imbalances.length === 0;
  flowsView.list(flowPairs(catalogue));
  showZone();
  showLinks();
}

/** Links only to views that are there. */
function showLinks(): void {
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".views a")) {
    const hidden = document.getElementById(link.hash.slice(1))?.hidden ?? true;
    if (link.hidden !== hidden) link.hidden = hidden;
  }
}

/** Where the REST interface is, as the configuration says; asked once. */
async function restUrl(): Promise<string> {
  if (rest !== null) return rest;
  const url = new URL("./config.json", document.baseURI);
  const config = (await (await fetch(url)).json()) as { rest?: string };
  return (rest = new URL(config.rest ?? "/v1", url).href.replace(/\/$/, ""));
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
  for (const view of views) view.tick();
  showLinks();
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
