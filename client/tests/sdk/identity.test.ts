import { describe, expect, it, vi } from "vitest";
import type { KeyValueStore } from "../../src/sdk/environment.ts";
import { clientId } from "../../src/sdk/environment.ts";
import { digest } from "../../src/sdk/store.ts";

class Kept implements KeyValueStore {
  readonly items = new Map<string, string>();
  get length(): number {
    return this.items.size;
  }
  key(index: number): string | null {
    return [...this.items.keys()][index] ?? null;
  }
  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    this.items.set(key, value);
  }
  removeItem(key: string): void {
    this.items.delete(key);
  }
}

const FORM = /^[A-Za-z0-9_-]{8,64}$/;

describe("the page's name for itself", () => {
  it("is the same after a reload, and another one in another tab", () => {
    const tab = new Kept();
    const first = clientId(tab);
    expect(first).toMatch(FORM);
    expect(clientId(tab)).toBe(first);
    expect(clientId(new Kept())).not.toBe(first);
  });

  it("is made without storage, and with one that throws", () => {
    const full = new Kept();
    full.setItem = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
    for (const storage of [null, full]) expect(clientId(storage)).toMatch(FORM);
  });

  it("takes the place of what servers would not take", () => {
    const tab = new Kept();
    tab.setItem("diem.client", "a b&c");
    expect(clientId(tab)).toMatch(FORM);
  });
});

describe("a digest", () => {
  it("is SHA-256, in hexadecimal digits", async () => {
    expect(await digest("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); // FIPS 180-4, example 1
  });

  it("is none where the browser keeps it from the page", async () => {
    vi.stubGlobal("crypto", { getRandomValues: crypto.getRandomValues.bind(crypto) });
    expect(await digest("abc")).toBeNull();
    vi.unstubAllGlobals();
  });
});
