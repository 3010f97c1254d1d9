/** What a page downloads for what it imports from the package, as a bundler makes it of the source. */

import { gzipSync } from "node:zlib";
import type { Rolldown } from "vite";
import { build } from "vite";
import { expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 300_000 }); // it builds

const PARTITIONED = ["locator.ts", "partitioned.ts", "pool.ts", "routes.ts"];
const LIMIT = 10 * 1024;
/** Of the partitioned mode: a bound of our own. */
const LATER_LIMIT = 4.25 * 1024;
const SDK = new URL("../src/sdk/index.ts", import.meta.url).pathname;
/** A file that is not there: the test says what is in it. */
const ENTRY = new URL("entry.ts", import.meta.url).pathname;

interface Bundle {
  /** Bytes after `gzip -9` that are loaded at once, and later. */
  readonly size: number;
  readonly later: number;
  /** The files of the SDK that are loaded at once, and later. */
  readonly files: string[];
  readonly laterFiles: string[];
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
  const first = chunks.filter(({ isDynamicEntry }) => !isDynamicEntry);
  const second = chunks.filter(({ isDynamicEntry }) => isDynamicEntry);
  const size = (parts: typeof chunks): number => parts.reduce((sum, part) => sum + gzipSync(part.code, { level: 9 }).length, 0);
  const files = (parts: typeof chunks): string[] =>
    parts.flatMap(({ moduleIds }) => moduleIds).filter((id) => id.includes("/src/sdk/")).map((id) => id.split("/").at(-1) as string).sort();
  return { size: size(first), later: size(second), files: files(first), laterFiles: files(second) };
}

test("everything the package exports is below 10 KiB; the partitioned mode comes when a configuration asks for it", async () => {
  const all = await bundle('export * from "diem-client"');
  console.info(`the SDK: ${all.size} bytes, and ${all.later} more in mode z-client`);
  expect(all.size).toBeLessThan(LIMIT);
  expect(all.later).toBeLessThan(LATER_LIMIT);
  expect(all.files).toContain("connection.ts");
  expect(all.laterFiles).toEqual(PARTITIONED);
});

test("DataService alone brings no WebSocket, no cache and no partitioned mode", async () => {
  const { files, laterFiles, size } = await bundle('export { DataService } from "diem-client"');
  expect([...files, ...laterFiles]).toEqual(["backoff.ts", "data.ts", "dataset.ts", "fetches.ts", "http.ts", "observable.ts"]);
  expect(size).toBeLessThan(LIMIT / 4);
});

test("a constant brings its table and nothing else", async () => {
  expect((await bundle('export { CLOSE_CODES } from "diem-client"')).files).toEqual(["codes.ts"]);
});
