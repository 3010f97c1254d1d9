// @vitest-environment jsdom
import type { Diem } from "diem-client";
import { createDiem } from "diem-client";
import { StrictMode, Suspense } from "react";
import type { Root } from "react-dom/client";
import { createRoot, hydrateRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DiemProvider, useSuspenseEndpoint } from "diem-client/react";
import { Load } from "../../examples/react/src/Load.tsx";
import { Scores } from "../../examples/react/src/Scores.tsx";
import { FakeServer, eventually } from "./server.ts";

let server: FakeServer;
let diem: Diem;
let root: Root;

beforeEach(() => {
  server = new FakeServer().install();
  diem = createDiem();
  document.body.innerHTML = "<main></main>";
  root = createRoot(document.querySelector("main") as HTMLElement);
});

afterEach(() => {
  root.unmount();
  diem.close();
  vi.unstubAllGlobals();
});

const show = (zone: string): void =>
  root.render(<StrictMode><DiemProvider diem={diem}><Load zone={zone} /></DiemProvider></StrictMode>);
const shown = (): string | null | undefined => document.querySelector("p")?.textContent;

test("React: renders the dataset and each change of it, and ends its subscription with the component", async () => {
  server.data.set("/load/GR", 5_000);
  show("GR");
  await eventually(() => expect(shown()).toBe("5000 MW"));
  await eventually(() => expect(document.querySelector("p")?.className).toBe("current"));
  server.change("/load/GR", 5_001);
  await eventually(() => expect(shown()).toBe("5001 MW"));
  root.render(null);
  await eventually(() => expect(server.subscribed).toEqual([]));
});

test("React: another endpoint never shows the data of the one before", async () => {
  server.data.set("/load/GR", 5_000);
  show("GR");
  await eventually(() => expect(shown()).toBe("5000 MW"));
  show("IT");
  await eventually(() => expect(shown()).toBe("…"));
  await eventually(() => expect(server.subscribed).toEqual(["/load/IT"]));
  server.change("/load/IT", 30_000);
  await eventually(() => expect(shown()).toBe("30000 MW"));
});

test("React: the members of a collection, those that come and those that go", async () => {
  const put = (name: string, version: number, value: unknown): void => {
    const isCollection = name.endsWith("/");
    const content = isCollection ? { endpoint: name, version, time: "", members: value } : value;
    server.contents.set(name, [isCollection ? "application/vnd.diem.collection+json" : "application/json", content]);
    server.change(name, version);
  };
  const listed = (): string => [...document.querySelectorAll("li")].map(({ textContent }) => textContent).join();
  put("/game/42", 1, { home: 1, away: 0 });
  put("/game/", 1, ["/game/42"]);
  root.render(<DiemProvider diem={diem}><Scores /></DiemProvider>);
  await eventually(() => expect(listed()).toBe("/game/42 1:0"));
  put("/game/43", 2, { home: 0, away: 0 });
  put("/game/", 2, ["/game/42", "/game/43"]);
  put("/game/42", 3, { home: 1, away: 1 });
  await eventually(() => expect(listed()).toBe("/game/42 1:1,/game/43 0:0"));
  put("/game/", 4, ["/game/43"]);
  await eventually(() => expect(listed()).toBe("/game/43 0:0"));
  root.render(null);
  await eventually(() => expect(server.subscribed).toEqual([]));
});

function Suspended({ name }: { name: string }) {
  const { data, problem } = useSuspenseEndpoint<{ speed: number }>(name);
  return <p>{data?.speed ?? problem?.message}</p>;
}

test("React: a suspended component waits for data, and then follows it", async () => {
  const put = (version: number, speed: number): void => {
    server.contents.set("/vans/7", ["application/json", { speed }]);
    server.change("/vans/7", version);
  };
  put(1, 30);
  root.render(
    <StrictMode><DiemProvider diem={diem}><Suspense fallback={<p>waiting</p>}><Suspended name="/vans/7" /></Suspense></DiemProvider></StrictMode>,
  );
  await eventually(() => expect(shown()).toBe("waiting"));
  await eventually(() => expect(shown()).toBe("30"));
  put(2, 31);
  await eventually(() => expect(shown()).toBe("31"));
});

test("React: the browser repeats what the server has rendered, and then shows what is newer", async () => {
  const data = { endpoint: "/load/GR", version: 5_000, time: "", unit: "MW", resolution: "PT1H", points: [{ time: "", value: 5_000 }] };
  const initial = [{ endpoint: "/load/GR", version: 5_000, time: "", data }];
  const page = <DiemProvider diem={diem} initial={initial}><Load zone="GR" /></DiemProvider>;
  const main = document.querySelector("main") as HTMLElement;
  root.unmount();
  main.innerHTML = renderToString(page);
  expect(shown()).toBe("5000 MW");
  server.data.set("/load/GR", 5_000);
  const mismatches: unknown[] = [];
  root = hydrateRoot(main, page, { onRecoverableError: (error) => mismatches.push(error) });
  await eventually(() => expect(document.querySelector("p")?.className).toBe("current")); // confirmed by the version that is known
  expect(diem.stats.fetches).toEqual({});
  server.change("/load/GR", 5_001);
  await eventually(() => expect(shown()).toBe("5001 MW"));
  expect(mismatches).toEqual([]);
});
