/**
 * Updates over HTTP (docs/protocol.md section 1.8), where requests reach a server and WebSocket does not: an object with the
 * interface of WebSocket, which reads an event stream, or polls where something in the way holds streams back. The position of a
 * client is its versions, so that nothing is lost between two requests. Loaded only where it is needed; it imports types alone.
 */

import type { ConnectionStatus } from "./connection.ts";
import type { Environment, HttpResponse, Socket, Timer } from "./environment.ts";
import type { Observable, Subject } from "./observable.ts";

/** WebSocket is tried again after these times, the last one repeated, and whenever the device is online again. */
const RETRY_MS = [5_000, 60_000, 300_000, 900_000];
/** A WebSocket that is tried has so long to deliver a frame. */
const TRIAL_MS = 10_000;
/** A server that polls do not reach, and have reached before, is polled for so long. */
const OUTAGE_MS = 60_000;
/** What a poll waits for, and how much longer its answer may take. */
const WAIT_S = 25;
const LATE_MS = 15_000;
/** A stream is held back if it has no beginning after the first time, and has broken after the second without a heartbeat. */
const FIRST_EVENT_MS = 3_000;
const SILENCE_MS = 10_000;
/** Requests at once, and time for one in the long run, below the limits of servers; so many names are one request more. */
const BURST = 24;
const INTERVAL_MS = 700;
const NAMES_PER_REQUEST = 50;
/** Close codes, as in `codes.ts`. */
const LOST = 1006;
const RESTART = 1012;
const OVERLOAD = 1013;

interface Message {
  type: string;
  [member: string]: unknown;
}

interface Close {
  code: number;
  reason: string;
}

/** Opens polls in place of WebSockets, until a WebSocket delivers a frame. */
export class Fallback {
  readonly #env: Environment;
  readonly #dial: Environment["socket"];
  readonly #polls = new Set<PollSocket>();
  #retries = 0;
  #reachedAt = -Infinity;
  #timer: Timer = null;
  #trial: Socket | null = null;
  #url = "";
  #protocol = "";

