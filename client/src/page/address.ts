/** The part of the page's address after the hash: the zone and the day shown, so that a link shows the same. Pure. */

export interface Place {
  readonly zone: string | null;
  /** "2026-11-21"; null: today. */
  readonly day: string | null;
}

/** Reads `#zone=GR&day=2026-11-21`; anything that is neither zone nor day is left out. */
export function readHash(hash: string): Place {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const zone = asked.get("zone");
  const day = asked.get("day");
  return { zone: zone && /^[\w-]{1,64}$/.test(zone) ? zone : null, day: day && isDay(day) ? day : null };
}

/** The hash for a place; "" for the default one. */
export function writeHash({ zone, day }: Place): string {
  const parts = [...(zone ? [`zone=${zone}`] : []), ...(day ? [`day=${day}`] : [])];
  return parts.length > 0 ? `#${parts.join("&")}` : "";
}

function isDay(text: string): boolean {
  const date = /^\d{4}-\d\d-\d\d$/.test(text) ? new Date(`${text}T00:00:00Z`) : new Date(NaN);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text); // 2026-02-30 is not a date
}
