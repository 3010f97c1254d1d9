/** A deterministic host for the SDK: a clock that moves when told, sockets and HTTP answered by the test. */

import { vi } from "vitest";
import type { Environment, HttpOptions, HttpResponse, Socket } from "../../src/sdk/environment.ts";
import type { Bounds, Store, Stored } from "../../src/sdk/store.ts";

export class FakeSocket implements Socket {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly sent: Record<string, unknown>[] = [];
  closed = false;
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(): void {
    this.closed = true;
  }

  /** The server sends a frame. */
  frame(frame: unknown): void {
    this.onmessage?.({ data: typeof frame === "string" ? frame : JSON.stringify(frame) });
  }

  welcome(more: object = {}): void {
    this.frame({ type: "welcome", session: "s", server: "websocket-1", mode: "single", authenticated: true, limits: {}, ...more });
  }

  /** The server accepts the token that was presented last. */
  authenticated(expires = 1_700_000_600): void {
    this.frame({ type: "authenticated", id: 0, expires });
  }

  update(endpoint: string, version: number, extra: object = {}): void {
    this.frame({ type: "update", endpoint, version, time: "2026-01-01T00:00:00.000Z", ...extra });
  }

  /** The server, or the network, ends the connection. */
  end(code: number, reason = ""): void {
    this.onclose?.({ code, reason });
  }
}

/** The store in memory: what the real one does, at once. */
export class FakeStore implements Store {
  readonly kept = new Map<string, Stored>();
  saves = 0;
  /** Characters that fit, as a browser's quota. */
  quota = Number.POSITIVE_INFINITY;

  load(): Promise<Stored[]> {
    return Promise.resolve(this.#usedFirst().reverse());
  }

  save(entries: readonly Stored[], { entries: most, chars }: Bounds): Promise<void> {
    this.saves += 1;
    for (const entry of entries) {
      if (!((this.kept.get(entry.endpoint)?.version ?? 0) > entry.version)) this.kept.set(entry.endpoint, entry);
    }
    let [count, sum] = [0, 0];
    for (const { endpoint, text } of this.#usedFirst()) {
      if (count < most && sum + text.length <= chars) [count, sum] = [count + 1, sum + text.length];
      else this.kept.delete(endpoint);
    }
    if (sum > this.quota) this.kept.clear();
    return Promise.resolve();
  }

  /** Used last first. */
  #usedFirst(): Stored[] {
    return [...this.kept.values()].sort((a, b) => b.used - a.used || b.text.length - a.text.length);
  }
}

export interface Request {
  readonly url: string;
  readonly at: number;
  readonly etag: string | undefined;
  readonly headers: Record<string, string>;
  readonly cache: string;
  readonly mode: string | undefined;
  /** The parsed body of a POST. */
  readonly body: unknown;
  /** Answers it; without a body, `{}`. */
  answer(status: number, body?: unknown, headers?: Record<string, string>): void;
  /** The line breaks. */
  fail(): void;
}

export class World implements Environment {
  time = 0;
  /** What `random` gives: one number, or one after another. */
  dice: number | number[] = 0.5;
  readonly client = "page-number-one";
  baseUrl = "http://diem.test/index.html";
  storage: Store | null = new FakeStore();
  /** Tells texts apart, and says nothing of them. */
  digest: NonNullable<Environment["digest"]> = (text) => Promise.resolve(`digest-${this.#digests.indexOf(text) + 1 || this.#digests.push(text)}`);
  readonly #digests: string[] = [];
  readonly sockets: FakeSocket[] = [];
  readonly requests: Request[] = [];
  readonly reported: unknown[] = [];
  /** Answers some requests by itself; what it returns undefined for, the test answers. */
  auto: (url: string, body?: unknown) => { status: number; body?: unknown; headers?: Record<string, string> } | undefined = () =>
    undefined;
  readonly #timers = new Map<number, { at: number; run: () => void }>();
  #lastTimer = 0;

  now = (): number => this.time;
  /** How far this device's clock is ahead of the servers'. */
  skew = 0;
  wall = (): number => 1_700_000_000_000 + this.time + this.skew;
  random = (): number => (typeof this.dice === "number" ? this.dice : (this.dice.shift() ?? 0.5));
  microtask = (run: () => void): void => queueMicrotask(run);
  report = (error: unknown): void => void this.reported.push(error);

  later(ms: number, run: () => void): number {
    this.#timers.set(++this.#lastTimer, { at: this.time + ms, run });
    return this.#lastTimer;
  }

  cancel(timer: unknown): void {
    this.#timers.delete(timer as number);
  }

  socket(url: string): FakeSocket {
    const socket = new FakeSocket(url);
    this.sockets.push(socket);
    return socket;
  }

  fetch(url: string, options: HttpOptions): Promise<HttpResponse> {
    return new Promise((resolve, reject) => {
      const answer = (status: number, body: unknown = {}, headers: Record<string, string> = {}): void =>
        resolve({ status, headers: { get: (name) => headers[name] ?? null }, text: () => Promise.resolve(/html/.test(headers["Content-Type"] ?? "") ? (body as string) : JSON.stringify(body)), arrayBuffer: () => Promise.resolve((body as Uint8Array<ArrayBuffer>).buffer) });
      const fail = (): void => reject(new TypeError("network"));
      options.signal.addEventListener("abort", fail);
      const posted: unknown = options.body === undefined ? undefined : JSON.parse(options.body);
      const given = this.auto(url, posted);
      this.requests.push({ url, at: this.time, etag: options.headers["If-None-Match"], headers: options.headers, cache: options.cache, mode: options.mode, body: posted, answer, fail });
      if (given) answer(given.status, given.body, given.headers);
    });
  }

  /** Lets everything run that is due within `ms`, in order, promises included. */
  async advance(ms = 0): Promise<void> {
    const until = this.time + ms;
    await this.settle();
    for (;;) {
      const due = [...this.#timers].filter(([, { at }]) => at <= until).sort(([, a], [, b]) => a.at - b.at)[0];
      if (due === undefined) break;
      const [id, { at, run }] = due;
      this.#timers.delete(id);
      this.time = Math.max(this.time, at);
      run();
      await this.settle();
    }
    this.time = until;
  }

  /** Lets promises run; the partitioned mode is loaded when it is needed. */
  async settle(): Promise<void> {
    await turns();
    await vi.dynamicImportSettled();
  }

  get last(): FakeSocket {
    return this.sockets[this.sockets.length - 1] as FakeSocket;
  }

  get request(): Request {
    return this.requests[this.requests.length - 1] as Request;
  }

  get timers(): number {
    return this.#timers.size;
  }
}

/** Lets promises run. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 40; turn += 1) await Promise.resolve();
}

/** A JWT (RFC 7519) with these claims, and no signature. */
export const jwt = (claims: object): string => `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.`;

export const CONFIG = { mode: "single", servers: [{ port: 8101, path: "/ws" }], rest: "/v1" };

/** A dataset body at `version`. */
export function body(endpoint: string, version: number, value = version): object {
  return {
    endpoint,
    version,
    time: "2026-01-01T00:00:00.000Z",
    unit: "MW",
    resolution: "PT1H",
    points: [{ time: "2026-01-01T00:00:00Z", value }],
  };
}

export const etag = (version: number): Record<string, string> => ({ ETag: `"${version}-json"` });
