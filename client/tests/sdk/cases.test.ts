/** The cases that the Python client and the SDK share (tests/cases); tests/unit/diem/client/test_cases.py runs the same. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { TokenBucket, windowMs } from "../../src/sdk/backoff.ts";
import { CLOSE_CODES, reconnects, retryWindow } from "../../src/sdk/codes.ts";
import { Connection, silenceLimitMs } from "../../src/sdk/connection.ts";
import type { Socket } from "../../src/sdk/environment.ts";
import { DataError, retryAfter } from "../../src/sdk/http.ts";
import { EpochGuard, trustedUrl } from "../../src/sdk/locator.ts";
import { isEndpoint, parseFrame } from "../../src/sdk/messages.ts";
import type { Located, RoutingAction } from "../../src/sdk/routes.ts";
import { Routes } from "../../src/sdk/routes.ts";
import { createDiem } from "../../src/sdk/diem.ts";
import { SubscriptionSet } from "../../src/sdk/subscriptions.ts";
import { Refusals, lifetime, refreshDelay } from "../../src/sdk/tokens.ts";
import { LoadedWorld } from "./loaded.ts";
import { CONFIG, World, body, jwt } from "./world.ts";

const FOLDER = new URL("../../../tests/cases/", import.meta.url);
const load = <T>(name: string): T => JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), "utf8")) as T;

/** One test for each case with a name. */
function each<T extends { name: string }>(file: string, run: (found: T) => void | Promise<void>): void {
  test.each(load<{ cases: T[] }>(file).cases)(`${file}: $name`, run);
}

test("every file has a runner", () => {
  const files = load<{ files: { file: string }[] }>("index").files.map(({ file }) => file.replace(".json", ""));
  expect(files.sort()).toEqual([
    "close", "endpoint_names", "epochs", "lost_versions", "message_rate", "owner_urls", "reconnect", "retry_after", "routes",
    "server_messages", "silence", "subscription_set", "tokens",
  ]);
});

interface RouteStep {
  at: number;
  do: string;
  endpoint: string;
  endpoints: string[];
  many?: number;
  count?: number;
  server: string;
  owner: string | null;
  owners?: Record<string, string | null>;
  hot?: string[];
  servers?: string[];
  rejected?: string[];
  older?: boolean;
  open?: Record<string, boolean>;
  names?: string[];
  actions?: string[];
  then?: { due?: number | null } & Record<string, Record<string, unknown>>;
}

function answerOf({ owners = {}, hot = [], servers = [], rejected = [] }: Partial<RouteStep>): Located {
  const places = new Map(Object.entries(owners).map(([endpoint, owner]) => [endpoint, { owner, hot: false }]));
  for (const endpoint of hot) places.set(endpoint, { owner: null, hot: true });
  const rejections = Object.fromEntries(rejected.map((endpoint) => [endpoint, { code: "bad_name", message: "" }]));
  return { clone: 1, endpoints: places, rejected: rejections, servers, untrusted: null, epoch: 0 };
}

/** Applies one step. */
function route(routes: Routes, step: RouteStep): RoutingAction[] {
  const { at, endpoint, endpoints, server, owner } = step;
  const located = (names: readonly string[]): RoutingAction[] =>
    routes.located(names, answerOf(step), new Map(Object.entries(step.open ?? {})), at, step.older);
  switch (step.do) {
    case "add":
      for (let n = 0; n < (step.many ?? 1); n += 1) routes.add(step.many === undefined ? endpoint : `/e/${n}`, at);
      return [];
    case "arrive":
      routes.add(endpoint, at);
      routes.located(routes.toLocate(at), answerOf({ owners: { [endpoint]: server } }), new Map(), at);
      return routes.registered(server, [endpoint], at);
    case "remove":
      return routes.remove(endpoint, at);
    case "to_locate": {
      const names = routes.toLocate(at);
      expect(names).toEqual(step.names ?? names);
      expect(names).toHaveLength(step.count ?? names.length);
      return [];
    }
    case "locate": {
      const names = routes.toLocate(at);
      expect(names).toEqual(step.names);
      return located(names);
    }
    case "located":
      return located(step.names ?? []);
    case "unanswered":
      routes.unanswered(step.names ?? [], at);
      return [];
    case "registered":
      return routes.registered(server, endpoints, at);
    case "moved":
      return routes.moved(server, endpoints, owner, at);
    case "not_owner":
      return routes.notOwner(server, endpoint, owner, at);
    case "over_limit":
      return routes.overLimit(server, endpoint, at);
    case "lost":
      return routes.lost(server);
    case "suspect":
      routes.suspect(server, at);
      return [];
    default:
      throw new Error(`unknown step ${step.do}`);
  }
}

