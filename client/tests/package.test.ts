/** What `npm pack` makes: unpacked where an application would have it, it runs, its types are good, and it can be bundled. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import ts from "typescript";
import { build } from "vite";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import * as source from "../src/sdk/index.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 }); // it packs, and compiles

const CLIENT = new URL("..", import.meta.url).pathname;
const APPLICATION = `
import { createDiem, type Dataset, type Diem, type Snapshot } from "diem-client";
const diem: Diem = createDiem({ apiKey: "key" });
diem.watch("/load/GR", (dataset: Dataset) => console.log(dataset.points[0]?.value, dataset.confirmed));
diem.watch("/load/GR", ({ points, unit }) => console.log(points.length, unit));
interface Score { home: number; away: number }
diem.watch<Score>("/game/42/score", ({ value, mediaType }) => console.log(value.home.toFixed(), mediaType));
diem.watch("/game/42/score", (score: Snapshot<Score>) => console.log(score.value.away.toFixed()));
diem.watch<string | Uint8Array>("/game/42/logo", ({ value }) => console.log(value.length));
export const held: Score | undefined = diem.data.peek<Score>("/game/42/score")?.value;
export const fetched: Promise<Snapshot<Score>> = diem.data.get<Score>("/game/42/score");
export const points: number | undefined = diem.data.peek("/load/GR")?.points.length;
diem.watchCollection<Score>("/game/42/", ({ members, added }) => {
  const scores: Map<string, Snapshot<Score>> = members;
  for (const name of added) console.log(name, scores.get(name)?.value.home);
}, ({ message }, endpoint) => console.warn(endpoint, message), { deep: true });
// @ts-expect-error: a score has no points
diem.watch<Score>("/game/42/score", ({ value }) => console.log(value.points));
// @ts-expect-error: a version is a number
export const version: string = diem.data.held("/load/GR");
`;

let home: string;
let files: string[];

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "diem-client-"));
  const packed = run("npm", ["pack", "--json", "--loglevel=error", "--update-notifier=false", `--pack-destination=${home}`], CLIENT);
  const [{ filename, files: listed }] = JSON.parse(packed.slice(packed.indexOf("[\n"))) as [{ filename: string; files: { path: string }[] }];
  files = listed.map(({ path }) => path);
  mkdirSync(join(home, "node_modules/diem-client"), { recursive: true });
  run("tar", ["-xzf", filename, "-C", "node_modules/diem-client", "--strip-components=1"]);
  writeFileSync(join(home, "package.json"), '{ "type": "module" }');
  writeFileSync(join(home, "application.ts"), APPLICATION);
  writeFileSync(join(home, "index.html"), '<script type="module" src="/application.ts"></script>');
});

afterAll(() => rmSync(home, { recursive: true, force: true }));

const run = (command: string, args: string[], cwd = home): string => execFileSync(command, args, { cwd, encoding: "utf8", stdio: "pipe" });

test("modules with their types, a README, and nothing else", () => {
  const modules = files.filter((path) => path.startsWith("dist/sdk/"));
  expect(files.filter((path) => !modules.includes(path)).sort()).toEqual(["README.md", "package.json"]);
  for (const path of modules) expect(path).toMatch(/\.(js|d\.ts)$/);
  for (const path of modules.filter((path) => path.endsWith(".js"))) expect(modules).toContain(path.replace(".js", ".d.ts"));
  const { dependencies, sideEffects } = JSON.parse(readFileSync(join(home, "node_modules/diem-client/package.json"), "utf8")) as Record<string, unknown>;
  expect([dependencies, sideEffects]).toEqual([undefined, false]);
});

test("an application imports what the source exports", () => {
  const names = run("node", ["-e", 'import("diem-client").then((sdk) => console.log(JSON.stringify(Object.keys(sdk))))']);
  expect(JSON.parse(names)).toEqual(Object.keys(source).sort());
});

test("CommonJS requires it, and its part for servers", () => {
  const script = 'const [a, b] = [require("diem-client"), require("diem-client/initial")]; console.log(typeof a.createDiem, typeof b.readEndpoints)';
  writeFileSync(join(home, "application.cjs"), script);
  expect(run("node", ["--no-warnings", "application.cjs"]).trim()).toBe("function function");
});

test("every subpath has its module, and every framework is optional", () => {
  const described = JSON.parse(readFileSync(join(home, "node_modules/diem-client/package.json"), "utf8")) as {
    exports: Record<string, string | { types: string; default: string }>; peerDependencies: object; peerDependenciesMeta: Record<string, { optional: boolean }>;
  };
  const named = Object.values(described.exports).flatMap((target) => (typeof target === "string" ? [target] : Object.values(target)));
  for (const path of named) expect([...files, "package.json"]).toContain(path.replace("./", ""));
  for (const name of Object.keys(described.peerDependencies)) expect(described.peerDependenciesMeta[name]).toEqual({ optional: true });
});

test("its description leaves the licence to whoever publishes it", () => {
  const described = JSON.parse(readFileSync(join(home, "node_modules/diem-client/package.json"), "utf8")) as Record<string, unknown>;
  expect(described).toMatchObject({ name: "diem-client", type: "module", license: "UNLICENSED" });
  expect(described).not.toHaveProperty("private"); // `npm publish` would refuse it
});

test("an application is type-checked, modules resolved as by Node.js, which asks for more than bundlers do", () => {
  const options: ts.CompilerOptions = {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    noEmit: true,
    strict: true,
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2023.d.ts", "lib.dom.d.ts"],
    skipDefaultLibCheck: true, // what is checked are the types of the package
    types: [],
  };
  const host = ts.createCompilerHost(options);
  host.getCurrentDirectory = () => home;
  const program = ts.createProgram([join(home, "application.ts")], options, host);
  expect(ts.formatDiagnostics(ts.getPreEmitDiagnostics(program), host)).toBe("");
  expect(program.getSourceFiles().map(({ fileName }) => fileName)).toContain(join(home, "node_modules/diem-client/dist/sdk/index.d.ts"));
});

test("an application is bundled", async () => {
  await build({ root: home, configFile: false, logLevel: "error" });
  const page = readFileSync(join(home, "dist/index.html"), "utf8");
  const script = readFileSync(join(home, "dist", /src="\/(assets\/[^"]+\.js)"/.exec(page)![1]!), "utf8");
  expect(script).toContain("/load/GR");
  expect(script).toContain("WebSocket"); // the SDK is in it
});
