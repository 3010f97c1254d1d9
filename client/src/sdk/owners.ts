/** The lines to owners: made when something goes there, doubted while not live, and closed when nothing is left. */

import type { Environment } from "./environment.ts";
import type { Ear, Placing } from "./line.ts";
import { Line } from "./line.ts";
import { CAP_MS } from "./pace.ts";
import { Alarm } from "./timers.ts";

/** A server that is not live is doubted after this long, and as long again at random; then once more, until it is live. */
const DOUBT_MS = 5_000;
/** Servers say every 25 s whether they are live; another one has what one that hangs had. */
const SILENT_MS = 32_000;
/** A server that is named again is dialled within this. */
const SOON_MS = 500;
/** The most between two dials of a server that is named: it is expected back. */
const NAMED_CAP_MS = 5_000;
/** A connection that nothing needs any more is kept this long. */
const EMPTY_MS = 5_000;

/** What the lines ask and tell; `url` says which one. */
export interface OwnersHandlers {
  /** `named`: nobody is to be asked whether the server is still the one. */
  dial(url: string, named: boolean): Promise<string>;
  placing(url: string): Placing;
  /** The connection is not open: what was registered on it is not. */
  lost(url: string): void;
  /** The server has not been live for a while. */
  doubted(url: string): void;
  /** Its status or liveness is another one. */
  changed(): void;
}

interface Owner {
  readonly line: Line;
  /** It is about to be dialled because it was named. */
  named: boolean;
  readonly doubting: Alarm;
  readonly closing: Alarm;
}

export class Owners {
  readonly #env: Environment;
  readonly #ear: Ear;
  readonly #handlers: OwnersHandlers;
  readonly #owners = new Map<string, Owner>();

  constructor(env: Environment, ear: Ear, handlers: OwnersHandlers) {
    this.#env = env;
    this.#ear = ear;
    this.#handlers = handlers;
  }

  get(url: string | null): Line | undefined {
    return url === null ? undefined : this.#owners.get(url)?.line;
  }

  get lines(): [string, Line][] {
    return [...this.#owners].map(([url, { line }]) => [url, line]);
  }

  /** The line to this server; it is dialled when it is new. */
  line(url: string): Line {
    const known = this.get(url);
    if (known !== undefined) return known;
    const dial = (): Promise<string> => {
      const { named } = owner;
      owner.named = false;
      return this.#handlers.dial(url, named);
    };
    const line = new Line(this.#env, dial, this.#ear, this.#handlers.placing(url), SILENT_MS);
    const owner: Owner = { line, named: true, doubting: new Alarm(this.#env), closing: new Alarm(this.#env) };
    this.#owners.set(url, owner);
    line.connect();
    line.status.observe(({ state }) => this.#changed(url, owner, state !== "open"));
    line.live.observe(() => this.#changed(url, owner, false));
    return line;
  }

  /** The metadata service was asked about this server: whether it answered, and named it. */
  named(url: string, isNamed: boolean): void {
    const owner = this.#owners.get(url);
    owner?.line.connection.cap(isNamed ? NAMED_CAP_MS : CAP_MS);
    if (isNamed && owner?.line.connection.hurry(SOON_MS)) owner.named = true;
  }

  /** Closes in a while what is not used; a server that wants this client no more is dialled when it is used again. */
  tidy(uses: (url: string) => boolean): void {
    for (const [url, { closing, line }] of this.#owners) {
      if (uses(url)) closing.clear();
      else if (line.status.value.state === "closed") this.drop(url);
      else if (!closing.isSet) closing.set(EMPTY_MS, () => this.drop(url));
    }
  }

  drop(url: string): void {
    const owner = this.#owners.get(url);
    this.#owners.delete(url);
    owner?.doubting.clear();
    owner?.closing.clear();
    owner?.line.close();
    this.#handlers.changed();
  }

  #changed(url: string, owner: Owner, lost: boolean): void {
    if (this.#owners.get(url) !== owner) return;
    const { line, doubting } = owner;
    if (lost) this.#handlers.lost(url);
    if (line.status.value.state === "closed" || line.live.value.live) doubting.clear();
    else if (!doubting.isSet) {
      doubting.set(DOUBT_MS * (1 + this.#env.random()), () => {
        this.#handlers.doubted(url);
        this.#changed(url, owner, false);
      });
    }
    this.#handlers.changed();
  }
}