/** The parts of the state that a step names. */
function stateOf(routes: Routes, then: object): object {
  const read: Record<string, (name: string) => unknown> = {
    url: (name) => routes.url(name),
    registered: (name) => routes.isRegistered(name),
    refused: (name) => routes.isRefused(name),
    uses: (name) => routes.uses(name),
  };
  const due = routes.nextDue === Number.POSITIVE_INFINITY ? null : routes.nextDue;
  return Object.fromEntries(Object.entries(then).map(([key, names]) =>
    [key, key === "due" ? due : Object.fromEntries(Object.keys(names as object).map((name) => [name, read[key]?.(name)]))]));
}

each<{ name: string; steps: RouteStep[] }>("routes", ({ steps }) => {
  const routes = new Routes(windowMs);
  for (const step of steps) {
    const actions = route(routes, step).map(({ kind, endpoint, url }) => `${kind === "join" ? "+" : "-"}${endpoint} ${url}`);
    expect(actions, JSON.stringify(step)).toEqual(step.actions ?? []);
    expect(stateOf(routes, step.then ?? {}), JSON.stringify(step)).toEqual(step.then ?? {});
  }
});

interface Attempt {
  open_ms: number | null;
  code: number | null;
  reason?: string;
  retry_after_ms?: number;
  draw?: number;
  delay_ms: number;
}

each<{ name: string; steps: Attempt[] }>("reconnect", async ({ steps }) => {
  const world = new LoadedWorld();
  const attempts = [...steps];
  const select = (): Promise<() => Socket> => {
    const retryMs = attempts[0]?.retry_after_ms;
    const refused = attempts[0]?.code === null;
    return refused ? Promise.reject(new DataError("refused", 503, retryMs ?? null)) : Promise.resolve(() => world.socket("ws://diem.test/ws"));
  };
  const connection = new Connection(world, select, { opened: () => undefined, frame: () => undefined, lost: () => undefined }, 60_000);
  world.dice = steps[0]?.draw ?? 1;
  connection.open();
  for (const step of steps) {
    world.dice = step.draw ?? 1;
    await world.advance();
    if (step.open_ms !== null) {
      world.last.welcome();
      for (let left = step.open_ms; left > 0; left -= 25_000) {
        await world.advance(Math.min(left, 25_000));
        world.last.frame({ type: "status", live: true });
      }
    }
    if (step.code !== null) world.last.end(step.code, step.reason);
    expect((connection.status.value.retryAt ?? Number.NaN) - world.time, JSON.stringify(step)).toBeCloseTo(step.delay_ms);
    attempts.shift();
    world.dice = attempts[0]?.draw ?? 1;
    await world.advance(step.delay_ms);
  }
});

each<{ name: string; subscriptions: number; steps: { at: number; charge?: number[]; drain?: boolean; wait_ms: number }[] }>(
  "message_rate",
  ({ subscriptions, steps }) => {
    const world = new LoadedWorld();
    const bucket = new TokenBucket(world, "server", subscriptions);
    for (const step of steps) {
      world.time = step.at;
      for (const names of step.charge ?? []) bucket.charge(names);
      if (step.drain) bucket.drain();
      expect(bucket.wait, JSON.stringify(step)).toBeCloseTo(step.wait_ms);
    }
  },
);

test("close", () => {
  const cases = load<{ reconnects: Record<string, boolean>; windows_ms: Record<string, number | null> }>("close");
  expect(Object.fromEntries(Object.keys(cases.reconnects).map((code) => [code, reconnects(Number(code))]))).toEqual(cases.reconnects);
  expect(Object.keys(cases.reconnects)).toEqual(expect.arrayContaining(Object.values(CLOSE_CODES).map(({ code }) => String(code))));
  expect(Object.fromEntries(Object.keys(cases.windows_ms).map((reason) => [reason, retryWindow(reason)]))).toEqual(cases.windows_ms);
});

