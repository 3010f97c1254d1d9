import { bootstrapApplication } from "@angular/platform-browser";
import { provideDiem } from "diem-client/angular";
import { AppComponent } from "./app/app.component";

/** One connection for the whole application. */
const diem = provideDiem({ configUrl: "http://localhost:8080/config.json" });

bootstrapApplication(AppComponent, { providers: [diem] }).catch((error: unknown) => console.error(error));
