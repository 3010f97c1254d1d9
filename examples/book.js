import { createDiem } from "./diem.js";

const diem = createDiem();
diem.watch("/book/ACME", ({ value }) => {
  const levels = (side) => Object.entries(value?.[side] ?? {}).sort(([one], [other]) => other - one);
  const lines = [...levels("asks"), ["----", ""], ...levels("bids")].map(([price, size]) => `${price}  ${size}`);
  document.querySelector("#book").textContent = lines.join("\n");
});
diem.updates.live.observe(({ live }) => {
  document.querySelector("#state").textContent = live ? "live" : "may be out of date";
});
