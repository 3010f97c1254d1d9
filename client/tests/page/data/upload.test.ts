// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { refusalOf, withValue } from "../../../src/page/data/files.ts";
import { Upload } from "../../../src/page/data/upload.ts";
import { find, openPage, text } from "../desk.ts";

const SERIES = {
  endpoint: "/meter", title: "Meter", media_type: "application/vnd.diem.series+json", bytes: 99, unit: "kW", resolution: "PT1H", points: 9, curve: [1, null, 3],
  first: [{ time: "2026-01-01T00:00:00Z", value: 1.5 }], last: [{ time: "2026-01-01T08:00:00Z", value: null }],
};
const PREVIEW = { zone: "Europe/Berlin", count: 1, endpoints: [SERIES] };
const QUESTION = { key: "zone", assumed: "UTC", text: "no time has an offset", others: ["Europe/Athens"] };
const SUGGESTION = { ...PREVIEW, endpoint: "/meter", preset: "", layout: 'zone = "UTC"\n', notes: [], questions: [QUESTION], problem: "", presets: ["smard"] };
const ACCEPTED = { accepted: [{ endpoint: "/meter", version: 1, changed: true }] };

interface Sent {
  readonly url: URL;
  readonly headers: Record<string, string>;
}
let sent: Sent[];
let answers: [number, unknown][];
let picked: string[];
/** Of this test: the document keeps the listeners of those before. */
let page: { isShown: boolean };

beforeEach(() => {
  openPage();
  [sent, answers, picked] = [[], [], []];
  const own = (page = { isShown: true });
  // jsdom has no modal dialogs.
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };
  HTMLDialogElement.prototype.close = function () {
    this.open = false;
    this.dispatchEvent(new Event("close"));
  };
  vi.stubGlobal("fetch", async (url: string, { headers, signal }: { headers: Record<string, string>; signal: AbortSignal }) => {
    sent.push({ url: new URL(url), headers });
    const [status, body] = answers.shift() ?? [200, PREVIEW];
    await Promise.resolve();
    signal.throwIfAborted();
    return new Response(JSON.stringify(body), { status });
  });
  new Upload(find("#upload") as HTMLDialogElement, find(".add"), () => own.isShown, {
    rest: () => Promise.resolve("http://here/v1"),
    pick: (endpoint) => picked.push(endpoint),
    unlisted: () => picked.push("read the list"),
  });
});
afterEach(() => {
  page.isShown = false;
  vi.unstubAllGlobals();
});

const field = (name: string): HTMLInputElement => find(`#upload [name=${name}]`) as HTMLInputElement;
const go = (): string | null | undefined => text("#upload [type=submit]");
const settled = async (): Promise<void> => void (await new Promise((done) => setTimeout(done)));

function drop(...names: string[]): Event {
  const event = new Event("drop", { bubbles: true, cancelable: true });
  const files = names.map((name) => new File(["a;b"], name, { type: "text/csv" }));
  document.body.dispatchEvent(Object.assign(event, { dataTransfer: { types: ["Files"], files } }));
  return event;
}

async function submit(): Promise<void> {
  find("#upload form").dispatchEvent(new Event("submit", { cancelable: true }));
  await settled();
}

async function open(...then: [number, unknown][]): Promise<void> {
  answers = then;
  drop("meter.csv");
  field("key").value = "a-key";
  await submit();
}

