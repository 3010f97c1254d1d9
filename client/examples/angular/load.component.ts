import { Component } from "@angular/core";
import type { Series } from "diem-client";
import { injectEndpoint } from "diem-client/angular";

@Component({
  selector: "diem-load",
  template: `
    @if (load().data; as series) {
      <p [class.stale]="!load().live">{{ series.points.at(-1)?.value }} {{ series.unit }}</p>
    } @else {
      <p>…</p>
    }
  `,
})
export class LoadComponent {
  readonly load = injectEndpoint<Series>("/load/GR");
}
