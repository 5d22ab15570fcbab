/**
 * An event for another workflow of the same namespace (06). Nothing leaves the host, so it can always be told whether it
 * happened; everything else is as with any outside change: granted, recorded, looked up.
 *
 * W1. Whatever is refused was not published: the event is written whole or not at all.
 * W2. The lookup is exact and never too early: the store is asked that would hold the event.
 */
import { z } from "zod";
import type { Origin, Passed, PassedEvent } from "../ports/siblings.ts";
import { NAME_PATTERN } from "../core/workflow.ts";
import {
  applied,
  type Connector,
  defineConnector,
  invalid,
  mutation,
  notApplied,
  precondition,
  transient,
  unknownOutcome,
  unsure,
} from "./define.ts";

const name = z.string().regex(NAME_PATTERN, "a name: begin with a letter, then letters, digits, _ . or -");
const input = z.strictObject({
  workflow: name,
  topic: name,
  messageId: z.string().min(1).max(512),
  payload: z.json(),
});
const output = z.strictObject({ messageId: z.string() });

/** How the host takes an event over, and finds it again. */
export interface Passing {
  publish: (from: Origin, event: PassedEvent) => Promise<Passed>;
  find: (from: Origin["workflow"], event: PassedEvent) => Promise<"there" | "not there" | "other">;
}

export function workflowConnector({ publish, find }: Passing): Connector {
  return defineConnector({
    name: "workflow",
    config: z.strictObject({}),
    secrets: z.strictObject({}),
    check: async () => ({ status: "ok" as const }),
    tools: {
      publish: mutation({
        input,
        output,
        describe: (event) =>
          `Publish ${event.messageId} on ${event.topic} of the workflow ${event.workflow}: ${JSON.stringify(event.payload)}`,
        proof: "lookup",
        settleMs: 0, // (W2)
        run: async (_, event, { origin }) => {
          const passed = await publish(origin, event).catch((error: unknown) => {
            // The store has stopped, before the write or after it: the next life looks.
            throw unknownOutcome(`nobody can tell whether it was written: ${String(error)}`);
          });
          if (passed.ok) return { messageId: event.messageId };
          throw REFUSALS[passed.why](passed.message); // (W1)
        },
        reconcile: async (_, event, { origin }) => {
          const found = await find(origin.workflow, event);
          if (found === "there") return applied({ messageId: event.messageId });
          return found === "not there" ? notApplied() : unsure("the event has another payload by now");
        },
      }),
    },
  });
}

const REFUSALS: Record<Extract<Passed, { ok: false }>["why"], (message: string) => Error> = {
  nobody: precondition,
  refused: invalid,
  loop: (message) => invalid(message, { code: "loop" }),
  busy: transient,
};
