/**
 * What was active in a host that is gone → crashed, with its successor where the ledger demands one (02 §7). Runs before
 * anything is scheduled; doing it twice does nothing.
 */
import type { RunFacts } from "../core/facts.ts";
import type { RunId } from "../core/ids.ts";
import { recover } from "../core/recover.ts";
import type { RunError } from "../core/run.ts";
import type { Parts } from "./parts.ts";
import { canCheck, toolOf } from "./tools.ts";

const BATCH = 200;
const TRIES = 5;
const CRASHED: RunError = {
  class: "internal",
  code: "host-crashed",
  message: "the host ended while this run was active",
};

/** How many runs were found. */
export async function recoverInterrupted(parts: Parts): Promise<number> {
  const { store, tell, clock } = parts;
  let found = 0;
  for (;;) {
    const runs = await store.interrupted(BATCH);
    let recovered = 0;
    for (const id of runs) if (await recoverRun(parts, id)) recovered++;
    found += recovered;
    if (runs.length > 0 && recovered === 0)
      tell({
        kind: "engine.warning",
        message: `${runs.length} interrupted runs could not be recovered`,
        atMs: clock.nowMs(),
      });
    if (recovered === 0) return found;
  }
}

/** A person may act on the workflow in the same moment: then it is looked at anew. */
async function recoverRun(parts: Parts, id: RunId): Promise<boolean> {
  for (let tries = 0; tries < TRIES; tries++) {
    const facts = await parts.store.run(id);
    if (!facts) return false;
    if (await recoverOne(parts, facts)) return true;
  }
  return false;
}

async function recoverOne(parts: Parts, facts: RunFacts): Promise<boolean> {
  const { store, clock, fused, policies } = parts;
  const { mutation } = facts;
  const nowMs = clock.nowMs();
  const tool = mutation && (await toolOf(parts, facts, mutation));
  const policy = policies.recorded(facts);
  const change = recover(
    facts,
    {
      error: CRASHED,
      inbox: store.newId(),
      attempt: {
        id: store.newId(),
        host: store.fence.incarnation,
        fused,
        ...(policy === undefined ? {} : { policy }),
      },
      canCheck: mutation !== undefined && tool !== undefined && canCheck(tool, mutation, nowMs),
    },
    nowMs,
  );
  if (!change) return false;
  return (await store.apply(change, { level: "durable", fence: store.fence })).ok;
}
