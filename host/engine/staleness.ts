/** Looks for inputs that nothing has happened with for a week, a few consumers at a time, and puts them before a person. */
import { STALE_MS, stale, type StaleInput } from "../core/acknowledge.ts";
import type { EpochMs, HandlerId } from "../core/ids.ts";
import type { Tidy } from "./janitor.ts";
import type { Parts } from "./parts.ts";

export type FindStale = (after: HandlerId, beforeMs: EpochMs) => { found: StaleInput[]; next?: HandlerId };

export function staleInputs({ store }: Pick<Parts, "store">, find: FindStale): Tidy {
  let after = 0;
  return async (nowMs) => {
    const { found, next } = find(after, nowMs - STALE_MS);
    for (const one of found)
      await store.apply(stale(one, store.newId(), nowMs), { level: "durable", fence: store.fence });
    after = next ?? 0;
    return next !== undefined;
  };
}
