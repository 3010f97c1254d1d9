import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Catalogue } from "../../src/page/catalogue.ts";
import { doubt } from "../../src/page/freshness.ts";
import { offlineWords } from "../../src/page/offline.ts";
import { wording } from "../../src/page/status.ts";
import { MarketTime } from "../../src/page/time.ts";
import type { Diem } from "../../src/sdk/index.ts";

const NOW = Date.UTC(2026, 10, 21, 13, 5);
const entry = (endpoint: string, gone = false) => ({ endpoint, title: "", unit: "", resolution: "", version: 1, gone });
let items: Map<string, string>;

beforeEach(() => {
  vi.useFakeTimers({ now: NOW });
  items = new Map();
  vi.stubGlobal("localStorage", { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => void items.set(key, value) });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A visit: what was shown, one list after the other. `answers`: what each request brings; null fails. */
function visit(answers: (ReturnType<typeof entry>[] | null)[], name = "here"): { list: Catalogue; shown: string[][] } {
  const shown: string[][] = [];
  const read = (): Promise<ReturnType<typeof entry>[]> => {
    const answer = answers.shift();
    return answer ? Promise.resolve(answer) : Promise.reject(new Error("no"));
  };
  const list = new Catalogue({ read, show: (entries) => shown.push(entries.map(({ endpoint }) => endpoint)), name });
  list.start();
  return { list, shown };
}

const PRESENT = [entry("/dam/prices/GR"), entry("/generation/GR/gas"), entry("/load/RO", true), entry("/test/other")];

test("the next visit starts with what there was in this one, and says since when while it cannot read", async () => {
  const first = visit([PRESENT]);
  await vi.advanceTimersByTimeAsync(0);
  expect([first.shown, first.list.outdatedSince]).toEqual([[PRESENT.map(({ endpoint }) => endpoint)], null]);
  await vi.advanceTimersByTimeAsync(3_600_000);
  const { list, shown } = visit([null, null, [entry("/load/GR")]]);
  expect([shown, list.outdatedSince]).toEqual([[["/dam/prices/GR", "/generation/GR/gas", "/test/other"]], null]);
  await vi.advanceTimersByTimeAsync(0);
  expect(list.outdatedSince).toBe(NOW);
  await vi.advanceTimersByTimeAsync(5_000);
  expect([shown.at(-1), list.outdatedSince]).toEqual([["/load/GR"], null]);
});

test("a first visit, what is no list, another deployment and a browser that keeps nothing start with nothing", async () => {
  visit([PRESENT], "there");
  await vi.advanceTimersByTimeAsync(0);
  expect(visit([]).shown).toEqual([]);
  for (const junk of ["{", "null", "7", '{"at":1}', '{"at":1,"endpoints":["no name",7]}', '{"endpoints":["/load/GR"]}']) {
    items.set("here", junk);
    expect(visit([]).shown, junk).toEqual([]);
  }
  const refuse = (): never => {
    throw new DOMException("no", "SecurityError");
  };
  vi.stubGlobal("localStorage", { getItem: refuse, setItem: refuse });
  const { shown } = visit([PRESENT]);
  await vi.advanceTimersByTimeAsync(0);
  expect(shown).toHaveLength(1);
});

test("what is kept is bounded", async () => {
  const others = Array.from({ length: 3_000 }, (_, index) => entry(`/own/${index}`));
  visit([[...others, entry("/load/GR")]]);
  await vi.advanceTimersByTimeAsync(0);
  const [kept = []] = visit([]).shown;
  expect([kept.length, kept[0]]).toEqual([2_000, "/load/GR"]); // what has a view of its own stays
});

test("the page says that it is offline, what is in sight instead, and of when", () => {
  const time = new MarketTime("Europe/Athens");
  const words = (state: "open" | "reconnecting", offline: boolean, since: number | null): string => offlineWords({ state, code: null, reason: "" }, offline, since, time);
  expect(words("reconnecting", false, NOW)).toBe("Offline: this is what the page showed on Sat 21 November at 15:05. Each view says how old its data is.");
  expect(words("reconnecting", true, null)).toMatch(/^Offline: this is what the page received last\./);
  expect(words("open", false, NOW)).toMatch(/^The Data Service does not answer: .* had on Sat 21 November at 15:05\.$/);
  expect([words("reconnecting", false, null), words("open", true, null), words("open", false, null)]).toEqual(["", "", ""]);
});

test("a browser without a network is offline, in the header and in each view", () => {
  expect(["connecting", "reconnecting", "open", "closed"].map((state) => wording(state, true, true, true))).toEqual(["Offline", "Offline", "Live", "Disconnected"]);
  const diem = (state: string): Diem =>
    ({ updates: { connection: { value: { state } }, isLive: () => false }, data: { health: { value: { failing: new Map() } } } }) as unknown as Diem;
  expect(["reconnecting", "closed"].map((state) => doubt(diem(state), ["/a"], true))).toEqual(["Offline", "Disconnected"]);
});
