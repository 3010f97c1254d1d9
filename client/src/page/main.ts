/** The demo page: creates the views of the market, loads the page "Data", and updates both from the catalogue. */

import "./style.css";
import type { Diem } from "../sdk/index.ts";
import { createDiem } from "../sdk/index.ts";
import type { PageName } from "./address.ts";
import { pageOf, pageSearch, readAddress, readHash, writeHash } from "./address.ts";
import { Catalogue } from "./catalogue.ts";
import { IMBALANCES, LOADS } from "./comparisons.ts";
import type { DataView } from "./data/view.ts";
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
import { setUpPrint } from "./print.ts";
import { Sight } from "./sight.ts";
import { SourcesView } from "./sources.ts";
import { showStatus } from "./status.ts";
import { setUpTheme } from "./theme.ts";
import { marketTime } from "./time.ts";
import type { View } from "./view.ts";
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
/** How often the page "Data" reads the list of endpoints, plus a time for each of them: 10,000 are read once a minute. */
const LIST_EVERY_MS = 3_000;
const LIST_ENTRY_MS = 5;
/** Time that the page waits for the catalogue to decide what it shows; then it shows the market. */
const UNDECIDED_MS = 1_000;

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
const views: View[] = [priceView, loadTable, forecastView, mixView, imbalanceTable, flowsView, sourcesView];
const picker = new ZonePicker(find(document, "#zone"), pick);
const tally = find(document, "#tally");
const offline = find(document, "#offline");
const sight = new Sight();
const tickStatus = showStatus(diem, find(document, "#connection"));

let address = readAddress(location.search, location.hash);
let dataView: DataView | null = null;
let isLoading = false;
/** Whether the catalogue has a market; null while unknown. */
let hasMarket: boolean | null = null;
/** True once the user interacts with the page chosen by the catalogue, which then stays. */
let isUsed = false;
let listReadAt = performance.now();
let isLate = false;

let catalogue: readonly Listed[] = [];
let zones: string[] = [];
let { zone: linked, day } = readHash(location.hash);
let picked = asked.price === null ? (linked ?? asked.zone ?? recall(ZONE_KEY) ?? "GR") : null;
/** True if the user selected the zone, which then stays even if missing in the catalogue. */
let chosen = (linked ?? asked.zone) !== null;

priceView.showDay(day);
showZone();
if (asked.load) loadTable.list(loadRows([], asked.load), new Set());
setUpTheme(find(document, "#theme"), () => views.forEach((view) => view.repaint()));
setUpLinks(document);
for (const link of document.querySelectorAll<HTMLAnchorElement>("[data-leads]")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    goTo(link.dataset.leads as PageName);
  });
}
for (const part of [".endpoints", ".endpoint"]) find(document, part).addEventListener("focusin", () => (isUsed = true));
addEventListener("popstate", () => {
  address = readAddress(location.search, location.hash);
  showPage();
});
addEventListener("hashchange", () => {
  ({ zone: linked, day } = readHash(location.hash));
  priceView.showDay(day);
  if (linked !== null && linked !== picked && asked.price === null) choose(linked);
});
showPage();
for (const view of views) sight.watch(view.root, (inSight) => view.show(inSight));
setUpPrint({ sight, frames: desk.frames, views: () => views });
setTimeout(() => {
  isLate = true;
  if (hasMarket === null) showPage();
}, UNDECIDED_MS);

/** The page that is shown now. */
function page(): PageName {
  return document.documentElement.dataset.page === "data" ? "data" : "market";
}

/** Shows the page that the address names, or that the catalogue makes sense of. */
function showPage(): void {
  const shown = address.page === null && isUsed ? page() : pageOf(address, hasMarket ?? (isLate || null));
  const isDecided = shown !== null && document.documentElement.dataset.page === "undecided";
  document.documentElement.dataset.page = shown ?? "undecided";
  for (const link of document.querySelectorAll<HTMLAnchorElement>("[data-leads]")) {
    link.ariaCurrent = link.dataset.leads === shown ? "page" : null;
    // Where there is no market, nothing leads to it.
    link.hidden = link.dataset.leads === "market" && hasMarket !== true && shown === "data";
    link.href = pageSearch(location.search, link.dataset.leads as PageName);
  }
  find<HTMLAnchorElement>(document, ".skip").href = shown === "data" ? "#endpoint" : "#price";
  if (shown === null) return;
  if (isDecided && document.hidden) sight.look();
  if (shown === "market") showZone();
  else if (dataView !== null) dataView.select(address.endpoint);
  else void loadDataView();
  showLinks();
}

/** The user goes to a page: the browser can go back. */
function goTo(name: PageName, endpoint: string | null = null): void {
  const place = name === "market" ? writeHash({ zone: chosen ? picked : null, day }) : "";
  history.pushState(null, "", pageSearch(location.search, name, endpoint) + place);
  address = readAddress(location.search, location.hash);
  showPage();
}

/** Loads the page "Data" when it is first shown. */
async function loadDataView(): Promise<void> {
  if (isLoading) return;
  isLoading = true;
  const loaded = await import("./data/view.ts").catch(() => null);
  isLoading = false;
  if (loaded === null) {
    setTimeout(() => dataView ?? void loadDataView(), LIST_EVERY_MS); // the file cannot be read now
    return;
  }
  const view = new loaded.DataView(desk, find(document, ".view.endpoints"), find(document, ".view.endpoint"), {
    rest: restUrl,
    href: (endpoint) => pageSearch(location.search, "data", endpoint),
    pick: (endpoint) => goTo("data", endpoint),
    titled: (title) => {
      if (page() === "data") document.title = `${title} – DIEM`;
    },
    unlisted: () => readListAfter(LIST_EVERY_MS),
  });
  dataView = view;
  views.push(view);
  sight.watch(view.root, (inSight) => view.show(inSight));
  view.select(address.endpoint);
  if (hasMarket !== null) view.list(catalogue);
}

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
  if (page() !== "market") return;
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
  hasMarket = zones.length > 0;
  dataView?.list(catalogue);
  const [first] = zones;
  if (picked !== null && !chosen && first !== undefined && !zones.includes(picked)) picked = zones.includes("GR") ? "GR" : first;
  const rows = loadRows(catalogue, asked.load);
  loadTable.list(rows, new Set(zones));
  loadTable.explain(rows.length > 0 ? "" : "No load in the catalogue yet.");
  const imbalances = imbalanceRows(catalogue);
  imbalanceTable.list(imbalances, new Set(zones));
  imbalanceTable.root.hidden = imbalances.length === 0;
  flowsView.list(flowPairs(catalogue));
  showPage();
}

/** Links only to existing views of the page. */
function showLinks(): void {
  for (const link of document.querySelectorAll<HTMLAnchorElement>('.views > a[href^="#"]')) {
    const target = document.getElementById(link.hash.slice(1));
    const hidden = target === null || target.hidden || (page() === "data" && !target.matches(".sources"));
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

/** Requests the list of endpoints again, unless that was done within `ms`. */
function readListAfter(ms: number): void {
  if (performance.now() - listReadAt >= ms) list.read(0);
}

const list = new Catalogue({
  read: () => {
    listReadAt = performance.now();
    return diem.data.catalogue();
  },
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
  if (page() === "data" && !document.hidden) readListAfter(LIST_EVERY_MS + LIST_ENTRY_MS * catalogue.length);
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
