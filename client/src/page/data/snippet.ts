/** The code that shows an endpoint on a page of one's own. Pure. */

import type { Kind } from "./media.ts";
import { formOf } from "./media.ts";

/** Some ten lines for a page without a bundler; `sdk` is the path of the module. */
export function snippet(sdk: string, endpoint: string, kind: Kind = "series", mediaType = ""): string {
  const [parameters, body] = partsOf(kind, mediaType);
  const load = kind === "notice" ? "{\n  load: async (url) => (await fetch(url)).json(),\n}" : "";
  return `import { createDiem } from ${JSON.stringify(sdk)};

const diem = createDiem(${load});
diem.${kind === "collection" ? "watchCollection" : "watch"}(
  ${JSON.stringify(endpoint)},
  (${parameters}) => {
${body.map((line) => `    ${line}\n`).join("")}  },
  (problem) => console.warn(problem.message),
);
`;
}

/** What the function is called with, and what it does. */
function partsOf(kind: Kind, mediaType: string): [string, string[]] {
  if (kind === "series") return ["{ points, unit }", ["const last = points.at(-1);", "console.log(last?.time, last?.value, unit);"]];
  if (kind === "collection") {
    return ["{ members, added, removed, changed }", ["for (const [name, { value }] of members) console.log(name, value);", "console.log({ added, removed, changed });"]];
  }
  if (kind === "bytes" && formOf(mediaType) === "image") {
    return ["{ value, mediaType }", ["const blob = new Blob([value], { type: mediaType });", 'document.querySelector("img").src = URL.createObjectURL(blob);']];
  }
  return ["{ value, version }", ["console.log(version, value);"]];
}