test("retry_after", () => {
  const { now_ms, cases } = load<{ now_ms: number; cases: Record<string, number> }>("retry_after");
  expect(Object.fromEntries(Object.keys(cases).map((header) => [header, retryAfter(header, now_ms) ?? 0]))).toEqual(cases);
  expect(retryAfter(null, now_ms)).toBeNull();
});

test("owner_urls", () => {
  const { hosts, cases } = load<{ hosts: string[]; cases: { base: string; url: string; dial: string | null }[] }>("owner_urls");
  for (const { base, url, dial } of cases) {
    const { hostname, protocol } = new URL(base);
    const metadata = { services: [base], host: hostname, scheme: protocol === "https:" ? "wss:" : "ws:", hosts: new Set(hosts) };
    expect(trustedUrl(url, metadata), url).toBe(dial);
  }
});

each<{ name: string; answers: { at: number; epoch: number; admitted: boolean }[] }>("epochs", ({ answers }) => {
  const epochs = new EpochGuard();
  expect(answers.map(({ at, epoch }) => epochs.admits(epoch, at))).toEqual(answers.map(({ admitted }) => admitted));
});

interface SubscriptionStep {
  do: string;
  names?: string[];
  many?: number;
  count?: number;
  known?: Record<string, number>;
  message?: object | null;
  id: number;
  returns?: string[];
}

each<{ name: string; steps: SubscriptionStep[] }>("subscription_set", ({ steps }) => {
  const subscriptions = new SubscriptionSet();
  for (const step of steps) {
    const names = step.names ?? Array.from({ length: step.many ?? 0 }, (_, n) => `/e/${n}`);
    const returned = (): unknown => {
      switch (step.do) {
        case "add":
          return void names.forEach((name) => subscriptions.add(name));
        case "remove":
          return void names.forEach((name) => subscriptions.remove(name));
        case "reset":
          return subscriptions.reset();
        case "next": {
          const message = subscriptions.next((name) => step.known?.[name] ?? 0);
          return step.count === undefined ? message : Object.keys(message?.endpoints ?? {}).length;
        }
        case "confirmed":
          return subscriptions.confirmed(step.id, names);
        case "rejected":
          return subscriptions
            .rejected(step.id, Object.fromEntries(names.map((name) => [name, { code: "limit", message: "" }])))
            .map(([name]) => name);
        case "failed": {
          const requested = subscriptions.requestedBy(step.id);
          subscriptions.failed(step.id);
          return requested;
        }
        default:
          throw new Error(`unknown step ${step.do}`);
      }
    };
    expect(returned(), JSON.stringify(step)).toEqual(step.do === "next" ? (step.count ?? step.message) : step.returns);
  }
});

test("endpoint_names", () => {
  const { valid, invalid } = load<Record<"valid" | "invalid", { name: string; length?: number }[]>>("endpoint_names");
  const full = ({ name, length = 0 }: { name: string; length?: number }): string =>
    name.replace("{a}", "a".repeat(Math.max(0, length - name.length + 3)));
  expect(valid.filter((found) => !isEndpoint(full(found)))).toEqual([]);
  expect(invalid.filter((found) => isEndpoint(full(found)))).toEqual([]);
});

test("server_messages", () => {
  const { frames, ignored, malformed } = load<{
    frames: { text: string; frame: { rejected?: object } }[];
    ignored: string[];
    malformed: string[];
  }>("server_messages");
  for (const { text, frame } of frames) {
    const { rejected, ...parsed } = { rejected: undefined, ...parseFrame(text) };
    const owners = Object.fromEntries(Object.entries(rejected ?? {}).map(([name, { owner }]) => [name, owner ?? null]));
    expect({ ...parsed, ...(frame.rejected && { rejected: owners }) }, text).toMatchObject(frame);
  }
  for (const text of [...ignored, ...malformed]) expect(parseFrame(text), text).toBeNull();
});

interface Reaction {
  reconnects: boolean;
  new_token?: boolean;
}

