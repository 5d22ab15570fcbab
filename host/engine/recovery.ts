/**
 * What was active in a host that is gone → crashed, with its successor where the ledger demands one (02 §7). Runs before
 * anything is scheduled; doing it twice does nothing.
 */
import { recover } from "../core/recover.ts";
import type { Parts } from "./parts.ts";

const BATCH = 200;

/** How many runs were found. */
export async function recoverInterrupted(parts: Parts): Promise<number> {
  const { store, clock, world, fused } = parts;
  let found = 0;
  for (;;) {
    const runs = await store.interrupted(BATCH);
    if (runs.length === 0) return found;
    for (const id of runs) {
      const facts = await store.run(id);
      if (!facts) continue;
      const { mutation } = facts;
      const tool =
        mutation &&
        (await world.tool({ workflow: facts.workflow.id, alias: mutation.alias, tool: mutation.tool }));
      const change = recover(
        facts,
        {
          error: {
            class: "internal",
            code: "host-crashed",
            message: "the host ended while this run was active",
          },
          inbox: store.newId(),
          attempt: { id: store.newId(), host: store.fence.incarnation, fused },
          canCheck: tool !== undefined && "kind" in tool && tool.canCheck,
        },
        clock.nowMs(),
      );
      if (!change) continue;
      await store.apply(change, { level: "durable", fence: store.fence });
      found++;
    }
  }
}
