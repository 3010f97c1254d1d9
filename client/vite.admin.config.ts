import { defineConfig } from "vite";

/**
 * The operator page, which `diem up` serves on a listener of its own: everything is below /admin/, and nothing of it is
 * shared with the public page, whose chunks stay as they are. It is built after that, into the same folder.
 */
export default defineConfig({
  base: "./",
  logLevel: "warn",
  publicDir: false,
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // light-dark() as it is written
    modulePreload: { polyfill: false },
    emptyOutDir: false,
    rolldownOptions: {
      input: { operator: "admin/index.html", login: "admin/login.html" },
      output: {
        entryFileNames: "admin/assets/[name]-[hash].js",
        chunkFileNames: "admin/assets/[name]-[hash].js",
        assetFileNames: "admin/assets/[name]-[hash][extname]",
      },
    },
  },
});