test("a dropped file asks for the write key once, then shows what would be stored, and stores it", async () => {
  await open([200, SUGGESTION], [200, ACCEPTED], [200, SUGGESTION]);
  expect([sent[0]?.url.search, sent[0]?.headers.Authorization]).toEqual(["?name=meter.csv", "Bearer a-key"]);
  expect([field("endpoint").value, field("layout").value, field("key").value]).toEqual(["/meter", 'zone = "UTC"\n', ""]);
  expect(text(".preview tbody th")).toBe("/meterMeter · kW · hourly · 9 values");
  expect(text(".preview .ends")).toBe("1 Jan 2026 01:00 1.57 more1 Jan 2026 09:00 –");
  expect([text(".preview caption"), go()]).toEqual(["1 endpoint; times in Europe/Berlin", "Publish 1 endpoint"]);
  await submit();
  expect(sent[1]?.url.search).toBe("?name=meter.csv&endpoint=%2Fmeter&layout=zone+%3D+%22UTC%22%0A");
  expect([picked, (find("#upload") as HTMLDialogElement).open]).toEqual([["read the list", "/meter"], false]);
  drop("again.csv", "other.csv");
  await settled();
  expect([sent[2]?.headers.Authorization, text(".file-name")]).toEqual(["Bearer a-key", "again.csv, 3 B; the first of 2 files"]);
});

test("what has changed is shown before it is stored, and an answer to a question changes the layout", async () => {
  await open([200, SUGGESTION]);
  const athens = [...document.querySelectorAll<HTMLElement>(".questions button")].find(({ textContent }) => textContent === "Europe/Athens");
  athens?.click();
  await settled();
  expect([field("layout").value, athens?.ariaPressed, sent.at(-1)?.url.searchParams.get("preview")]).toEqual(['zone = "Europe/Athens"\n', "true", "true"]);
  field("endpoint").value = "/other";
  field("endpoint").dispatchEvent(new Event("input"));
  expect(go()).toBe("Preview");
  await submit();
  expect([sent.at(-1)?.url.searchParams.get("endpoint"), go()]).toEqual(["/other", "Publish 1 endpoint"]);
  field("preset").value = "smard";
  field("preset").dispatchEvent(new Event("change"));
  await settled();
  expect([sent.at(-1)?.url.searchParams.get("preset"), field("layout").value]).toEqual(["smard", ""]);
});

test("a problem stands beside its part, and nothing can be published", async () => {
  const problem = (code: string, detail: string, where = ""): unknown => ({ code, detail, errors: [{ where, detail }] });
  await open([401, problem("unauthorised", "no")]);
  expect([text("#problem-key"), field("key").getAttribute("aria-invalid")]).toEqual(["This is no write key of this server, or no longer.", "true"]);
  answers = [[200, SUGGESTION], [422, problem("invalid_dataset", "layout: line 1, unit: expected text in quotes", "layout")]];
  field("key").value = "a-key";
  await submit();
  field("layout").dispatchEvent(new Event("input"));
  await submit();
  expect([text("#problem-key"), text("#problem-layout"), go()]).toEqual(["", "Line 1, unit: expected text in quotes.", "Preview"]);
  expect(document.activeElement).toBe(field("layout"));
  answers = [[409, problem("owned_by_source", "/meter is kept by a source")]];
  await submit();
  expect([text("#problem-layout"), text("#problem-endpoint")]).toEqual(["", "/meter is kept by a source."]);
  expect(refusalOf(413, problem("too_large", "split it")).part).toBe("file");
  expect(refusalOf(502, null).message).toBe("The Data Service answers 502.");
});

test("files are left to the browser while another page is shown, and a closed dialog hears no answers", async () => {
  page.isShown = false;
  expect([drop("a.csv").defaultPrevented, (find("#upload") as HTMLDialogElement).open]).toEqual([false, false]);
  page.isShown = true;
  answers = [[200, SUGGESTION]];
  expect(drop("a.csv").defaultPrevented).toBe(true);
  field("key").value = "a-key";
  find("#upload form").dispatchEvent(new Event("submit", { cancelable: true }));
  find("#upload .close").click();
  await settled();
  expect(find(".of-layout").hidden).toBe(true);
});

test("a value is put in the place of another, or before the table", () => {
  expect(withValue('zone = "UTC"\n\n[mapping]\ntime_format = "%d"\n', "time_format", "%m")).toBe('zone = "UTC"\n\n[mapping]\ntime_format = "%m"\n');
  expect(withValue("[mapping]\n", "zone", "a$&b")).toBe('zone = "a$&b"\n[mapping]\n');
});
