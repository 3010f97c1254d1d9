import { defineConfig, mergeConfig } from "vitest/config";

import vite from "./vite.config";

const PAGES = ["tests/page/**/*.test.ts", "tests/admin/**/*.test.ts", "tests/examples/**/*.test.{ts,tsx}"];

/**
 * Pages keep their state in modules and in the document, so each of their files has both to itself, in a context of its own:
 * a thread of its own would also load jsdom, for more than half of the CPU time. The SDK keeps none: its files share the
 * modules that a thread has loaded, which takes half of the CPU time.
 */
export default mergeConfig(
  vite,
  defineConfig({
    test: {
      pool: "threads",
      projects: [
        {
          extends: true,
          resolve: { conditions: ["browser", "development"] }, // Solid and Svelte have another build for servers
          test: { name: "pages", include: PAGES, pool: "vmThreads", server: { deps: { inline: [/solid-js/, /svelte/] } } },
        },
        { extends: true, test: { name: "sdk", include: ["tests/**/*.test.{ts,tsx}"], exclude: PAGES, isolate: false } },
      ],
    },
  }),
);
