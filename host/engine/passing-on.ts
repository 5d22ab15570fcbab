/**
 * An event for another workflow of the same namespace: what the `workflow` connector does (06). It stays within the host,
 * but it is an outside change of the workflow that asks: recorded, granted and looked up like any other.
 *
 * G1. Hops are carried on, so that a circle over workflows ends (02 §1.13).
 * G2. Which workflow is meant is looked up in the asker's namespace alone; nothing is made by naming it.
 * G3. Found means: an event with this messageId and this payload. With another payload, nobody can tell who was last.
 */
import { publishProblem } from "../core/event.ts";
import type { WorkflowId } from "../core/ids.ts";
import { canonical } from "../core/intent.ts";
import type { Json } from "../core/workflow.ts";
import type { Origin, Passed, PassedEvent, Siblings } from "../ports/siblings.ts";
import { feed } from "./feed.ts";
import type { Parts } from "./parts.ts";

export class PassingOn {
  readonly #parts: Pick<Parts, "store" | "clock" | "scripts">;
  readonly #siblings: Siblings;
  readonly #poke: () => void;

  constructor(parts: Pick<Parts, "store" | "clock" | "scripts">, siblings: Siblings, poke: () => void) {
    this.#parts = parts;
    this.#siblings = siblings;
    this.#poke = poke;
  }

  async publish(from: Origin, event: PassedEvent): Promise<Passed> {
    const target = await this.#siblings.sibling(from.workflow, event.workflow); // (G2)
    if (target === undefined) return nobody(event);
    const hops = from.hops + 1; // (G1)
    const loop = publishProblem(1, hops, { maxHops: from.maxHops, maxPublishes: 1 });
    if (loop) return { ok: false, why: "loop", message: loop.message };
    const { topic, messageId, payload } = event;
    const fed = await feed(this.#parts, target, { topic, messageId, payload: JSON.stringify(payload), hops });
    if (!fed.ok) {
      if (fed.code === "not_found" || fed.code === "archived") return nobody(event);
      const message = `${event.workflow}: ${fed.message}`;
      return { ok: false, why: fed.code === "changed" ? "busy" : "refused", message };
    }
    this.#poke();
    return { ok: true, outcome: fed.event.outcome };
  }

  /** (G3) */
  async find(from: WorkflowId, event: PassedEvent): Promise<"there" | "not there" | "other"> {
    const target = await this.#siblings.sibling(from, event.workflow);
    if (target === undefined) return "not there";
    const found = await this.#siblings.payload(target, event.topic, event.messageId);
    if (!found) return "not there";
    if (found.payload === null) return "other";
    return canonical(JSON.parse(found.payload) as Json) === canonical(event.payload) ? "there" : "other";
  }
}

const nobody = ({ workflow }: PassedEvent): Passed => ({
  ok: false,
  why: "nobody",
  message: `there is no workflow ${workflow} in this namespace that takes events`,
});
