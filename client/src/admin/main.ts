/** The operator page: fetches the document every second while it is visible, and shows it. */

import { find, setText } from "../page/dom.ts";
import { draw } from "./drawing.ts";
import { clock, span } from "./format.ts";
import { showEvents, showFigures, showPlans, showProcesses, showSources, showVerdict, type Outage } from "./panels.ts";
import { SignedOut, fetchOverview, type Overview } from "./status.ts";

const EVERY_MS = 1_000;
/** Time without an answer until the page shows an outage; one slow answer is none. */
const SILENT_MS = 4_000;

const verdict = find(document, "#verdict");
const topology = find(document, "#topology");
let shown: Overview | null = null;
/** Time of the last answer, by this machine's own clock; at first of the start. */
let answeredAt = performance.now();
let drawn = "";

function show(overview: Overview): void {
  const first = shown === null;
  shown = overview;
  document.body.dataset.silent = "false";
  showVerdict(verdict, overview);
  showFigures(find(document, "#figures"), overview);
  showPlans(find(document, "#plans"), overview);
  showProcesses(find(document, "#processes"), overview);
  showSources(find(document, "#sources-section"), overview);
  showEvents(find(document, "#events"), find(document, "#no-events"), overview);
  drawTopology(first);
  const mode = find(document, "#mode");
  mode.hidden = false;
  setText(mode, overview.mode);
  if (overview.since) setText(find(document, "#uptime"), `up for ${span(Date.parse(overview.time) - Date.parse(overview.since))}`);
  document.title = overview.state === "well" ? "DIEM: all well" : `DIEM: ${overview.headline}`;
}

/** Draws the topology if it, or its width, has changed. */
function drawTopology(anyway: boolean): void {
  if (!shown) return;
  const wanted = `${topology.clientWidth} ${JSON.stringify(shown.diagram)}`;
  if (wanted === drawn && !anyway) return;
  drawn = wanted;
  draw(topology, shown.diagram);
}

function outage(): Outage {
  const since = shown ? `since ${clock(shown.time, shown.time)}` : "yet";
  return {
    headline: "No answer from diem up",
    impact: `There has been no answer ${since}. ${shown ? "What is below is from then." : ""}`,
    action: "See whether `diem up` runs (`diem status`); with a tunnel, whether that is still open. This page goes on by itself.",
  };
}

const EMPTY: Overview = {
  time: new Date().toISOString(), mode: "", up: false, since: null, state: "critical", headline: "", impact: "", findings: [],
  totals: {
    clients: 0, subscriptions: 0, servers: 0, live_servers: 0, updates_per_second: null, deliveries_per_second: null, delay_seconds: null, cores: null, refused: 0,
  },
  history: { at: [] },
  diagram: { stages: [], rows: 1, nodes: [], links: [] }, processes: [], sources: [], plans: [], moves: null, events: [],
};

async function refresh(): Promise<void> {
  try {
    const overview = await fetchOverview();
    answeredAt = performance.now();
    show(overview);
  } catch (error) {
    if (error instanceof SignedOut) {
      location.replace("login");
      return;
    }
    if (performance.now() - answeredAt >= SILENT_MS) {
      document.body.dataset.silent = "true";
      document.title = "DIEM: no answer";
      showVerdict(verdict, shown ?? EMPTY, outage());
    }
  }
  showAge();
}

function showAge(): void {
  const age = performance.now() - answeredAt;
  setText(find(document, "#age"), shown === null ? "" : age < 2 * EVERY_MS ? "live" : `${span(age)} old`);
}

async function run(): Promise<void> {
  for (;;) {
    const begin = performance.now();
    if (!document.hidden) await refresh();
    await new Promise((resolve) => setTimeout(resolve, Math.max(100, EVERY_MS - (performance.now() - begin))));
  }
}

new ResizeObserver(() => drawTopology(false)).observe(topology);
void run();
