/** The net flows between zones as a matrix. Pure. */

/** Flows by [from][to], as measured in one direction; all in one unit. */
export class Network {
  /** In the order of rows and columns. */
  readonly zones: readonly string[];
  readonly #borders = new Set<string>();
  readonly #flows = new Map<string, number | null>();

  constructor(pairs: readonly (readonly [string, string])[]) {
    this.zones = [...new Set(pairs.flat())].sort();
    for (const [from, to] of pairs) this.#borders.add(key(from, to)).add(key(to, from));
  }

  isBorder(from: string, to: string): boolean {
    return this.#borders.has(key(from, to));
  }

  set(from: string, to: string, value: number | null): void {
    this.#flows.set(key(from, to), value);
  }

  /** The net flow from one zone to another, negative for the other direction; null: unknown. */
  net(from: string, to: string): number | null {
    const there = this.#flows.get(key(from, to)) ?? null;
    const back = this.#flows.get(key(to, from)) ?? null;
    return there === null && back === null ? null : (there ?? 0) - (back ?? 0);
  }

  /** The net export of a zone over all borders; null: unknown. */
  position(zone: string): number | null {
    const flows = this.zones.flatMap((other) => this.net(zone, other) ?? []);
    return flows.length > 0 ? flows.reduce((sum, flow) => sum + flow, 0) : null;
  }

  /** The strongest flow over any border. */
  get strongest(): number {
    return Math.max(0, ...this.zones.flatMap((from) => this.zones.map((to) => Math.abs(this.net(from, to) ?? 0))));
  }
}

const key = (from: string, to: string): string => `${from}\n${to}`;

/** Colour level of a value relative to the strongest, 0 to 5; at least 1 unless it is zero. */
export function heat(value: number, strongest: number): number {
  return value === 0 || strongest <= 0 ? 0 : Math.min(5, Math.max(1, Math.ceil((Math.abs(value) / strongest) * 5)));
}

/** The cell that a key moves to from `[row, column]`, among those that `open` allows. Null: not a navigation key. */
export function moveTo(
  pressed: string,
  toEnd: boolean,
  [row, column]: readonly [number, number],
  [rows, columns]: readonly [number, number],
  open: (row: number, column: number) => boolean,
): [number, number] | null {
  const seek = (from: [number, number], by: [number, number]): [number, number] => {
    let [r, c] = from;
    for (; r >= 0 && r < rows && c >= 0 && c < columns; r += by[0], c += by[1]) if (open(r, c)) return [r, c];
    return [row, column];
  };
  switch (pressed) {
    case "ArrowRight": return seek([row, column + 1], [0, 1]);
    case "ArrowLeft": return seek([row, column - 1], [0, -1]);
    case "ArrowDown": return seek([row + 1, column], [1, 0]);
    case "ArrowUp": return seek([row - 1, column], [-1, 0]);
    case "Home": return seek([toEnd ? 0 : row, 0], [0, 1]);
    case "End": return seek([toEnd ? rows - 1 : row, columns - 1], [0, -1]);
    default: return null;
  }
}
