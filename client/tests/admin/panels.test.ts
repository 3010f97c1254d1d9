// @vitest-environment jsdom
import { readFileSync } from "node:fs";
import { beforeEach, expect, test } from "vitest";
import { describe as inWords, draw } from "../../src/admin/drawing.ts";
import { curvePath, type Point } from "../../src/admin/curve.ts";
import { showEvents, showFigures, showPlans, showProcesses, showSources, showVerdict } from "../../src/admin/panels.ts";
import { find } from "../../src/page/dom.ts";
import { link, node, overview, process } from "./overview.ts";

beforeEach(() => {
  const page = readFileSync(`${import.meta.dirname}/../../admin/index.html`, "utf8");
  document.body.innerHTML = /<body>([^]*)<script/.exec(page)?.[1] ?? "";
});

const at = (selector: string): HTMLElement => find(document, selector);
const text = (selector: string): string => (at(selector).textContent ?? "").replace(/\s+/g, " ").trim();
const cells = (key: string): (string | null)[] => [...at(`[data-key="${key}"]`).children].map((cell) => cell.textContent);

test("a system that is well says so, and lists nothing", () => {
  showVerdict(at("#verdict"), overview());
  expect(at("#verdict").dataset.state).toBe("well");
  expect([text("#headline"), text("#impact")]).toEqual(["All well", "All 12 clients are sent updates."]);
  expect(at("#findings").hidden).toBe(true);
});

test("each finding has what is wrong, since when, and what to do", () => {
  const finding = { level: "critical", kind: "down", processes: ["data"], title: "data is down", detail: "It died.", action: "Wait.", since: "2026-01-02T03:04:00.000Z" } as const;
  showVerdict(at("#verdict"), overview({ state: "critical", headline: "data is down", findings: [finding] }));
  expect(at("#verdict").dataset.state).toBe("critical");
  expect(text("#findings li")).toMatch(/^data is downsince \d\d:\d\d:00, 5 sIt died\.Action: Wait\.$/);
  showVerdict(at("#verdict"), overview());
  expect(at("#findings").children).toHaveLength(0);
});

test("an outage of the page's own source stands above everything", () => {
  showVerdict(at("#verdict"), overview(), { headline: "No answer", impact: "Since then.", action: "Start it." });
  expect([at("#verdict").dataset.state, text("#headline")]).toEqual(["critical", "No answer"]);
  expect(text("#findings")).toContain("Action: Start it.");
});

test("lists keep their elements from second to second, so that texts can be selected", () => {
  const finding = { level: "critical", kind: "down", processes: ["data"], title: "data is down", detail: "For 1 s.", action: "Wait.", since: "2026-01-02T03:04:00.000Z" } as const;
  const event = { time: "2026-01-02T03:04:00.000Z", process: "data", text: "died: exit 1" };
  const plan = { id: "p-1", state: "moving", in_progress: true, outdated: false, moves: 3, waiting_for: null, since: null, created: null };
  const showAll = (changes: object): void => {
    const shown = overview({ findings: [finding, finding], events: [event], plans: [plan], moves: [{ endpoint: "/a", home: "1", target: "2" }], ...changes });
    showVerdict(at("#verdict"), shown);
    showEvents(at("#events"), at("#no-events"), shown);
    showPlans(at("#plans"), shown);
  };
  const children = (): Element[] => ["#findings", "#events", ".steps", ".moves"].flatMap((list) => [...at(list).children]);
  showAll({});
  const before = children();
  expect(before).toHaveLength(2 + 1 + 4 + 2);
  showAll({ time: "2026-01-02T03:04:06.000Z", findings: [{ ...finding, detail: "For 2 s." }, finding] });
  const after = children();
  expect(after.length === before.length && after.every((element, index) => element === before[index])).toBe(true);
  expect(text("#findings li")).toMatch(/6 sFor 2 s\.Action: Wait\.$/);
  showAll({ events: [{ ...event, text: "ready again" }, event], findings: [] });
  expect([at("#events").children.length, at("#findings").children.length]).toEqual([2, 0]);
});

