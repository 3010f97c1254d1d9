import { Component } from "@angular/core";
import { injectConnection } from "diem-client/angular";
import { LoadComponent } from "./load.component";
import { ScoresComponent } from "./scores.component";

@Component({
  selector: "diem-app",
  imports: [LoadComponent, ScoresComponent],
  template: `
    <diem-load zone="GR" />
    <diem-scores />
    <footer>{{ connection().state }} {{ connection().reason }}</footer>
  `,
})
export class AppComponent {
  readonly connection = injectConnection();
}
