/** Waiting for something, but not for ever: by the injected clock, so that a simulation decides when time is up. */
import type { Clock } from "../ports/clock.ts";

export type Awaited<Result> = { inTime: true; result: Result } | { inTime: false };

/** The host's maximum, for what a policy leaves open. */
const LONGEST_MS = 3_600_000;

export const msOf = (timeout: number | "infinity"): number => (timeout === "infinity" ? LONGEST_MS : timeout);

/** What comes first; the work itself goes on. Rejects if the work does, in time. */
export function within<Result>(clock: Clock, ms: number, work: Promise<Result>): Promise<Awaited<Result>> {
  return new Promise((resolve, reject) => {
    const forget = clock.at(clock.nowMs() + ms, () => resolve({ inTime: false }));
    work.then(
      (result) => {
        forget();
        resolve({ inTime: true, result });
      },
      (error: unknown) => {
        forget();
        reject(error as Error);
      },
    );
  });
}

/** Resolves after `ms`, or when `signal` says so. */
export function pause(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const stop = () => {
      forget();
      resolve();
    };
    const forget = clock.at(clock.nowMs() + ms, () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    });
    signal?.addEventListener("abort", stop, { once: true });
  });
}
