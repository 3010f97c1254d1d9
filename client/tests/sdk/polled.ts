/** Requests for updates to the servers of a group: what a connection receives that is opened now, and subscribes once. */

import type { Environment, HttpOptions, HttpResponse, Socket } from "../../src/sdk/environment.ts";
import { PollSocket } from "../../src/sdk/polling.ts";
import type { Group } from "./group.ts";
import type { FakeSocket } from "./world.ts";

interface Message {
  type: string;
  endpoints?: object;
  rejected?: object;
}

interface Body {
  endpoints: Record<string, number | null>;
  wait: number;
  data?: boolean;
  resynced?: string[];
  live?: boolean;
  stale?: string[];
}

/** Lets the page of a group poll, whatever it dials. */
export function pollOnly({ world }: Group): void {
  const dial = world.socket.bind(world);
  const env: Environment = {
    now: world.now,
    wall: world.wall,
    random: world.random,
    later: (ms, run) => world.later(ms, run),
    cancel: (timer) => world.cancel(timer),
    microtask: world.microtask,
    report: world.report,
    socket: dial,
    fetch: (url, options) => answer(world, dial(url.replace("http", "ws").replace("/v1/updates", "/ws")), options),
    storage: null,
    baseUrl: world.baseUrl,
  };
  (world as { socket(url: string): Socket }).socket = (url) => new PollSocket(env, url, () => undefined);
}

function answer(world: Environment, socket: FakeSocket, options: HttpOptions): Promise<HttpResponse> {
  const { endpoints, wait, data, resynced = [], live = true, stale = [] } = JSON.parse(options.body as string) as Body;
  const messages: Message[] = [];
  const unanswered = new Set(Object.keys(endpoints));
  let isNews = false;
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      world.cancel(timer);
      socket.closed = true;
      socket.onmessage = socket.onclose = null;
    };
    const send = (close?: object): void => {
      leave();
      resolve({ status: 200, headers: { get: () => null }, text: () => Promise.resolve(JSON.stringify({ messages, close })), arrayBuffer: () => Promise.reject(new Error("text")) });
    };
    const fail = (): void => {
      leave();
      reject(new TypeError("network"));
    };
    const timer = world.later(wait * 1000 || 60_000, send);
    options.signal.addEventListener("abort", fail);
    socket.onclose = ({ code, reason }) => (messages.length > 0 ? send({ code, reason }) : fail());
    socket.onmessage = ({ data: text }) => {
      const message = JSON.parse(text as string) as Message;
      if (message.type === "status" && Array.isArray(message.endpoints) && message.endpoints.length === 0) return; // a heartbeat
      world.microtask(check);
      messages.push(message);
      const { type } = message;
      if (type === "welcome") delete (message as { heartbeat_ms?: number }).heartbeat_ms; // between two polls there are none
      if (type === "subscribed") {
        for (const name of [...Object.keys(message.endpoints ?? {}), ...Object.keys(message.rejected ?? {})]) unanswered.delete(name);
        isNews ||= Object.keys(message.rejected ?? {}).length > 0;
      } else if (type === "resync") isNews ||= !(message.endpoints as string[]).every((name) => resynced.includes(name));
      else if (type !== "welcome" && type !== "status") isNews = true;
    };
    const isToldOtherwise = (): boolean => {
      let now = live;
      const names = new Set<string>();
      for (const message of messages.filter(({ type }) => type === "status") as (Message & { live: boolean })[]) {
        if (!message.endpoints) now = message.live;
        for (const name of (message.endpoints ?? []) as string[]) names[message.live ? "delete" : "add"](name);
      }
      return now !== live || names.size !== stale.length || !stale.every((name) => names.has(name));
    };
    const check = (): void => {
      if (socket.closed || unanswered.size > 0) return;
      if (isNews || isToldOtherwise() || wait === 0 || Object.keys(endpoints).length === 0) send();
    };
    if (unanswered.size > 0) socket.send(JSON.stringify({ type: "subscribe", id: 0, endpoints, data }));
  });
}
