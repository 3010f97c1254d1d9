import { createDiem } from "diem-client";

const diem = createDiem();
const element = (id) => document.getElementById(id);

const stop = diem.watch(
  "/load/GR",
  ({ points, unit, confirmed }) => {
    element("load").textContent = `${points.at(-1)?.value ?? "no data"} ${unit}${confirmed ? "" : " (from the last visit)"}`;
  },
  (problem) => {
    element("load").textContent = problem.message;
  },
);
diem.updates.live.observe(({ live }) => {
  element("live").textContent = live ? "yes" : "no";
});
element("stop").addEventListener("click", stop);
