/** The parts of the operator page other than the drawing: verdict, figures, tables, plans, events. */

import { find, make, setData, setText } from "../page/dom.ts";
import { drawCurve } from "./curve.ts";
import { NONE, between, clock, cores, count, delay, rate } from "./format.ts";
import type { Finding, Move, Overview, Plan, Process, Source, Totals } from "./status.ts";

const SIGNS: Record<string, string> = {
  well: '<path d="M5 12.5l4.5 4.5L19 7.5"/>',
  starting: '<path d="M12 6v6l4 2.5"/><circle cx="12" cy="12" r="9"/>',
  warning: '<path d="M12 4L22 20H2Z"/><path d="M12 10v4.5M12 17v.4"/>',
  critical: '<circle cx="12" cy="12" r="9.5"/><path d="M12 7v6M12 16v.5"/>',
};

/** Replacement for the document's verdict without a document. */
export interface Outage {
  readonly headline: string;
  readonly impact: string;
  readonly action: string;
}

/** Shows the overall state and the remedies. */
export function showVerdict(root: HTMLElement, shown: Overview, outage: Outage | null = null): void {
  const state = outage ? "critical" : shown.state;
  if (root.dataset.state !== state) {
    setData(root, "state", state);
    find(root, ".sign").innerHTML = SIGNS[state] ?? "";
  }
  setText(find(root, "#headline"), outage?.headline ?? shown.headline);
  setText(find(root, "#impact"), outage?.impact ?? shown.impact);
  const findings: readonly Finding[] = outage
    ? [{ level: "critical", kind: "outage", processes: [], title: outage.headline, detail: "", action: outage.action, since: null }]
    : shown.findings;
  const list = find(root, "#findings");
  keyed(list, findings, ({ kind, processes }) => `${kind} ${processes.join(" ")}`, newFinding, (finding, item) => {
    setData(item, "level", finding.level);
    setData(item, "kind", finding.kind);
    setText(find(item, "b"), finding.title);
    setText(find(item, ".since"), finding.since ? `since ${clock(finding.since, shown.time)}, ${between(finding.since, shown.time)}` : "");
    setText(find(item, ".detail"), finding.detail);
    find(item, ".detail").hidden = finding.detail === "";
    setText(find(item, ".do span:last-child"), finding.action);
  });
  list.hidden = findings.length === 0;
}

function newFinding(): HTMLElement {
  const [item, title, action] = [make("li"), make("p", "what"), make("p", "do")];
  title.append(make("b"), make("span", "since"));
  action.append(make("span", "", "Action: "), make("span"));
  item.append(title, make("p", "detail"), action);
  return item;
}

/** Shows the sums, each with its curve. */
export function showFigures(root: HTMLElement, { totals, history, time }: Overview): void {
  const now = Date.parse(time);
  const set = (name: keyof Totals, format: (value: number | null) => string, shown = format(totals[name]), level = "", full = 0): void => {
    const box = find(root, `[data-figure="${name}"]`);
    setText(find(box, "dd"), shown);
    setData(box, "level", level);
    const points = history.at.map((at, index) => ({ at, value: history[name]?.[index] ?? null }));
    drawCurve(find(box, ".curve"), find(box, "dt").textContent ?? "", [...points, { at: now, value: totals[name] }], now, format, full);
  };
  set("clients", count);
  set("subscriptions", count);
  set("updates_per_second", rate);
  set("deliveries_per_second", rate);
  set("delay_seconds", delay);
  set("cores", cores);
  set("live_servers", count, `${totals.live_servers} of ${totals.servers}`, totals.live_servers < totals.servers ? "critical" : "", totals.servers);
  set("refused", count);
}

/** Shows the rows of processes; the children of a composite are indented below it. */
export function showProcesses(table: HTMLElement, { processes, time }: Overview): void {
  rows(table, processes, ({ name }) => name, (process, row) => {
    setData(row, "level", process.level);
    const [composite, own] = process.name.includes("/") ? process.name.split("/") : ["", process.name];
    setData(row, "child", String(composite !== ""));
    cells(row, [
      own ?? "",
      process.word,
      between(process.since, time),
      count(process.clients),
      count(process.subscriptions),
      rate(process.deliveries_per_second),
      process.cores === null ? NONE : `${Math.round(100 * process.cores)} %`,
      lag(process),
      count(process.refused),
      count(process.restarts),
      process.last_exit && process.last_exit_time ? `${process.last_exit}, ${clock(process.last_exit_time, time)}` : NONE,
    ]);
  });
}

/** Seconds since the last heartbeat, or records behind. */
function lag({ lag_seconds: seconds, lag: records }: Process): string {
  if (seconds !== null) return `${seconds.toFixed(1)} s`;
  return count(records);
}

/** Shows the sources of data. */
export function showSources(section: HTMLElement, { sources, time }: Overview): void {
  section.hidden = sources.length === 0;
  rows(find(section, "table"), sources, ({ name }) => name, (source, row) => {
    setData(row, "level", source.ok ? "ok" : source.error ? "warning" : "ok");
    cells(row, [source.name, stateOf(source), count(source.endpoints), source.last_success ? `${between(source.last_success, time)} ago` : NONE, count(source.failures), count(source.records), count(source.lag), count(source.refused)]);
  });
}

function stateOf({ ok, error, progress }: Source): string {
  return (ok ? "working" : error ? `failing: ${error}` : "starting") + (progress ? `; ${progress}` : "");
}

