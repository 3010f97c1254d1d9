// @vitest-environment jsdom
/** The adapters of Vue, Svelte and Solid: a name may change, and a subscription ends with its component. */

import type { Diem } from "diem-client";
import { createDiem } from "diem-client";
import { useEndpoint as useSolid, DiemProvider } from "diem-client/solid";
import { provideDiem, useEndpoint as useSvelte } from "diem-client/svelte";
import { DIEM, useEndpoint as useVue } from "diem-client/vue";
import { createComponent, createEffect, createSignal } from "solid-js";
import { render } from "solid-js/web";
import { mount, unmount } from "svelte";
import { createApp, h, ref } from "vue";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeServer, eventually } from "./server.ts";
import { renderEffect, state } from "./runes.svelte.js";

interface Van {
  speed: number;
}

/** Displays the name's value in the element; `rename` changes the name. */
type Shown = { rename: (name: string) => void; end: () => void };

const FRAMEWORKS: Record<string, (diem: Diem, main: HTMLElement) => Shown> = {
  Vue: (diem, main) => {
    const name = ref("/vans/7");
    const app = createApp({
      setup() {
        const van = useVue<Van>(name);
        return () => h("p", `${van.value.data?.speed ?? "-"} ${van.value.live}`);
      },
    });
    app.provide(DIEM, diem).mount(main);
    return { rename: (to) => (name.value = to), end: () => app.unmount() };
  },
  Svelte: (diem, main) => {
    const name = state("/vans/7");
    const component = mount(() => {
      provideDiem(diem);
      const van = useSvelte<Van>(() => name.value);
      renderEffect(() => (main.textContent = `${van.current.data?.speed ?? "-"} ${van.current.live}`));
      return {};
    }, { target: main });
    return { rename: (to) => (name.value = to), end: () => void unmount(component) };
  },
  Solid: (diem, main) => {
    const [name, rename] = createSignal("/vans/7");
    const View = (): string => {
      const van = useSolid<Van>(name);
      createEffect(() => (main.textContent = `${van().data?.speed ?? "-"} ${van().live}`));
      return "";
    };
    return { rename, end: render(() => createComponent(DiemProvider, { diem, get children() { return createComponent(View, {}); } }), main) };
  },
};

let server: FakeServer;
let diem: Diem;

beforeEach(() => {
  server = new FakeServer().install();
  diem = createDiem();
  document.body.innerHTML = "<main></main>";
});

afterEach(() => {
  diem.close();
  vi.unstubAllGlobals();
});

const put = (name: string, version: number, speed: number): void => {
  server.contents.set(name, ["application/json", { speed }]);
  server.change(name, version);
};

test.each(Object.keys(FRAMEWORKS))("%s: shows each change, also of another name, and ends its subscription", async (framework) => {
  const main = document.querySelector("main") as HTMLElement;
  put("/vans/7", 1, 30);
  put("/vans/8", 2, 80);
  const { rename, end } = FRAMEWORKS[framework]!(diem, main);
  await eventually(() => expect(main.textContent).toBe("30 true"));
  put("/vans/7", 3, 31);
  await eventually(() => expect(main.textContent).toBe("31 true"));
  rename("/vans/8");
  await eventually(() => expect(main.textContent).toBe("80 true"));
  expect(server.subscribed).toEqual(["/vans/8"]);
  end();
  await eventually(() => expect(server.subscribed).toEqual([]));
});