test("texts of the document are never markup", () => {
  const finding = { level: "warning", kind: "x", processes: [], title: "<img src=x>", detail: "<b>", action: "<script>", since: null } as const;
  const bad = overview({ findings: [finding], processes: [process("<i>")], events: [{ time: overview().time, process: "<u>", text: "<s>" }] });
  showVerdict(at("#verdict"), bad);
  showProcesses(at("#processes"), bad);
  showEvents(at("#events"), at("#no-events"), bad);
  expect(document.querySelectorAll("img, i, u, s, #findings script")).toHaveLength(0);
  expect(text("#findings")).toContain("<img src=x>");
});

test("figures are the sums, and servers that are not live stand out", () => {
  showFigures(at("#figures"), overview());
  expect([...at("#figures").querySelectorAll("dd:not(.curve)")].map((figure) => figure.textContent)).toEqual([
    "12", "1,234", "2.5", "12,346", "12 ms", "0.25", "1 of 1", "0",
  ]);
  const { totals } = overview();
  showFigures(at("#figures"), overview({ totals: { ...totals, live_servers: 0, updates_per_second: null } }));
  expect(find(at('[data-figure="live_servers"]'), "path").getAttribute("d")).toMatch(/ 38.5h0$/); // 0 of 1
  expect([text('[data-figure="updates_per_second"] dd'), at('[data-figure="live_servers"]').dataset.level]).toEqual(["–", "critical"]);
});

test("each figure has the curve of its history, which ends with what is shown", () => {
  const now = Date.parse(overview().time);
  const history = { at: [now - 20_000, now - 10_000], clients: [30, 24], cores: [null, 0.5] };
  showFigures(at("#figures"), overview({ history }));
  const curve = at('[data-figure="clients"] .curve');
  expect(find<SVGElement>(curve, "svg").getAttribute("aria-label")).toBe("Clients in the last 15 minutes: from 12 to 30");
  expect([curve.dataset.most, at('[data-figure="cores"] .curve').dataset.most, at('[data-figure="refused"] .curve').dataset.most]).toEqual(["30", "0.50", ""]);
  const path = find(curve, "path");
  showFigures(at("#figures"), overview());
  expect(find(curve, "path")).toBe(path);
});

test("a curve is over fifteen minutes from 0, without what is older, and open where there is nothing", () => {
  const now = 1_000 * 60_000;
  const point = (minutes: number, value: number | null): Point => ({ at: now - minutes * 60_000, value });
  expect(curvePath([point(16, 9), point(15, 0), point(0, 4)], now, 4)).toBe("M1.5 38.5h0M298.5 1.5h0");
  expect(curvePath([point(7.8, 2), point(7.5, 4), point(7.25, null)], now, 4)).toBe("M144.1 20.0h0L150.0 1.5");
  expect(curvePath([point(1, 0), point(0.75, 0)], now, 0)).toMatch(/^M[\d.]+ 38.5h0L[\d.]+ 38.5$/);
});

test("rows of processes keep their elements, show lag in their own unit, and indent children", () => {
  showProcesses(at("#processes"), overview());
  expect(cells("data")).toEqual(["data", "ready", "1 h", "–", "–", "–", "–", "3", "–", "0", "–"]);
  expect(cells("websocket-1")).toEqual(["websocket-1", "ready", "1 h", "12", "1,234", "0", "31 %", "0.4 s", "–", "0", "–"]);
  const row = at('[data-key="websocket-1"]');
  expect([...row.children].map((cell) => cell.className)).toEqual(["", "state", "num", "num", "num", "num", "num", "num", "num", "num", ""]);
  const killed = { level: "critical", word: "down", since: "2026-01-02T03:04:00.000Z", restarts: 1, last_exit: "killed by SIGKILL", last_exit_time: "2026-01-02T03:04:00.000Z" } as const;
  showProcesses(at("#processes"), overview({ processes: [process("websocket-1", killed), process("composite-1/proxy")] }));
  expect(at('[data-key="websocket-1"]')).toBe(row);
  expect([row.dataset.level, cells("websocket-1")[2], cells("websocket-1")[9]]).toEqual(["critical", "5 s", "1"]);
  expect(cells("websocket-1")[10]).toMatch(/^killed by SIGKILL, \d\d:\d\d:00$/);
  expect([cells("composite-1/proxy")[0], at('[data-key="composite-1/proxy"]').dataset.child]).toEqual(["proxy", "true"]);
  expect(document.querySelectorAll("#processes tbody tr")).toHaveLength(2);
});

