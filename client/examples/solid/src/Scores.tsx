import { useCollection } from "diem-client/solid";
import { For } from "solid-js";

interface Score {
  home: number;
  away: number;
}

/** The scores of all games in `/game/`, each a JSON document. */
export function Scores() {
  const scores = useCollection<Score>("/game/");
  return (
    <ul>
      <For each={[...scores().members]}>
        {([name, { value }]) => (
          <li>
            {name} {value.home}:{value.away}
          </li>
        )}
      </For>
    </ul>
  );
}
