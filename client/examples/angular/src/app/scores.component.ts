import { Component } from "@angular/core";
import { injectCollection } from "diem-client/angular";

interface Score {
  home: number;
  away: number;
}

/** The scores of all games in `/game/`, each a JSON document. */
@Component({
  selector: "diem-scores",
  template: `
    <ul>
      @for (score of scores().members; track score[0]) {
        <li>{{ score[0] }} {{ score[1].value.home }}:{{ score[1].value.away }}</li>
      }
    </ul>
  `,
})
export class ScoresComponent {
  readonly scores = injectCollection<Score>("/game/");
}
