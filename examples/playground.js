import { createDiem } from "./diem.js";

const KEPT_ROWS = 50;
const find = (selector) => document.querySelector(selector);

/** The WebSocket of the SDK, which has taken a frame before its row is added. */
globalThis.WebSocket = class extends WebSocket {
  constructor(...address) {
    super(...address);
    this.addEventListener("message", ({ data }) => setTimeout(addRow, 0, new Date(), data));
  }
};

const diem = createDiem();
let endpoint = "";
let problem = "";
let stop = () => {};

const liveness = () => (diem.updates.isLive(endpoint) ? "live" : "stale");

function addRow(time, text) {
  const { type, version, endpoints } = JSON.parse(text);
  const table = find("tbody");
  const row = table.insertRow(0);
  for (const each of [clock(time), type, version ?? endpoints?.[endpoint], new Blob([text]).size, liveness()]) {
    row.insertCell().textContent = each ?? "";
  }
  if (table.rows.length > KEPT_ROWS) table.deleteRow(-1);
  showState();
}

const clock = (time) => `${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`;

function showState() {
  const { state, reason } = diem.updates.connection.value;
  const text = `${[state, reason].filter(Boolean).join(" ")}, ${liveness()}${problem && `: ${problem}`}`;
  if (find("#state").textContent !== text) find("#state").textContent = text;
}

function showValue(value) {
  const bytes = value instanceof Uint8Array && `${value.length} bytes`;
  find("#value").textContent = bytes || (typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

function watch() {
  stop();
  stop = () => {};
  endpoint = find("#endpoint").value.trim();
  problem = "";
  find("#value").textContent = "";
  try {
    stop = diem.watch(
      endpoint,
      ({ value, gone }) => {
        problem = gone ? "deleted" : "";
        showValue(value);
        showState();
      },
      ({ message }) => {
        problem = message;
        showState();
      },
    );
  } catch ({ message }) {
    problem = message; // no endpoint has such a name
  }
  showState();
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  watch();
});
diem.updates.connection.observe(showState);
diem.updates.live.observe(showState);
watch();
