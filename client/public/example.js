// The ten lines of the README, served as /example.html.
import { createDiem } from "/diem.js";

const diem = createDiem();
const stop = diem.watch("/load/GR", (dataset) => {
  const last = dataset.points.at(-1);
  document.querySelector("#load").textContent = `${last.value} ${dataset.unit}`;
}, (problem) => console.warn(problem.message));
diem.updates.live.observe(({ live }) => document.body.classList.toggle("stale", !live));
diem.updates.subscribe("/dam/prices/GR", (update) => console.log(update.endpoint, update.version));
document.querySelector("#stop").addEventListener("click", stop);
