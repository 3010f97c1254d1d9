import { Component, input } from "@angular/core";
import type { Series } from "diem-client";
import { injectEndpoint } from "diem-client/angular";

@Component({
  selector: "diem-load",
  template: `
    @if (load().data; as series) {
      <p [class]="load().live ? 'current' : 'stale'">{{ series.points.at(-1)?.value }} {{ series.unit }}</p>
    } @else {
      <p>…</p>
    }
  `,
})
export class LoadComponent {
  readonly zone = input("GR");
  readonly load = injectEndpoint<Series>(() => `/load/${this.zone()}`);
}
