/** Timing and its summary. */
export interface Sample {
  perSecond: number;
  meanMs: number;
  p50Ms: number;
  p99Ms: number;
  runs: number;
}

/** Runs it for so long, `clients` at a time, one after another in each. */
export async function sample(
  run: (client: number) => Promise<unknown>,
  forMs: number,
  clients = 1,
): Promise<Sample> {
  const took: number[] = [];
  const startMs = performance.now();
  const client = async (id: number): Promise<void> => {
    do {
      const at = performance.now();
      await run(id);
      took.push(performance.now() - at);
    } while (performance.now() - startMs < forMs);
  };
  await Promise.all(Array.from({ length: clients }, (_, id) => client(id)));
  const allMs = performance.now() - startMs;
  took.sort((a, b) => a - b);
  return {
    perSecond: (took.length / allMs) * 1000,
    meanMs: took.reduce((sum, ms) => sum + ms, 0) / took.length,
    p50Ms: quantile(took, 0.5),
    p99Ms: quantile(took, 0.99),
    runs: took.length,
  };
}

export function quantile(sorted: number[], q: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

export function median(values: number[]): number {
  return quantile(
    values.toSorted((a, b) => a - b),
    0.5,
  );
}

/** The figure in the middle, and the lowest and highest beside it. */
export function spread(values: number[], digits: number): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return `${median(values).toFixed(digits)} (${low.toFixed(digits)}–${high.toFixed(digits)})`;
}

/** A named ratio with its bound; judged by the median of the repeats. */
export interface Claim {
  name: string;
  values: number[];
  bound: number;
  atMost: boolean;
}

export function holds({ values, bound, atMost }: Claim): boolean {
  return atMost ? median(values) <= bound : median(values) >= bound;
}
