import { useCollection } from "./diem";

interface Score {
  home: number;
  away: number;
}

/** The scores of all games in `/game/`, each a JSON document. */
export function Scores() {
  const scores = useCollection<Score>("/game/");
  return (
    <ul>
      {[...scores].map(([name, { value }]) => (
        <li key={name}>
          {name} {value.home}:{value.away}
        </li>
      ))}
    </ul>
  );
}
