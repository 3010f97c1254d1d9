import { createDiem } from "./diem.js";

createDiem().watchCollection("/scores/", ({ members }) => {
  const games = [...members.values()].map(({ value }) => {
    const game = document.createElement("li");
    game.textContent = `${value.home} ${value.goals.join(":")} ${value.away}`;
    return game;
  });
  document.querySelector("#games").replaceChildren(...games);
});
