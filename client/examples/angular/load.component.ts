import { Component, inject } from "@angular/core";
import { DiemService } from "./diem.service";

@Component({
  selector: "diem-load",
  template: `
    @if (load(); as dataset) {
      <p [class.stale]="!live() || !dataset.confirmed">{{ dataset.points.at(-1)?.value }} {{ dataset.unit }}</p>
    } @else {
      <p>…</p>
    }
  `,
})
export class LoadComponent {
  readonly #diem = inject(DiemService);
  readonly load = this.#diem.dataset("/load/GR");
  readonly live = this.#diem.live;
}