interface TokenCases {
  refresh: { life_ms: number; left_ms: number; draw: number; delay_ms: number }[];
  lifetimes: { claims?: object; token?: string; wall_ms: number; life_ms: number | null; left_ms?: number }[];
  refusals: { name: string; steps: { refused?: string; accepted?: string; held: boolean; final: boolean }[] }[];
  closes: { code: number; first: Reaction; again?: Reaction }[];
}

const TOKENS = load<TokenCases>("tokens");

test.each(TOKENS.refresh)("tokens: life $life_ms ms, left $left_ms ms, draw $draw", ({ life_ms, left_ms, draw, delay_ms }) => {
  expect(refreshDelay(life_ms, left_ms, draw)).toBeCloseTo(delay_ms);
});

test.each(TOKENS.lifetimes)("tokens: $claims$token at $wall_ms", ({ claims, token, wall_ms, life_ms, left_ms }) => {
  const read = (): object => lifetime(token ?? jwt(claims as object), wall_ms);
  if (life_ms === null) expect(read).toThrow();
  else expect(read()).toEqual({ life: life_ms, left: left_ms });
});

test.each(TOKENS.refusals)("tokens: $name", ({ steps }) => {
  const refusals = new Refusals();
  for (const { refused, accepted, held, final } of steps) {
    if (accepted !== undefined) refusals.accepted(accepted);
    else expect(refusals.refused(refused as string, held)).toBe(final);
  }
});

test.each(TOKENS.closes)("tokens: close $code", async ({ code, first, again }) => {
  const world = new World();
  world.auto = (url) => (url.endsWith("/config.json") ? { status: 200, body: CONFIG } : undefined);
  let requests = 0;
  const token = (): string => jwt({ iat: world.wall() / 1000, exp: world.wall() / 1000 + 600, jti: ++requests });
  const diem = createDiem({ environment: world, token });
  await world.advance();
  for (const reaction of [first, again]) {
    if (reaction === undefined) break;
    const [dials, tokens] = [world.sockets.length, requests];
    world.last.welcome();
    await world.advance();
    world.last.end(code);
    await world.advance(1_000);
    expect(world.sockets.length - dials).toBe(reaction.reconnects ? 1 : 0);
    if (!reaction.reconnects) expect(diem.updates.connection.value).toMatchObject({ state: "closed", code });
    else expect(requests - tokens).toBe(reaction.new_token ? 1 : 0);
  }
  diem.close();
});

test.each(load<{ cases: { heartbeat_ms: number; usual_ms: number; limit_ms: number }[] }>("silence").cases)(
  "silence.json: $heartbeat_ms of $usual_ms",
  ({ heartbeat_ms, usual_ms, limit_ms }) => expect(silenceLimitMs(heartbeat_ms, usual_ms)).toBe(limit_ms),
);

interface LostStep {
  do: "data" | "announced" | "subscribed";
  version: number | null;
  shown: number;
}

each<{ name: string; store: number; steps: LostStep[] }>("lost_versions", async ({ store, steps }) => {
  const world = new World();
  world.auto = (url) => {
    if (url.endsWith("/config.json")) return { status: 200, body: CONFIG };
    const [, named] = url.split("?version=");
    return named === undefined || Number(named) === store ? { status: 200, body: body("/a", store) } : { status: 404 };
  };
  const diem = createDiem({ environment: world });
  let shown = 0;
  diem.watch("/a", ({ version }) => (shown = version), () => undefined);
  const connect = async (version: number | null): Promise<void> => {
    await world.advance(500);
    world.last.welcome({ data: true });
    await world.advance();
    const { id } = world.last.sent.at(-1) as { id: number };
    world.last.frame({ type: "subscribed", id, endpoints: { "/a": version } });
  };
  await connect(null);
  for (const { do: kind, version, shown: expected } of steps) {
    if (kind === "subscribed") {
      world.last.end(1006);
      await connect(version);
    } else world.last.update("/a", version as number, kind === "data" ? { data: body("/a", version as number) } : {});
    await world.advance(5_000);
    expect([kind, version, shown]).toEqual([kind, version, expected]);
  }
  diem.close();
});
