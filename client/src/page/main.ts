/** The demo page: creates the views, and updates the list of zones from the catalogue. */

import "./style.css";
import type { Diem } from "../sdk/index.ts";
import { createDiem } from "../sdk/index.ts";
import { readHash, writeHash } from "./address.ts";
import { Catalogue } from "./catalogue.ts";
import { IMBALANCES, LOADS } from "./comparisons.ts";
import { find, make, setText } from "./dom.ts";
import { FlowsView } from "./flows.ts";
import { ForecastView } from "./forecast.ts";
import { Frames } from "./frames.ts";
import { setUpLinks } from "./links.ts";
import { recall, remember } from "./memory.ts";
import { MixView } from "./mix.ts";
import { isOffline, offlineWords } from "./offline.ts";
import { PairTable } from "./pairs.ts";
import { ZonePicker } from "./picker.ts";
import { PriceView } from "./price.ts";
import { Sight } from "./sight.ts";
import { SourcesView } from "./sources.ts";
import { showStatus } from "./status.ts";
import { setUpTheme } from "./theme.ts";
import { marketTime } from "./time.ts";
import { Watching } from "./watching.ts";
import type { Listed } from "./zones.ts";
import { flowPairs, generationOf, imbalanceRows, loadRows, priceEndpoint, priceZones, wish, zoneName } from "./zones.ts";

declare global {
  interface Window {
    /** For tests and the console: `diem.stats`. */
    diem: Diem;
  }
}

const ZONE_KEY = "diem.zone";
const asked = wish(location.search);
const diem = createDiem({ configUrl: "./config.json", data: asked.data });
window.diem = diem;

let rest: string | null = null;
const desk = { diem, frames: new Frames(), watching: new Watching(diem) };
const priceView = new PriceView(desk, find(document, ".view.price"), (picked) => {
  day = picked;
  keepPlace();
});
const loadTable = new PairTable(desk, find(document, ".view.load"), LOADS, pickRow);
const forecastView = new ForecastView(desk, find(document, ".view.forecast"));
const mixView = new MixView(desk, find(document, ".view.mix"));
const imbalanceTable = new PairTable(desk, find(document, ".view.imbalance"), IMBALANCES, pickRow);
const flowsView = new FlowsView(desk, find(document, ".view.flows"));
const sourcesView = new SourcesView(desk, find(document, ".view.sources"), restUrl);
const views = [priceView, loadTable, forecastView, mixView, imbalanceTable, flowsView, sourcesView];
const picker = new ZonePicker(find(document, "#zone"), pick);
const tally = find(document, "#tally");
const offline = find(document, "#offline");
const tickStatus = showStatus(diem, find(document, "#connection"));

let catalogue: readonly Listed[] = [];
let zones: string[] = [];
let { zone: linked, day } = readHash(location.hash);
let picked = asked.price === null ? (linked ?? asked.zone ?? recall(ZONE_KEY) ?? "GR") : null;
/** Whether the user selected the zone: then it stays even if the catalogue does not have it yet. */
let chosen = (linked ?? asked.zone) !== null;

priceView.showDay(day);
showZone();
if (asked.load) loadTable.list(loadRows([], asked.load), new Set());
setUpTheme(find(document, "#theme"), () => views.forEach((view) => view.repaint()));
setUpLinks(document);
addEventListener("hashchange", () => {
  ({ zone: linked, day } = readHash(location.hash));
  priceView.showDay(day);
  if (linked !== null && linked !== picked && asked.price === null) choose(linked);
});
const sight = new Sight();
for (const view of views) sight.watch(view.root, (inSight) => view.show(inSight));

/** The user selected a zone. */
function pick(zone: string): void {
  choose(zone);
  keepPlace();
}

/** The same in a table, far from the view that changes: it is announced. */
function pickRow(zone: string): void {
  pick(zone);
  priceView.say(`${zoneName(zone)} is shown`);
}

function choose(zone: string): void {
  picked = zone;
  chosen = true;
  remember(ZONE_KEY, zone);
  showZone();
}

/** Writes zone and day to the address, without a history entry for each. */
function keepPlace(): void {
  history.replaceState(history.state, "", `${location.pathname}${location.search}${writeHash({ zone: picked, day })}`);
}

function showZone(): void {
  const name = picked === null ? (asked.price ?? "") : zoneName(picked);
  picker.show(zones, picked, name);
  document.title = `${name} – DIEM`;
  priceView.select(picked === null ? (asked.price ?? "") : priceEndpoint(picked), name, picked);
  const [row = null] = picked === null ? [] : loadRows(catalogue, null).filter(({ zone, forecast }) => zone === picked && forecast !== null);
  forecastView.select(row, name);
  mixView.select(picked, name, generationOf(catalogue, picked));
  for (const view of [loadTable, imbalanceTable, flowsView]) view.mark(picked);
}

function showCatalogue(found: readonly Listed[]): void {
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

/** Links only to existing views. */
function showLinks(): void {
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".views a")) {
    const hidden = document.getElementById(link.hash.slice(1))?.hidden ?? true;
    if (link.hidden !== hidden) link.hidden = hidden;
  }
}

/** Base URL of the REST API from the configuration, read once. */
async function restUrl(): Promise<string> {
  if (rest !== null) return rest;
  const url = new URL("./config.json", document.baseURI);
  const config = (await (await fetch(url)).json()) as { rest?: string };
  return (rest = new URL(config.rest ?? "/v1", url).href.replace(/\/$/, ""));
}

const list = new Catalogue({
  read: () => diem.data.catalogue(),
  show: showCatalogue,
  name: `diem.catalogue ${new URL("./config.json", document.baseURI).href}`,
});
list.start();
let wasOpen: boolean | null = null;
diem.updates.connection.observe(({ state }) => {
  const isOpen = state === "open";
  if (isOpen && wasOpen === false) list.read(Math.random() * 2_000); // otherwise all tabs that reconnect would read at once
  if (state !== "connecting") wasOpen = isOpen || (wasOpen === null ? null : false);
  tick();
});
diem.updates.live.observe(tick);
diem.data.health.observe(tick);

function tick(): void {
  tickStatus();
  setText(offline, offlineWords(diem.updates.connection.value, isOffline(), list.outdatedSince, marketTime(null)));
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
