/** Datasets in IndexedDB, which outlive the page and are shared by the tabs of an origin. */

/** A stored dataset. */
export interface Stored {
  readonly endpoint: string;
  readonly version: number;
  readonly etag: string | null;
  /** When it was used last, Unix time in milliseconds. */
  readonly used: number;
  /** The dataset as JSON; its length counts against the bound. */
  readonly text: string;
}

export interface Bounds {
  readonly entries: number;
  /** Characters of JSON, all entries together. */
  readonly chars: number;
}

/** A store of datasets. Every failure rejects, and costs the page only its stored data. */
export interface Store {
  /** All entries, least recently used first. */
  load(): Promise<Stored[]>;
  /**
   * Stores each of `entries` unless a newer version of it is stored, then drops the least recently used, down to `bounds`:
   * bounds of zero empty the store. A write for which there is no room empties it, too.
   */
  save(entries: readonly Stored[], bounds: Bounds): Promise<void>;
}

/** The database of the deployment at the origin itself. */
const NAME = "diem";
const TABLE = "datasets";
const ORDER = "used";

/** Versions of two deployments cannot be compared, although their endpoints may have the same names. */
export function databaseOf(configUrl: string): string {
  const { href } = new URL(configUrl, document.baseURI);
  return href === `${location.origin}/config.json` ? NAME : `${NAME} ${href}`;
}

/** SHA-256 (FIPS 180-4) of `text` in hexadecimal digits; null where the browser has none, as on pages over plain http. */
export async function digest(text: string): Promise<string | null> {
  if (!crypto.subtle) return null;
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** A transaction of IndexedDB spans tabs, so concurrent saves of two tabs end at the newer version. */
export class IndexedStore implements Store {
  readonly #factory: IDBFactory;
  readonly #name: string;
  #database: Promise<IDBDatabase> | null = null;

  constructor(factory: IDBFactory, name = NAME) {
    this.#factory = factory;
    this.#name = name;
  }

  load(): Promise<Stored[]> {
    return this.#transact("readonly", (table) => table.index(ORDER).getAll());
  }

  async save(entries: readonly Stored[], bounds: Bounds): Promise<void> {
    try {
      await this.#transact("readwrite", (table) => write(table, entries, bounds));
    } catch {
      await this.#transact("readwrite", (table) => void table.clear());
    }
  }

  async #transact<T>(mode: IDBTransactionMode, work: (table: IDBObjectStore) => IDBRequest<T> | void): Promise<T> {
    this.#database ??= open(this.#factory, this.#name);
    const transaction = (await this.#database).transaction(TABLE, mode);
    return new Promise((resolve, reject) => {
      const request = work(transaction.objectStore(TABLE));
      transaction.oncomplete = () => resolve(request?.result as T);
      transaction.onabort = () => reject(transaction.error);
    });
  }
}

function open(factory: IDBFactory, name: string): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = factory.open(name, 2);
    request.onupgradeneeded = ({ oldVersion }) => {
      if (oldVersion > 0) request.result.deleteObjectStore(TABLE); // version 1 did not distinguish keys
      request.result.createObjectStore(TABLE, { keyPath: "endpoint" }).createIndex(ORDER, ["used", "text.length"]);
    };
    request.onerror = request.onblocked = () => reject(request.error);
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close(); // a newer SDK in another tab goes first
      resolve(request.result);
    };
  });
}

function write(table: IDBObjectStore, entries: readonly Stored[], bounds: Bounds): void {
  let left = entries.length;
  if (left === 0) return trim(table, bounds);
  for (const entry of entries) {
    const kept: IDBRequest<Stored | undefined> = table.get(entry.endpoint);
    kept.onsuccess = () => {
      if (!kept.result || kept.result.version <= entry.version) table.put(entry);
      if (--left === 0) trim(table, bounds); // requests run in order: it sees all of them
    };
  }
}

/** Reads keys only: the index has the sizes. */
function trim(table: IDBObjectStore, bounds: Bounds): void {
  let { entries, chars } = bounds;
  const newestFirst = table.index(ORDER).openKeyCursor(null, "prev");
  newestFirst.onsuccess = () => {
    const cursor = newestFirst.result;
    if (cursor === null) return;
    const [, size] = cursor.key as [number, number];
    if (entries > 0 && size <= chars) {
      entries -= 1;
      chars -= size;
    } else table.delete(cursor.primaryKey);
    cursor.continue();
  };
}
