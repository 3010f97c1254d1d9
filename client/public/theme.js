// Runs before the first paint, so that neither another theme nor another page than the chosen one flashes.
if (/[?&](view=data|endpoint=)/.test(location.search)) document.documentElement.dataset.page = "data";
try {
  const theme = localStorage.getItem("diem.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's preference stands then.
}
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  // WebKitGTK takes it from the locale, and "C" is no language: the library of charts would not load.
  Object.defineProperty(navigator, "language", { value: "en" });
}
