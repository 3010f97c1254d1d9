/** The document of the operator page, as `diem up` serves it at /admin/status.json. Times are ISO 8601 in UTC. */

export type Level = "ok" | "warning" | "critical";
export type State = "well" | "starting" | "warning" | "critical";

export interface Finding {
  readonly level: Level;
  readonly kind: string;
  readonly processes: readonly string[];
  readonly title: string;
  readonly detail: string;
  readonly action: string;
  readonly since: string | null;
}

export interface Node {
  readonly id: string;
  readonly stage: string;
  readonly row: number;
  readonly label: string;
  readonly detail: string;
  readonly level: Level;
  readonly word: string;
  /** Name of its composite, or empty. */
  readonly group: string;
}

export interface Link {
  readonly source: string;
  readonly target: string;
  readonly flows: boolean;
  /** It carries owners of partitions, not updates. */
  readonly control: boolean;
}

export interface Diagram {
  readonly stages: readonly { readonly name: string; readonly title: string }[];
  readonly rows: number;
  readonly nodes: readonly Node[];
  readonly links: readonly Link[];
}

export interface Process {
  readonly name: string;
  readonly process: string;
  readonly level: Level;
  readonly word: string;
  readonly since: string | null;
  readonly clients: number | null;
  readonly subscriptions: number | null;
  readonly lag_seconds: number | null;
  /** Records. */
  readonly lag: number | null;
  readonly refused: number | null;
  readonly deliveries_per_second: number | null;
  /** Cores that it uses. */
  readonly cores: number | null;
  readonly restarts: number;
  readonly last_exit: string | null;
  readonly last_exit_time: string | null;
}

export interface Source {
  readonly name: string;
  readonly type?: string;
  readonly ok?: boolean;
  readonly error?: string | null;
  readonly last_success?: string | null;
  readonly failures?: number;
  readonly endpoints?: number | null;
  readonly records?: number;
  readonly lag?: number | null;
  readonly refused?: number;
  readonly progress?: string;
}

export interface Plan {
  readonly id: string;
  readonly state: string;
  readonly in_progress: boolean;
  readonly outdated: boolean;
  readonly moves: number;
  readonly waiting_for: string | null;
  /** Begin of the phase. */
  readonly since: string | null;
  readonly created: string | null;
}

export interface Move {
  readonly endpoint: string;
  readonly home: string;
  readonly target: string;
}

export interface Totals {
  readonly clients: number;
  readonly subscriptions: number;
  readonly servers: number;
  readonly live_servers: number;
  readonly updates_per_second: number | null;
  readonly deliveries_per_second: number | null;
  /** The longest of the last seconds. */
  readonly delay_seconds: number | null;
  readonly cores: number | null;
  /** Clients of the last minute. */
  readonly refused: number;
}

/** The totals of the last quarter of an hour, oldest first, and their times in Unix milliseconds. */
export type History = { readonly at: readonly number[] } & { readonly [name in keyof Totals]?: readonly (number | null)[] };

export interface Overview {
  readonly time: string;
  readonly mode: string;
  readonly up: boolean;
  readonly since: string | null;
  readonly state: State;
  readonly headline: string;
  readonly impact: string;
  readonly findings: readonly Finding[];
  readonly totals: Totals;
  readonly history: History;
  readonly diagram: Diagram;
  readonly processes: readonly Process[];
  readonly sources: readonly Source[];
  readonly plans: readonly Plan[];
  readonly moves: readonly Move[] | null;
  readonly events: readonly { readonly time: string; readonly process: string; readonly text: string }[];
}

/** The server does not know the session any more. */
export class SignedOut extends Error {}

/** More than a poll takes whose processes hang. */
const TIMEOUT_MS = 6_000;

/** The current document. Throws {@link SignedOut}, and any other error when there is no answer. */
export async function fetchOverview(): Promise<Overview> {
  const response = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status === 401) throw new SignedOut();
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return (await response.json()) as Overview;
}
