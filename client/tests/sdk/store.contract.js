/**
 * What every store of datasets does, as plain JavaScript: Vitest runs it on the store of the tests and on IndexedDB of a
 * library, and tests/e2e/test_sdk_cache.py in a browser. `tabs` gives two stores of one origin with nothing in it.
 *
 * @typedef {import("../../src/sdk/store.ts").Store} Store
 * @typedef {import("../../src/sdk/store.ts").Stored} Stored
 */

const MANY = { entries: 100, chars: 10_000 };

/** @returns {Stored} */
const entry = (/** @type {string} */ endpoint, /** @type {number} */ used, version = 1, text = "x".repeat(10)) => ({
  endpoint, version, etag: null, used, text,
});

/** @returns {Promise<string[]>} */
const names = async (/** @type {Store} */ store) => (await store.load()).map(({ endpoint }) => endpoint);

/** @type {Record<string, { run: (tabs: () => [Store, Store] | Promise<[Store, Store]>) => Promise<unknown>, expected: unknown }>} */
export const CONTRACT = {
  "it starts with nothing": {
    run: async (tabs) => (await tabs())[0].load(),
    expected: [],
  },
  "it gives the other tab what was saved, used longest ago first": {
    run: async (tabs) => {
      const [one, two] = await tabs();
      await one.save([entry("/new", 20), entry("/old", 10)], MANY);
      return two.load();
    },
    expected: [entry("/old", 10), entry("/new", 20)],
  },
  "it keeps the newer version, whichever tab saves last": {
    run: async (tabs) => {
      const [one, two] = await tabs();
      const saves = [one.save([entry("/a", 1, 7)], MANY), two.save([entry("/a", 2, 6)], MANY), one.save([entry("/a", 3, 5)], MANY)];
      await Promise.all(saves);
      return two.load();
    },
    expected: [entry("/a", 1, 7)],
  },
  "it takes the same version again, as used later": {
    run: async (tabs) => {
      const [one, two] = await tabs();
      await one.save([entry("/a", 1), entry("/b", 2)], MANY);
      await two.save([entry("/a", 3)], MANY);
      return names(one);
    },
    expected: ["/b", "/a"],
  },
  "it drops what was used longest ago when there are too many": {
    run: async (tabs) => {
      const [one] = await tabs();
      await one.save([entry("/a", 1), entry("/b", 2), entry("/c", 3)], { entries: 2, chars: 1_000 });
      return names(one);
    },
    expected: ["/b", "/c"],
  },
  "it drops what was used longest ago when they are too large": {
    run: async (tabs) => {
      const [one, two] = await tabs();
      await one.save([entry("/b", 2), entry("/c", 3)], MANY);
      await two.save([entry("/d", 4), entry("/b", 5)], { entries: 10, chars: 29 });
      return names(one);
    },
    expected: ["/d", "/b"],
  },
  "bounds of nothing empty it": {
    run: async (tabs) => {
      const [one, two] = await tabs();
      await one.save([entry("/a", 1), entry("/b", 2)], MANY);
      await two.save([], { entries: 0, chars: 0 });
      return names(one);
    },
    expected: [],
  },
  "one that is too large goes alone": {
    run: async (tabs) => {
      const [one] = await tabs();
      await one.save([entry("/a", 1)], MANY);
      await one.save([entry("/large", 2, 1, "x".repeat(101))], { entries: 10, chars: 100 });
      return names(one);
    },
    expected: ["/a"],
  },
};
