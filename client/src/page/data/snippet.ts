/** The code that shows an endpoint on a page of one's own. Pure. */

/** Ten lines for a page without a bundler; `sdk` is the path of the module. */
export function snippet(sdk: string, endpoint: string): string {
  return `import { createDiem } from ${JSON.stringify(sdk)};

const diem = createDiem();
diem.watch(
  ${JSON.stringify(endpoint)},
  ({ points, unit }) => {
    const last = points.at(-1);
    console.log(last?.time, last?.value, unit);
  },
  (problem) => console.warn(problem.message),
);
`;
}
