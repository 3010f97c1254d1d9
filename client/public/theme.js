// Runs before the first paint, so that neither another theme nor another page than the chosen one flashes.
if (/[?&](view=data|endpoint=)/.test(location.search)) document.documentElement.dataset.page = "data";
try {
  const theme = localStorage.getItem("diem.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's preference stands then.
}
