/** What Svelte's compiler makes of `$state` and `$effect` in a component. */

import * as svelte from "svelte/internal/client";

/** @param {string} first */
export function state(first) {
  const source = svelte.state(first);
  return {
    get value() {
      return svelte.get(source);
    },
    set value(/** @type {string} */ to) {
      svelte.set(source, to);
    },
  };
}

/** @param {() => void} run */
export const renderEffect = (run) => svelte.render_effect(run);