  constructor(env: Environment, connection: Observable<ConnectionStatus>) {
    this.#env = env;
    const { socket } = env;
    this.#dial = (url, protocol) => socket.call(env, url, protocol);
    const status = connection as Subject<ConnectionStatus>;
    connection.observe(({ state, transport }) => {
      if (state !== "open" || transport || this.#polls.size === 0) return;
      env.microtask(() => {
        if (status.value.state === "open") status.set({ ...status.value, transport: "poll" });
      });
    });
    globalThis.addEventListener?.("online", () => {
      if (this.#timer !== null) this.#try();
    });
  }

  /** Polls from the next dial on. */
  start(): void {
    this.#env.socket = (url, protocol) => this.#open(url, protocol);
  }

  #stop(): void {
    this.#env.socket = this.#dial;
    this.#env.cancel(this.#timer);
    this.#timer = null;
  }

  #open(url: string, protocol: string): Socket {
    [this.#url, this.#protocol] = [url, protocol];
    const env = this.#env;
    const socket = new PollSocket(env, url, (opened) => {
      this.#polls.delete(socket);
      // Where nothing reaches the server a WebSocket is as good. One that polls have reached is perhaps down for a while.
      if (opened) this.#reachedAt = env.now();
      else if (env.now() > this.#reachedAt + OUTAGE_MS) this.#stop();
    });
    this.#polls.add(socket);
    this.#wait();
    return socket;
  }

  /** Schedules the next trial. */
  #wait(): void {
    if (this.#timer !== null || this.#polls.size === 0) return;
    const ms = RETRY_MS[Math.min(this.#retries, RETRY_MS.length - 1)] as number;
    this.#timer = this.#env.later(ms * (0.75 + this.#env.random() / 2), () => this.#try());
  }

  /** Tries a WebSocket beside the polls. */
  #try(): void {
    this.#env.cancel(this.#timer);
    this.#timer = null;
    if (this.#trial || this.#polls.size === 0) return;
    this.#retries += 1;
    const socket = this.#dial(this.#url, this.#protocol);
    this.#trial = socket;
    const end = (): void => {
      this.#env.cancel(timer);
      socket.onmessage = socket.onclose = this.#trial = null;
      socket.close();
    };
    const timer = this.#env.later(TRIAL_MS, () => {
      end();
      this.#wait();
    });
    socket.onclose = () => {
      end();
      this.#wait();
    };
    socket.onmessage = () => {
      end();
      this.#retries = 0;
      this.#stop();
      // As if the server restarted: no failure, and no delay.
      for (const poll of [...this.#polls]) poll.end({ code: RESTART, reason: "retry=0" });
    };
  }
}

/** One client of one server: what it sends and receives are the frames of a WebSocket. */
export class PollSocket implements Socket {
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  readonly #env: Environment;
  readonly #url: string;
  readonly #ended: (opened: boolean) => void;
  /** Endpoint -> the version that a server stated or sent last; 0 = none. */
  readonly #known = new Map<string, number>();
  /** Endpoint -> the id of its latest request, which no server has answered. */
  readonly #fresh = new Map<string, number>();
  readonly #ids = new Map<string, number>();
  readonly #resynced = new Set<string>();
  #live: boolean | null = null;
  #stale = new Set<string>();
  /** The id of an `auth` without an answer. */
  #auth: number | null = null;
  #token: string | undefined;
  #client: unknown;
  #data: unknown;
  #isOpen = false;
  #isClosed = false;
  /** Nothing in the way is known to hold streams back. */
  #streams = true;
  /** Ends what the loop waits for, because there is something to send. */
  #interrupt: (() => void) | null = null;
  /** When all requests of the burst are available again. */
  #fullAt = 0;
  #controller: AbortController | null = null;

  /** `ended` is called once; `opened`: a server has answered. */
  constructor(env: Environment, url: string, ended: (opened: boolean) => void) {
    this.#env = env;
    const address = new URL(url.replace(/^ws/, "http"));
    address.pathname = `${address.pathname.replace(/\/ws$/, "")}/v1/updates`;
    this.#url = address.href;
    this.#ended = ended;
    env.microtask(() => void this.#run()); // the owner sets its handlers first
  }

  send(text: string): void {
    const message = JSON.parse(text) as Message;
    const id = message.id as number;
    if (message.type === "auth") {
      this.#token = message.token as string;
      this.#auth = id;
    } else if (message.type === "subscribe") {
      this.#client ??= message.client;
      this.#data = message.data;
      for (const [name, version] of Object.entries(message.endpoints as Record<string, number | null>)) {
        this.#known.set(name, version ?? 0);
        this.#fresh.set(name, id);
        this.#ids.set(name, id);
        this.#resynced.delete(name);
      }
    } else {
      const names = message.endpoints as string[];
      for (const name of names) this.#forget(name);
      this.#env.microtask(() => this.#emit({ type: "unsubscribed", id, endpoints: names }));
      return;
    }
    this.#interrupt?.();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#controller?.abort();
    this.#interrupt?.();
    this.#ended(this.#isOpen);
  }

  /** Closes it, as a server would. */
  end({ code, reason }: Close): void {
    if (this.#isClosed) return;
    this.close();
    this.onclose?.({ code, reason });
  }

  #forget(name: string): void {
    for (const each of [this.#known, this.#fresh, this.#ids, this.#resynced, this.#stale]) each.delete(name);
  }

  #emit(message: Message): void {
    if (!this.#isClosed) this.onmessage?.({ data: JSON.stringify(message) });
  }

  async #run(): Promise<void> {
    try {
      await this.#request([], 0);
      while (!this.#isClosed) {
        const fresh = [...this.#fresh.keys()];
        if (fresh.length > 0 || this.#auth !== null) await this.#request(fresh, 0);
        else if (this.#known.size > 0) await this.#request([...this.#known.keys()], WAIT_S);
        else if (await this.#sleep(WAIT_S * 1000)) await this.#request([], 0); // it is still there
      }
    } catch {
      this.end({ code: LOST, reason: "" });
    }
  }

  /** Resolves after `ms` with true, or with false as soon as there is something to send. */
  #sleep(ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      const done = (isOver: boolean): void => {
        this.#env.cancel(timer);
        this.#interrupt = null;
        resolve(isOver);
      };
      const timer = this.#env.later(ms, () => done(true));
      this.#interrupt = () => done(false);
    });
  }

  /** Waits until the server's limit has room for a request with so many names; false if there is something to send before. */
  async #pace(names: number, wait: number): Promise<boolean> {
    const cost = (1 + Math.floor(names / NAMES_PER_REQUEST)) * INTERVAL_MS;
    const waitMs = (): number => this.#fullAt - this.#env.now() - (BURST - 1) * INTERVAL_MS;
    while (!this.#isClosed && waitMs() > 0) {
      // Without it a new name would wait for the answer to others, which may be a stream without an end.
      if (!(await this.#sleep(waitMs())) && wait > 0) return false;
    }
    this.#fullAt = Math.max(this.#fullAt, this.#env.now()) + cost;
    return !this.#isClosed;
  }

  async #request(names: readonly string[], wait: number): Promise<void> {
    if (!(await this.#pace(names.length, wait))) return;
    const { signal } = (this.#controller = new AbortController());
    const isStream = wait > 0 && this.#streams;
    let timer: Timer = null;
    let isExpected = false; // that it is aborted
    const abort = (expected: boolean): void => {
      isExpected ||= expected;
      this.#controller?.abort();
    };
    const watch = (ms: number): void => {
      this.#env.cancel(timer);
      timer = this.#env.later(ms, () => {
        if (isStream) this.#streams = false;
        abort(isStream);
      });
    };
    const auth = this.#auth;
    const fresh = new Map(this.#fresh);
    if (wait > 0) this.#interrupt = () => abort(true);
    watch(isStream ? FIRST_EVENT_MS : wait * 1000 + LATE_MS);
    try {
      const response = await this.#env.fetch(this.#url, {
        method: "POST",
        cache: "no-store",
        signal,
        // Neither type needs a CORS preflight.
        headers: { "Content-Type": "text/plain", ...(isStream && { Accept: "text/event-stream" }) },
        body: JSON.stringify({
          endpoints: Object.fromEntries(names.map((name) => [name, this.#known.get(name) || null])),
          wait,
          data: this.#data || undefined,
          resynced: this.#resynced.size > 0 ? [...this.#resynced] : undefined,
          // What it has been told, perhaps by another server: a status that differs is news.
          live: this.#live ?? undefined,
          stale: this.#stale.size > 0 ? [...this.#stale] : undefined,
          client: this.#client,
          token: this.#token,
        }),
      });
      this.#client = undefined;
      const { body } = response as { body?: ReadableStream<Uint8Array> };
      if (response.status !== 200) await this.#refused(response);
      else if (isStream && body && /event-stream/.test(response.headers.get("Content-Type") ?? "")) {
        await this.#read(body, names, () => watch(SILENCE_MS));
      } else {
        if (isStream) this.#streams = false;
        const { messages, close } = JSON.parse(await response.text()) as { messages: Message[]; close?: Close };
        if (signal.aborted) return;
        if (auth === this.#auth) this.#auth = null;
        this.#apply(messages, names, fresh, auth);
        if (close) this.end(close);
      }
    } catch (error) {
      if (!isExpected) throw error;
    } finally {
      this.#env.cancel(timer);
      this.#interrupt = null;
    }
  }

  async #refused(response: HttpResponse): Promise<void> {
    const retryMs = 1000 * (Number(response.headers.get("Retry-After")) || 0);
    let problem: { close?: number; detail?: string } = {};
    try {
      problem = (JSON.parse(await response.text()) ?? {}) as typeof problem;
    } catch {
      // The answer of something in the way.
    }
    if (problem.close) this.end({ code: problem.close, reason: problem.detail ?? "" });
    else if (response.status === 429 && this.#isOpen) await this.#sleep(retryMs + this.#env.random() * 1000);
    else if (retryMs > 0) this.end({ code: OVERLOAD, reason: `retry=${retryMs}` });
    else throw new Error(`HTTP ${response.status}`);
  }

  /** Reads events until the stream ends. */
  async #read(body: ReadableStream<Uint8Array>, names: readonly string[], progressed: () => void): Promise<void> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      progressed();
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = events.pop() ?? "";
      const messages: Message[] = [];
      for (const event of events) {
        const data = event.slice(event.indexOf("data: ") + 6);
        if (event.startsWith("event: close")) {
          this.#apply(messages, names);
          return this.end(JSON.parse(data) as Close);
        }
        if (event.startsWith("data: ")) messages.push(JSON.parse(data) as Message);
      }
      this.#apply(messages, names);
    }
  }

  /** Passes messages on as a WebSocket would deliver them, which states what it has stated once. */
  #apply(messages: readonly Message[], names: readonly string[], fresh?: Map<string, number>, auth?: number | null): void {
    this.#setStatus(messages, names);
    for (const message of messages) {
      const { type, endpoint, endpoints } = message;
      if (type === "authenticated") {
        if (auth != null) this.#emit({ ...message, id: auth });
      } else if (type === "subscribed") {
        this.#subscribed(endpoints as Record<string, number | null>, (message.rejected ?? {}) as Record<string, unknown>, fresh);
      } else if (type === "update") {
        const known = this.#known.get(endpoint as string);
        if (known === undefined) continue;
        this.#known.set(endpoint as string, Math.max(known, message.version as number)); // a server that lags repeats older ones
        this.#resynced.delete(endpoint as string);
        this.#emit(message);
      } else if (type === "resync") {
        const news = (endpoints as string[]).filter((name) => this.#known.has(name) && !this.#resynced.has(name));
        for (const name of news) this.#resynced.add(name);
        if (news.length > 0) this.#emit({ type, endpoints: news });
      } else if (type !== "status" && type !== "welcome") this.#emit(message);
    }
    // The owner takes silence for a broken line.
    if (messages.length > 0) this.#emit({ type: "status", live: this.#live, endpoints: [] });
  }

  /** Passes on what is new of a `subscribed`: answers to requests, names that are rejected now, and versions that were lost. */
  #subscribed(endpoints: Record<string, number | null>, rejected: Record<string, unknown>, fresh?: Map<string, number>): void {
    const replies = new Map<number, { endpoints: Record<string, number | null>; rejected: Record<string, unknown> }>();
    const reply = (name: string): { endpoints: Record<string, number | null>; rejected: Record<string, unknown> } => {
      const id = this.#ids.get(name) as number;
      const found = replies.get(id) ?? { endpoints: {}, rejected: {} };
      replies.set(id, found);
      return found;
    };
    for (const [name, version] of Object.entries(endpoints)) {
      const known = this.#known.get(name);
      if (known === undefined) continue;
      const isAnswer = fresh !== undefined && fresh.has(name) && fresh.get(name) === this.#fresh.get(name);
      if (isAnswer) this.#fresh.delete(name);
      if (isAnswer || (version ?? 0) < known) reply(name).endpoints[name] = version;
      if ((version ?? 0) < known) this.#known.set(name, version ?? 0); // the next one may be less than what was lost
    }
    for (const [name, rejection] of Object.entries(rejected)) {
      if (!this.#known.has(name) || (this.#fresh.has(name) && fresh?.get(name) !== this.#fresh.get(name))) continue;
      reply(name).rejected[name] = rejection;
      this.#forget(name);
    }
    for (const [id, parts] of replies) this.#emit({ type: "subscribed", id, ...parts });
  }

  /** Passes on how the status has changed: of the server, and of names that are stale or no longer. */
  #setStatus(messages: readonly Message[], names: readonly string[]): void {
    let live = this.#live;
    let since: unknown = null;
    const stale = new Set(this.#stale);
    for (const message of messages) {
      if (message.type !== "status") continue;
      const { endpoints } = message as { endpoints?: string[] };
      if (!endpoints) {
        live = message.live as boolean;
        for (const name of names) stale.delete(name);
      }
      for (const name of endpoints ?? []) stale[message.live ? "delete" : "add"](name);
      since = message.since;
    }
    const before = this.#live === live ? this.#stale : new Set<string>();
    const announced = { type: "status", since };
    // The first `welcome` opens the connection.
    const welcome = this.#isOpen ? undefined : messages.find(({ type }) => type === "welcome");
    if (welcome) {
      this.#isOpen = true;
      this.#emit(welcome);
    }
    if (this.#live !== live) this.#emit({ ...announced, live });
    const recovered = [...before].filter((name) => !stale.has(name));
    const added = [...stale].filter((name) => !before.has(name));
    if (recovered.length > 0) this.#emit({ ...announced, live: true, endpoints: recovered });
    if (added.length > 0) this.#emit({ ...announced, live: false, endpoints: added });
    this.#live = live;
    this.#stale = stale;
  }
}
