// A page for users with API keys, served as /login.html. The key is sent to POST /v1/tokens for tokens of some minutes, which
// servers and the Data Service accept. It is held in memory only: it ends with the page, or with "Log out".
import { createDiem } from "./diem.js";

const find = (id) => document.getElementById(id);
const show = (text) => (find("state").textContent = text);
const ENDED = { 4501: "the token was refused", 4502: "a token is needed", 4503: "the key was revoked" };
const USED_UP = "the quota of the key is used up";
let diem = null;

/** Returns the function that gets a token for `key`. */
function tokensFor(key) {
  return async () => {
    const headers = { Authorization: `Bearer ${key}` };
    const response = await fetch("v1/tokens", { method: "POST", headers, signal: AbortSignal.timeout(10_000) });
    if (response.status === 401) await logout("the key is not valid");
    if (response.status === 429) show(USED_UP);
    if (!response.ok) throw new Error(`no token: ${response.status}`); // the SDK calls again, with back-off
    return (await response.json()).token;
  };
}

function login(key) {
  const current = createDiem({ token: tokensFor(key), tokenForData: true });
  current.updates.connection.observe(({ state, code }) => {
    if (current !== diem && diem !== null) return; // of the user before
    if (state === "open") show("logged in");
    if (state === "closed" && code in ENDED) show(`logged out: ${ENDED[code]}`);
  });
  // What is shown stays, and what was announced is fetched as soon as it can be.
  current.data.health.observe(({ reachable, failing }) => {
    if (current !== diem && diem !== null) return;
    const isUsedUp = [...failing.values()].some(({ status }) => status === 429);
    find("health").textContent = reachable ? "" : `not up to date: ${isUsedUp ? USED_UP : "no answer"}`;
  });
  return current;
}

function watch(endpoint) {
  const row = document.createElement("li");
  const render = (text) => (row.textContent = `${endpoint}: ${text}`);
  render("…");
  find("endpoints").append(row);
  diem.watch(
    endpoint,
    ({ points, unit, version }) => render(`${points.at(-1)?.value ?? "no points"} ${unit} (version ${version})`),
    ({ code, status, message }) => render(code === "forbidden" || status === 403 ? "your key does not cover it" : message),
  );
}

async function logout(why = "logged out") {
  await diem?.clear().catch(() => undefined); // what is fetched with a token is not stored
  diem = null;
  find("endpoints").replaceChildren();
  find("health").textContent = "";
  find("key").required = true;
  show(why);
}

find("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = find("key").value.trim();
  find("key").value = "";
  if (key) {
    await logout();
    diem = login(key);
    find("key").required = false; // a further endpoint needs no key
  }
  if (diem) watch(find("endpoint").value.trim());
});
find("logout").addEventListener("click", () => logout());