/** Phases of a plan, in order, each with the event it waits for. */
const PHASES = [
  ["preparing", "Prepare"],
  ["moving", "Move"],
  ["retiring", "Retire"],
  ["applied", "Done"],
] as const;

/** Shows the plan in progress with its moves, and the last plans. */
export function showPlans(section: HTMLElement, { plans, moves, time }: Overview): void {
  section.hidden = plans.length === 0;
  const now = plans.find((plan) => plan.in_progress);
  const box = find(section, ".plan-now");
  box.hidden = now === undefined;
  if (now) showPlan(box, now, moves, time);
  rows(find(section, "table"), plans, ({ id }) => id, (plan, row) => {
    setData(row, "level", "ok");
    cells(row, [plan.id, stateOfPlan(plan), count(plan.moves), plan.created ? clock(plan.created, time) : NONE]);
  });
}

function stateOfPlan({ state, outdated }: Plan): string {
  return outdated ? "outdated" : state.replace("_", " ");
}

function showPlan(box: HTMLElement, plan: Plan, moves: readonly Move[] | null, time: string): void {
  setText(find(box, ".plan-name b"), plan.state === "rolling_back" ? `${plan.id} is rolled back` : `${plan.id} is applied`);
  setText(find(box, ".plan-name span"), `${count(plan.moves)} ${plan.moves === 1 ? "endpoint moves" : "endpoints move"}`);
  const current = PHASES.findIndex(([state]) => state === plan.state);
  const steps = (current < 0 ? [] : PHASES).map(([, title], index) => ({
    title,
    state: index < current ? "done" : index === current ? "now" : "next",
    lasts: index === current && plan.since ? ` ${between(plan.since, time)}` : "",
  }));
  fill(find(box, ".steps"), steps, ({ title, state, lasts }) => {
    const step = make("li", "", title);
    step.dataset.step = state;
    if (state === "now") step.setAttribute("aria-current", "step");
    if (lasts) step.append(make("span", "", lasts));
    return step;
  });
  setText(find(box, ".plan-waits"), plan.waiting_for ? `Waits for ${plan.waiting_for}.` : "");
  const shown: (Move | string)[] = [...(moves ?? [])];
  const others = plan.moves - shown.length;
  if (shown.length > 0 && others > 0) shown.push(`and ${count(others)} more`);
  fill(find(box, ".moves"), shown, (move) => {
    if (typeof move === "string") return make("li", "quiet", move);
    const item = make("li");
    item.append(make("code", "", move.endpoint), ` ${move.home} → ${move.target}`);
    return item;
  });
}

/** Shows the events, latest first. */
export function showEvents(list: HTMLElement, none: HTMLElement, { events, time }: Overview): void {
  none.hidden = events.length > 0;
  fill(list, events.map((event) => ({ ...event, shown: clock(event.time, time) })), (event) => {
    const item = make("li");
    const at = make("time", "", event.shown);
    at.dateTime = event.time;
    item.append(at, make("b", "", event.process), make("span", "", event.text));
    return item;
  });
}

/** The entries from which the children of an element were made, as JSON. */
const FILLED = new WeakMap<HTMLElement, string>();

/** Makes a child of each entry; as long as the entries are equal, the children stay, so that a selection survives. */
function fill<T>(parent: HTMLElement, entries: readonly T[], child: (entry: T) => HTMLElement): void {
  const content = JSON.stringify(entries);
  if (FILLED.get(parent) === content) return;
  FILLED.set(parent, content);
  parent.replaceChildren(...entries.map(child));
}

/** Writes a row for each entry; rows are reused by key, so that a selection survives. */
function rows<T>(table: HTMLElement, entries: readonly T[], key: (entry: T) => string, write: (entry: T, row: HTMLElement) => void): void {
  keyed(find(table, "tbody"), entries, key, () => make("tr"), write);
}

/** Writes a child for each entry; children are reused by key. Repeated keys are numbered. */
function keyed<T>(
  parent: HTMLElement,
  entries: readonly T[],
  key: (entry: T) => string,
  create: () => HTMLElement,
  write: (entry: T, child: HTMLElement) => void,
): void {
  const before = new Map([...parent.children].map((child) => [(child as HTMLElement).dataset.key, child as HTMLElement]));
  const seen = new Map<string, number>();
  const after = entries.map((entry) => {
    const number = (seen.get(key(entry)) ?? 0) + 1;
    seen.set(key(entry), number);
    const own = number === 1 ? key(entry) : `${key(entry)} ${number}`;
    const child = before.get(own) ?? parent.appendChild(create());
    setData(child, "key", own);
    write(entry, child);
    return child;
  });
  if (after.length !== parent.children.length || after.some((child, index) => parent.children[index] !== child)) parent.replaceChildren(...after);
}

/** Writes the cells of a row: the first is its heading, classes are those of the column's heading. */
function cells(row: HTMLElement, texts: readonly string[]): void {
  texts.forEach((content, index) => {
    let cell = row.children[index] as HTMLElement | undefined;
    if (!cell) {
      cell = make(index === 0 ? "th" : "td");
      if (index === 0) cell.setAttribute("scope", "row");
      row.append(cell);
    }
    const heading = row.closest("table")?.querySelectorAll("thead th")[index];
    if (heading?.className) cell.className = heading.className;
    else if (index === 1) cell.className = "state";
    setText(cell, content);
  });
}
