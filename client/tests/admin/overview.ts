/** Documents as `diem up` serves them. */

import type { Link, Node, Overview, Process } from "../../src/admin/status.ts";

export const NOW = "2026-01-02T03:04:05.000Z";

export function node(id: string, stage: string, row: number, more: Partial<Node> = {}): Node {
  return { id, stage, row, label: id.split("/").at(-1) ?? id, detail: "", level: "ok", word: "ready", group: "", ...more };
}

export function link(source: string, target: string, more: Partial<Link> = {}): Link {
  return { source, target, flows: true, control: false, ...more };
}

export function process(name: string, more: Partial<Process> = {}): Process {
  return {
    name, process: name.split("-")[0] ?? name, level: "ok", word: "ready", since: "2026-01-02T02:04:05.000Z", clients: null, subscriptions: null,
    lag_seconds: null, lag: null, refused: null, deliveries_per_second: null, cores: null, restarts: 0, last_exit: null, last_exit_time: null, ...more,
  };
}

/** Mode single with one server, and nothing wrong. */
export function overview(more: Partial<Overview> = {}): Overview {
  return {
    time: NOW, mode: "single", up: true, since: "2026-01-02T01:00:00.000Z", state: "well", headline: "All well", impact: "All 12 clients are sent updates.",
    findings: [],
    totals: {
      clients: 12, subscriptions: 1234, servers: 1, live_servers: 1, updates_per_second: 2.5, deliveries_per_second: 12345.6, delay_seconds: 0.012,
      cores: 0.25, refused: 0,
    },
    history: { at: [] },
    diagram: {
      stages: [{ name: "data", title: "Data Service" }, { name: "servers", title: "Servers" }, { name: "clients", title: "Clients" }],
      rows: 1,
      nodes: [node("data", "data", 0, { detail: "2.5 updates/s" }), node("websocket-1", "servers", 0, { detail: "12 clients" }), node("clients", "clients", 0)],
      links: [link("data", "websocket-1"), link("websocket-1", "clients")],
    },
    processes: [process("data", { lag: 3 }), process("websocket-1", { clients: 12, subscriptions: 1234, lag_seconds: 0.44, deliveries_per_second: 0, cores: 0.314 })],
    sources: [], plans: [], moves: null, events: [],
    ...more,
  };
}
