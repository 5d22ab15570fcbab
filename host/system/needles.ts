/**
 * Many texts looked for in one pass. Decides nothing about what they mean.
 *
 * L1. Time grows with the searched text and the logarithm of the number of needles, whatever either of them holds.
 * L2. At each place the longest needle is reported, or the part of one that is there when that is half of it at least.
 */

/** Every needle is at least this long. */
const HEAD = 4;
const SHORTEST_PART = 16;
/** More new needles than this, and sorting all of them is quicker than finding each its place. */
const FEW = 64;
const FILTER_BITS = 21;
const FILTER_MASK = 2 ** FILTER_BITS - 1;

export class Needles {
  /** How many want it. */
  readonly #counts = new Map<string, number>();
  #sorted: string[] = [];
  #added: string[] = [];
  /** One bit per hash of the first four characters: most places are passed over by looking at it alone. */
  #filter: Uint32Array | undefined;

  get isEmpty(): boolean {
    return this.#counts.size === 0;
  }

  add(needle: string): void {
    const count = this.#counts.get(needle) ?? 0;
    this.#counts.set(needle, count + 1);
    if (count > 0) return;
    this.#added.push(needle);
    this.#filter ??= new Uint32Array(2 ** (FILTER_BITS - 5));
    const hash = hashOf(needle, 0);
    this.#filter[hash >>> 5] = (this.#filter[hash >>> 5] as number) | (1 << (hash & 31));
  }

  remove(needle: string): void {
    const count = this.#counts.get(needle) ?? 0;
    if (count > 1) this.#counts.set(needle, count - 1);
    if (count !== 1) return;
    this.#counts.delete(needle);
    this.#arrange();
    this.#sorted.splice(this.#after(needle, 0, needle.length) - 1, 1);
  }

  find(text: string, found: (start: number, length: number) => void): void {
    const filter = this.#filter;
    if (!filter) return;
    this.#arrange();
    for (let at = 0; at <= text.length - HEAD; at++) {
      const hash = hashOf(text, at);
      if (((filter[hash >>> 5] as number) & (1 << (hash & 31))) === 0) continue;
      const length = this.#longestAt(text, at);
      if (length > 0) found(at, length);
    }
  }

  /** (L2) */
  #longestAt(text: string, at: number): number {
    let place = this.#after(text, at, text.length);
    let longest = partOf(this.#sorted[place], text, at);
    for (;;) {
      const before = this.#sorted[place - 1];
      if (before === undefined) return longest;
      const same = sameFor(before, text, at);
      if (same === before.length) return Math.max(longest, same);
      longest = Math.max(longest, partOf(before, text, at));
      if (same < HEAD) return longest;
      // A needle that is whole here begins like this neighbour, and is no longer than what both share.
      place = this.#after(text, at, at + same);
    }
  }

  /** How many needles come no later than `text` from `at` to `end`, in the order of their characters. */
  #after(text: string, at: number, end: number): number {
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const needle = this.#sorted[middle] as string;
      const same = Math.min(sameFor(needle, text, at), end - at);
      const isLater =
        same < needle.length && (at + same === end || needle.charCodeAt(same) > text.charCodeAt(at + same));
      if (isLater) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  #arrange(): void {
    if (this.#added.length === 0) return;
    const added = this.#added;
    this.#added = [];
    if (added.length > FEW) {
      this.#sorted = [...this.#sorted, ...added].sort((a, b) => (a < b ? -1 : 1));
      return;
    }
    for (const needle of added) this.#sorted.splice(this.#after(needle, 0, needle.length), 0, needle);
  }
}

function hashOf(text: string, at: number): number {
  const first = text.charCodeAt(at);
  const rest = (text.charCodeAt(at + 1) << 10) ^ (text.charCodeAt(at + 2) << 5) ^ text.charCodeAt(at + 3);
  return ((first << 15) ^ (first >>> 6) ^ rest) & FILTER_MASK;
}

function sameFor(needle: string, text: string, at: number): number {
  const most = Math.min(needle.length, text.length - at);
  let same = 0;
  while (same < most && needle.charCodeAt(same) === text.charCodeAt(at + same)) same++;
  return same;
}

function partOf(needle: string | undefined, text: string, at: number): number {
  if (needle === undefined) return 0;
  const same = sameFor(needle, text, at);
  return same >= SHORTEST_PART && same * 2 >= needle.length ? same : 0;
}
