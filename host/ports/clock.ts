/** Time and chance, injected everywhere: the engine reads neither by itself, so that a simulation can replay it. */
import type { EpochMs } from "../core/ids.ts";

export interface Clock {
  /** Wall time, UTC. May jump. */
  nowMs(): EpochMs;
  /** Never goes back; for durations only. */
  monotonicMs(): number;
  /** Calls `wake` once, at or after `atMs` of wall time. Returns how to forget it. */
  at(atMs: EpochMs, wake: () => void): () => void;
  /** In [0, 1). */
  chance(): number;
}