test("sources are shown where there are any, with their fault", () => {
  const section = at("#sources-section");
  showSources(section, overview());
  expect(section.hidden).toBe(true);
  const sources = [
    { name: "market", ok: true, last_success: "2026-01-02T03:04:00.000Z", failures: 0, endpoints: 40 },
    { name: "load", ok: false, error: "no such directory", last_success: null, failures: 7, endpoints: 0 },
    { name: "orders", ok: true, last_success: "2026-01-02T03:04:05.000Z", failures: 0, endpoints: 7, records: 1200, lag: 3, refused: 1 },
  ];
  showSources(section, overview({ sources }));
  expect(cells("market")).toEqual(["market", "working", "40", "5 s ago", "0", "–", "–", "–"]);
  expect(cells("load")).toEqual(["load", "failing: no such directory", "0", "–", "7", "–", "–", "–"]);
  expect(cells("orders").slice(4)).toEqual(["0", "1,200", "3", "1"]);
});

test("a plan in progress shows its phase and its moves, and then goes to the list", () => {
  const section = at("#plans");
  showPlans(section, overview());
  expect(section.hidden).toBe(true);
  const plan = { id: "p-1", state: "moving", in_progress: true, outdated: false, moves: 3, waiting_for: "clients to go over", since: "2026-01-02T03:03:55.000Z", created: null };
  showPlans(section, overview({ plans: [plan], moves: [{ endpoint: "/load/GR", home: "1", target: "hot" }] }));
  expect(text(".plan-name")).toBe("p-1 is applied 3 endpoints move");
  expect([...document.querySelectorAll<HTMLElement>(".steps li")].map((step) => step.dataset.step)).toEqual(["done", "now", "next", "next"]);
  expect(text("[aria-current]")).toBe("Move 10 s");
  expect(text(".plan-waits")).toBe("Waits for clients to go over.");
  expect([...document.querySelectorAll(".moves li")].map((item) => item.textContent)).toEqual(["/load/GR 1 → hot", "and 2 more"]);
  showPlans(section, overview({ plans: [{ ...plan, state: "applied", in_progress: false, waiting_for: null }] }));
  expect(at(".plan-now").hidden).toBe(true);
  expect(cells("p-1")).toEqual(["p-1", "applied", "3", "–"]);
});

test("events have their time, or a sentence stands in their place", () => {
  showEvents(at("#events"), at("#no-events"), overview());
  expect(at("#no-events").hidden).toBe(false);
  const event = { time: "2026-01-02T03:04:00.000Z", process: "data", text: "died: exit 1" };
  showEvents(at("#events"), at("#no-events"), overview({ events: [event] }));
  expect(text("#events li")).toMatch(/^\d\d:\d\d:00datadied: exit 1$/);
  expect(at("#no-events").hidden).toBe(true);
});

test("the drawing has every node and link, marks what does not flow, and is described in words", () => {
  const { diagram } = overview();
  draw(at("#topology"), diagram, 1200);
  expect([...document.querySelectorAll<SVGElement>("[data-node]")].map((element) => element.dataset.node)).toEqual(["data", "websocket-1", "clients"]);
  expect(document.querySelectorAll(".links path[data-flows='true']")).toHaveLength(2);
  const dead = {
    ...diagram,
    nodes: [diagram.nodes[0] ?? node("data", "data", 0), node("websocket-1", "servers", 0, { level: "critical", word: "down", detail: "down" }), node("clients", "clients", 0)],
    links: [link("data", "websocket-1", { flows: false }), link("websocket-1", "clients", { flows: false })],
  } as const;
  for (const width of [1200, 320]) {
    draw(at("#topology"), dead, width);
    expect(document.querySelectorAll(".links path[data-flows='false']")).toHaveLength(2);
    expect(at("[data-node='websocket-1']").dataset.level).toBe("critical");
  }
  expect(inWords(dead)).toBe("Topology from the sources to the clients. Data Service: 2.5 updates/s. Servers: websocket-1 down. Clients: ready.");
  expect(at("#topology svg").getAttribute("aria-label")).toBe(inWords(dead));
});
