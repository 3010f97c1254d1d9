// @vitest-environment jsdom
/** Who reads the page with a screen reader, or moves by keyboard, keeps the place. */

import { beforeEach, expect, test } from "vitest";
import { offlineWords } from "../../src/page/offline.ts";
import { ZonePicker } from "../../src/page/picker.ts";
import { Unfolded } from "../../src/page/rows.ts";
import { showStatus } from "../../src/page/status.ts";
import { MarketTime } from "../../src/page/time.ts";
import type { ConnectionStatus, Diem } from "../../src/sdk/index.ts";
import { DataError } from "../../src/sdk/index.ts";
import { Subject } from "../../src/sdk/observable.ts";
import { find, openPage, text } from "./desk.ts";

beforeEach(openPage);

const cells = (): (string | null)[][] =>
  [...document.querySelectorAll(".forecast details tr")].map((row) => [...row.children].map(({ textContent }) => textContent));

test("a table that is being read is changed in place", () => {
  const details = find(".forecast details") as HTMLDetailsElement;
  let rows = { head: ["Time", "Actual"], body: [["00:00", "1"], ["01:00", "2"]] };
  const table = new Unfolded(details, () => rows);
  table.draw();
  expect(cells()).toEqual([]); // nobody reads it
  details.open = true;
  table.draw();
  expect(cells()).toEqual([["Time", "Actual"], ["00:00", "1"], ["01:00", "2"]]);
  const read = document.querySelector(".forecast details tbody tr:nth-child(2) td") as HTMLElement;
  rows = { head: ["Time", "Actual"], body: [["00:00", "1"], ["01:00", "3"], ["02:00", "4"]] };
  table.draw();
  expect([read.textContent, read.isConnected]).toEqual(["3", true]);
  expect(cells()).toEqual([["Time", "Actual"], ["00:00", "1"], ["01:00", "3"], ["02:00", "4"]]);
  rows = { head: ["Time", "Gas", "Solar"], body: [["00:00", "5", "6"]] };
  table.draw();
  expect(cells()).toEqual([["Time", "Gas", "Solar"], ["00:00", "5", "6"]]);
  const scopes = [...document.querySelectorAll(".forecast details th")].map((head) => (head as HTMLTableCellElement).scope);
  expect([scopes, text(".forecast details caption")]).toEqual([["col", "col", "col", "row"], "Load and forecast as a table"]);
});

function connection(state: ConnectionStatus["state"], code: number | null = null, reason = ""): ConnectionStatus {
  return { state, code, reason, retryAt: null, server: "", mode: "" };
}

test("the button that connects again does not take the focus with it when it goes", () => {
  const status = new Subject(connection("closed", 4504, "too many connections"));
  const diem = {
    updates: { connection: status, live: new Subject({ live: false }), connect: () => status.set(connection("connecting")) },
    data: { health: new Subject({ reachable: true, failing: new Map<string, DataError>() }) },
  } as unknown as Diem;
  showStatus(diem, find("#connection"));
  const button = find(".connect") as HTMLButtonElement;
  button.focus();
  button.click();
  expect([button.hidden, document.activeElement?.id]).toEqual([true, "connection"]);
});

test("why the server has closed the connection is said to everybody, not only to those who point at it", () => {
  const words = (status: ConnectionStatus): string => offlineWords(status, false, null, new MarketTime("UTC"));
  expect(words(connection("closed", 4504, "too many connections"))).toBe(
    "The server has closed the connection: too many connections (4504). Nothing changes here until you connect again.",
  );
  expect(words(connection("closed", 4503))).toMatch(/: no reason given \(4503\)/);
  expect(words(connection("closed", 1000))).toBe("");
});

test("the list of zones that is open stays as it is when the same zones come again", () => {
  const select = find("#zone") as HTMLSelectElement;
  const picked: string[] = [];
  const picker = new ZonePicker(select, (zone) => picked.push(zone));
  const shown = (): string[] => [...select.options].map(({ value, text }) => `${value} ${text}`);
  picker.show([], "GR", "Greece");
  expect([shown(), select.value]).toEqual([["GR Greece"], "GR"]);
  picker.show(["BG", "GR"], "GR", "Greece");
  const [bulgaria] = select.options;
  picker.show(["BG", "GR"], "BG", "Bulgaria");
  expect([bulgaria?.isConnected, select.value]).toEqual([true, "BG"]);
  select.value = "GR";
  select.dispatchEvent(new Event("change"));
  expect(picked).toEqual(["GR"]);
  picker.show(["BG", "GR"], null, "/other/price");
  expect([shown(), select.value]).toEqual([[" /other/price", "BG Bulgaria", "GR Greece"], ""]);
});

test("a Data Service that answers is not called unreachable, whatever it answers", () => {
  const health = new Subject({ reachable: false, failing: new Map([["/a", new DataError("", 0, null, "stale")]]) });
  const diem = {
    updates: { connection: new Subject(connection("open")), live: new Subject({ live: true }) }, data: { health },
  } as unknown as Diem;
  showStatus(diem, find("#connection"));
  expect(text(".connection-text")).toBe("Live");
  health.set({ reachable: false, failing: new Map([...health.value.failing, ["/b", new DataError("HTTP 503", 503)]]) });
  expect(text(".connection-text")).toBe("Data Service unreachable");
});
