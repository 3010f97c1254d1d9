/** What `npm pack` makes: installed into an empty application, it runs, and its types are good. `make frameworks` builds with it. */

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
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
let tarball: string;

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "diem-client-"));
  // That of a release (`make artefacts`), or one as `make packages` makes it.
  const folder = process.env.DIEM_DIST ?? home;
  if (folder === home) run("npm", ["pack", "--silent", `--pack-destination=${home}`], CLIENT);
  tarball = join(folder, readdirSync(folder).find((name) => /^diem-client-.*\.tgz$/.test(name)) ?? "");
  files = run("tar", ["-tzf", tarball]).trim().split("\n").map((path) => path.replace("package/", ""));
  writeFileSync(join(home, "package.json"), '{ "type": "module" }');
  run("npm", ["install", "--offline", "--silent", "--no-audit", "--no-fund", tarball]);
  for (const name of ["application.ts", "application.cts"]) writeFileSync(join(home, name), APPLICATION);
});

afterAll(() => rmSync(home, { recursive: true, force: true }));

const run = (command: string, args: string[], cwd = home): string => execFileSync(command, args, { cwd, encoding: "utf8", stdio: "pipe" });

test("modules with their types, README, licence, and nothing else", () => {
  const modules = files.filter((path) => path.startsWith("dist/sdk/"));
  expect(files.filter((path) => !modules.includes(path)).sort()).toEqual(["LICENSE", "NOTICE", "README.md", "package.json"]);
  for (const path of modules) expect(path).toMatch(/\.(js|d\.ts)$/);
  for (const path of modules.filter((path) => path.endsWith(".js"))) expect(modules).toContain(path.replace(".js", ".d.ts"));
  const { dependencies, sideEffects } = JSON.parse(readFileSync(join(home, "node_modules/diem-client/package.json"), "utf8")) as Record<string, unknown>;
  expect([dependencies, sideEffects]).toEqual([undefined, false]);
});

test("an application imports what the source exports", () => {
  const names = run("node", ["-e", 'import("diem-client").then((sdk) => console.log(JSON.stringify(Object.keys(sdk))))']);
  expect(JSON.parse(names)).toEqual(Object.keys(source).sort());
});

test("CommonJS requires it, and all of its parts", () => {
  const frameworks = readdirSync(join(CLIENT, "node_modules")).filter((name) => /^(react|vue|svelte|solid-js|@angular)$/.test(name));
  for (const name of frameworks) symlinkSync(join(CLIENT, "node_modules", name), join(home, "node_modules", name));
  const parts = ["", "/node", "/react", "/vue", "/svelte", "/angular", "/solid", "/initial"];
  const required = parts.map((part) => `Object.keys(require("diem-client${part}")).length > 0`);
  writeFileSync(join(home, "application.cjs"), `console.log([${required.join()}].every(Boolean))`);
  expect(run("node", ["--no-warnings", "application.cjs"]).trim()).toBe("true");
});

test("every framework is optional", () => {
  const described = JSON.parse(readFileSync(join(home, "node_modules/diem-client/package.json"), "utf8")) as {
    peerDependencies: object; peerDependenciesMeta: Record<string, { optional: boolean }>;
  };
  for (const name of Object.keys(described.peerDependencies)) expect(described.peerDependenciesMeta[name]).toEqual({ optional: true });
});

test("publint finds nothing", async () => {
  const { messages } = await publint({ pkgDir: join(home, "node_modules/diem-client"), pack: false, strict: true });
  expect(messages).toEqual([]);
});

test("the types are right for whoever imports ES modules", async () => {
  const checked = await checkPackage(createPackageFromTarballData(readFileSync(tarball)));
  if (!checked.types) throw new Error("there are none");
  // Node.js loads ES modules by `require`, and TypeScript 5.8 knows; its resolution `node10` knows no subpaths.
  const others = checked.problems.filter(({ kind, ...problem }) =>
    kind !== "CJSResolvesToESM" && !(kind === "NoResolution" && "resolutionKind" in problem && problem.resolutionKind === "node10"));
  expect(others).toEqual([]);
});

test("its description has name and licence", () => {
  const described = JSON.parse(readFileSync(join(home, "node_modules/diem-client/package.json"), "utf8")) as Record<string, unknown>;
  expect(described).toMatchObject({ name: "diem-client", type: "module", license: "Apache-2.0" });
  expect(described).not.toHaveProperty("private"); // `npm publish` would refuse it
});

test("an application is type-checked, also one in CommonJS, modules resolved as by Node.js, which asks for more than bundlers do", () => {
  const compilerOptions = {
    module: "nodenext",
    noEmit: true,
    strict: true,
    target: "es2022",
    lib: ["es2023", "dom"],
    skipDefaultLibCheck: true, // what is checked are the types of the package
    types: [],
  };
  writeFileSync(join(home, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["application.ts", "application.cts"] }));
  const { status, stdout } = spawnSync(join(CLIENT, "node_modules/.bin/tsc"), ["--listFiles"], { cwd: home, encoding: "utf8" });
  expect(status, stdout).toBe(0);
  expect(stdout.split("\n")).toContain(join(home, "node_modules/diem-client/dist/sdk/index.d.ts"));
});
