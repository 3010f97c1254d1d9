import { useCollection } from "diem-client/react";

interface Score {
  home: number;
  away: number;
}

/** The scores of all games in `/game/`, each a JSON document. */
export function Scores() {
  const { members } = useCollection<Score>("/game/");
  return (
    <ul>
      {[...members].map(([name, { value }]) => (
        <li key={name}>
          {name} {value.home}:{value.away}
        </li>
      ))}
    </ul>
  );
}
