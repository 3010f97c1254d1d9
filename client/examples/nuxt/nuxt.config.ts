export default defineNuxtConfig({
  compatibilityDate: "2025-12-01",
  telemetry: false,
  app: { head: { title: "DIEM with Nuxt", link: [{ rel: "icon", href: "data:," }] } },
  typescript: { typeCheck: "build", tsConfig: { compilerOptions: { exactOptionalPropertyTypes: true } } },
});
