/** How often each script version took its process down lately. Forgets by itself. */
const DEATHS = 3;
const WINDOW_MS = 600_000;

export class DeathBudget {
  readonly #deaths = new Map<string, number[]>();

  record(key: string): void {
    this.#deaths.set(key, [...this.#recent(key), performance.now()]);
  }

  spent(key: string): boolean {
    return this.#deaths.size > 0 && this.#recent(key).length >= DEATHS;
  }

  /** Drops what no longer counts. */
  sweep(): void {
    for (const key of this.#deaths.keys()) if (this.#recent(key).length === 0) this.#deaths.delete(key);
  }

  #recent(key: string): number[] {
    const now = performance.now();
    return (this.#deaths.get(key) ?? []).filter((at) => now - at < WINDOW_MS);
  }
}
