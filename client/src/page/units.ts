/** The unit of a picture, and its parts that are left out because they have another one. Pure. */

import { unit as written } from "./format.ts";

export interface Part {
  readonly name: string;
  readonly unit: string;
}

export interface Agreed {
  /** By the data; "" while there is none. */
  readonly unit: string;
  /** The parts with another unit. */
  readonly odd: readonly Part[];
}

/** The unit of most parts; of equally frequent ones the first. */
export function agreed(parts: readonly Part[]): Agreed {
  const counts = new Map<string, number>();
  for (const { unit } of parts) counts.set(unit, (counts.get(unit) ?? 0) + 1);
  const [unit = ""] = [...counts].sort(([, a], [, b]) => b - a)[0] ?? [];
  return { unit, odd: parts.filter((part) => part.unit !== unit) };
}

/** More are counted, not named. */
const NAMED = 4;

export interface LeftOut {
  /** The unit of the picture; null where its parts need not agree. */
  readonly unit: string | null;
  readonly odd: readonly Part[];
}

/** "Left out: Solar (GWh), Gas (kW) and 3 more, not in MW"; "" when nothing is. */
export function leftOut({ unit, odd }: LeftOut): string {
  if (odd.length === 0) return "";
  const names = odd.slice(0, NAMED).map((part) => `${part.name} (${written(part.unit) || "no unit"})`);
  const more = odd.length > NAMED ? ` and ${odd.length - NAMED} more` : "";
  return `Left out: ${names.join(", ")}${more}${unit ? `, not in ${written(unit)}` : ""}`;
}

/** ", MW" after the title of a picture; "" while unknown. */
export const behind = (unit: string): string => (unit ? `, ${written(unit)}` : "");

const SPOKEN: Record<string, string> = {
  kW: "kilowatts", MW: "megawatts", GW: "gigawatts", kWh: "kilowatt-hours", MWh: "megawatt-hours", GWh: "gigawatt-hours",
  "EUR/MWh": "euro per megawatt-hour",
};

/** ", in megawatts" for assistive technology; "" while unknown. */
export const aloud = (unit: string): string => (unit ? `, in ${SPOKEN[unit] ?? written(unit)}` : "");
