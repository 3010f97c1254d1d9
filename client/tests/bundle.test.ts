/** What a page downloads for what it imports from the package, as a bundler makes it of the source. */

import { gzipSync } from "node:zlib";
import type { Rolldown } from "vite";
import { build } from "vite";
import { expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 300_000 }); // it builds

const LIMIT = 11 * 1024;
/** What is loaded later, by its main file: what it consists of, and a bound of our own for its bytes. */
const LATER = {
  "catalogue.ts": { files: ["catalogue.ts"], limit: 0.5 * 1024 },
  "collections.ts": { files: ["collections.ts"], limit: 1.25 * 1024 },
  "lifecycle.ts": { files: ["lifecycle.ts"], limit: 0.625 * 1024 },
  "mirror.ts": { files: ["mirror.ts"], limit: 1.125 * 1024 },
  "notices.ts": { files: ["notices.ts"], limit: 0.625 * 1024 },
  "partitioned.ts": { files: ["locator.ts", "partitioned.ts", "pool.ts", "routes.ts"], limit: 4.375 * 1024 },
  "polling.ts": { files: ["polling.ts"], limit: 2.625 * 1024 },
  "refusals.ts": { files: ["refusals.ts"], limit: 1.75 * 1024 },
  "skew.ts": { files: ["skew.ts"], limit: 0.5 * 1024 },
  "store.ts": { files: ["store.ts"], limit: 1024 },
  "tokens.ts": { files: ["tokens.ts"], limit: 1.5 * 1024 },
  "tombstone.ts": { files: ["tombstone.ts"], limit: 0.375 * 1024 },
};
const SDK = new URL("../src/sdk/index.ts", import.meta.url).pathname;
/** A file that is not there: the test says what is in it. */
const ENTRY = new URL("entry.ts", import.meta.url).pathname;

interface Bundle {
  /** Bytes after `gzip -9` that are loaded at once. */
  readonly size: number;
  /** The files of the SDK that are loaded at once. */
  readonly files: string[];
  /** What is loaded later, by its main file. */
  readonly later: Record<string, { size: number; files: string[] }>;
}

async function bundle(code: string): Promise<Bundle> {
  const built = await build({
    configFile: false,
    logLevel: "error",
    resolve: { alias: { "diem-client": SDK } },
    build: {
      write: false,
      target: "es2022",
      lib: { entry: ENTRY, formats: ["es"] },
      rolldownOptions: { output: { minify: true, codeSplitting: true } },
    },
    plugins: [{
      name: "entry",
      enforce: "pre",
      resolveId: (id) => (id.endsWith("entry.ts") ? ENTRY : null),
      load: (id) => (id === ENTRY ? code : null),
    }],
  });
  const chunks = (built as Rolldown.RolldownOutput[]).flatMap(({ output }) => output).filter((part) => part.type === "chunk");
  const size = (parts: typeof chunks): number => parts.reduce((sum, part) => sum + gzipSync(part.code, { level: 9 }).length, 0);
  const name = (id: string): string => id.split("/").at(-1) as string;
  const files = (parts: typeof chunks): string[] =>
    parts.flatMap(({ moduleIds }) => moduleIds).filter((id) => id.includes("/src/sdk/")).map(name).sort();
  const first = chunks.filter(({ isDynamicEntry }) => !isDynamicEntry);
  const later = chunks.filter(({ isDynamicEntry }) => isDynamicEntry).map(
    (part) => [name(part.facadeModuleId ?? ""), { size: size([part]), files: files([part]) }] as const,
  );
  return { size: size(first), files: files(first), later: Object.fromEntries(later) };
}

test("everything the package exports is below 11 KiB at first; the store and what a page may need come later", async () => {
  const all = await bundle('export * from "diem-client"');
  console.info(`the SDK: ${all.size} bytes; more later:`, all.later);
  expect(all.size).toBeLessThanOrEqual(LIMIT);
  expect(all.files).toContain("connection.ts");
  expect(Object.keys(all.later).sort()).toEqual(Object.keys(LATER));
  for (const [main, { files, limit }] of Object.entries(LATER)) {
    expect(all.later[main]?.files).toEqual(files);
    expect(all.later[main]?.size).toBeLessThan(limit);
  }
});

test("DataService alone brings no WebSocket, no cache and no partitioned mode", async () => {
  const { files, later, size } = await bundle('export { DataService } from "diem-client"');
  expect(files).toEqual(["backoff.ts", "data.ts", "fetches.ts", "http.ts", "json.ts", "observable.ts", "snapshot.ts"]);
  expect(Object.keys(later)).toEqual(["catalogue.ts", "notices.ts", "tombstone.ts"]);
  expect(size).toBeLessThan(3.65 * 1024);
});

test("a constant brings its table and nothing else", async () => {
  expect((await bundle('export { CLOSE_CODES } from "diem-client"')).files).toEqual(["codes.ts"]);
});
