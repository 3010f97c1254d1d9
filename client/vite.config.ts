import { defineConfig } from "vite";

const FRAMEWORKS = new URL("src/sdk/frameworks", import.meta.url).pathname;
const SDK = new URL("src/sdk/index.ts", import.meta.url).pathname;

/** Two entries: the demo page, and the SDK under a name that stays, for pages without a bundler (`import … from "./diem.js"`). */
export default defineConfig({
  base: "./",
  logLevel: "warn",
  resolve: {
    alias: [ // the examples, as users write them
      { find: /^diem-client\/(node|initial)$/, replacement: SDK.replace("index", "$1") },
      { find: /^diem-client\/(\w+)$/, replacement: `${FRAMEWORKS}/$1.ts` },
      { find: /^(?:diem-client|\.\/diem\.js)$/, replacement: SDK },
    ],
  },
  build: {
    target: "es2022",
    license: { fileName: "licenses.md" }, // of what the page contains
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // light-dark() as it is written
    modulePreload: { polyfill: false },
    rolldownOptions: {
      checks: { pluginTimings: false }, // of a slow machine
      input: { page: "index.html", diem: "src/served.ts" },
      preserveEntrySignatures: "strict",
      output: {
        entryFileNames: (chunk) => (chunk.name === "diem" ? "diem.js" : "assets/[name]-[hash].js"),
        // The page takes the SDK by a hashed name, so that a cached diem.js never meets a newer page.
        // What only mode z-client, pages with collections, with notices or with tokens and refused pages need is loaded when they do.
        codeSplitting: { groups: [{ name: "sdk", test: /src\/sdk\/(?!index|collections|notices|partitioned|pool|routes|locator|tokens|refusals)/ }] },
      },
    },
  },
});
