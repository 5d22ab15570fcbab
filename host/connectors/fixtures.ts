/**
 * A world made of the fixtures beside the scripts: for `pawl dev` and for as long as no connector is configured. Reads
 * are answered from a handler's `answers`, over and over; an outside change is never made and gets the fixture's
 * `outcome`. What a fixture does not answer is said so, with the place to write it.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import type { WorkflowId } from "../core/ids.ts";
import type { Json } from "../core/workflow.ts";
import type {
  CheckAnswer,
  ReadAnswer,
  RecordedCall,
  SendAnswer,
  Tool,
  ToolCall,
  ToolFailure,
  World,
} from "../ports/connector.ts";

const event = z.object({ messageId: z.string(), payload: z.json(), publishedAt: z.string().optional() });
const outcome = z.looseObject({
  status: z.enum(["applied", "skipped", "none", "failed", "unknown"]),
  result: z.json().optional(),
});

export const fixtureShape = z.object({
  now: z.iso.datetime().optional(),
  params: z.record(z.string(), z.json()).optional(),
  handlers: z.record(
    z.string(),
    z.object({
      state: z.json().optional(),
      pending: z.record(z.string(), z.array(event)).optional(),
      answers: z.array(z.object({ call: z.string(), result: z.json() })).optional(),
      outcome: outcome.optional(),
      expect: z.json().optional(),
    }),
  ),
});
export type Fixture = z.infer<typeof fixtureShape>;

/** Tools of the connectors to come that change something; every other name reads. */
const CHANGING = ["post", "put", "patch", "delete", "send", "write", "append", "publish"];
const EMPTY = '{"status":200,"headers":{},"body":{}}';

export class FixtureWorld implements World {
  readonly #fixtures = new Map<string, Fixture>();
  readonly #running = new Map<WorkflowId, { workflow: string; handler: string }>();
  /** How far each handler has come in its answers. */
  readonly #positions = new Map<string, number>();

  /** The fixture of a workflow from now on. */
  use(workflow: string, fixture: Fixture): void {
    this.#fixtures.set(workflow, fixture);
  }

  paramsOf(workflow: string): Record<string, Json> {
    return this.#fixtures.get(workflow)?.params ?? {};
  }

  /** A run begins; a workflow has one at a time, so its calls until the next are this handler's. */
  begin(id: WorkflowId, workflow: string, handler: string): void {
    this.#running.set(id, { workflow, handler });
  }

  async tool({ alias, tool }: Pick<ToolCall, "alias" | "tool">): Promise<Tool | ToolFailure> {
    return {
      kind: CHANGING.includes(tool) ? "mutation" : "read",
      connection: `fixture:${alias}`,
      configVersion: 1,
      grant: "allow",
      proof: "lookup",
      canCheck: true,
      settleMs: 0,
    };
  }

  async describe({ alias, tool }: ToolCall): Promise<string> {
    return `${alias}.${tool} (answered by the fixture)`;
  }

  async fingerprint({ alias, tool, args }: RecordedCall): Promise<string> {
    return createHash("sha256").update(`${alias}.${tool} ${args}`).digest("base64url");
  }

  async read(call: ToolCall): Promise<ReadAnswer> {
    const name = `${call.alias}.${call.tool}`;
    const running = this.#running.get(call.workflow);
    const key = `${running?.workflow}/${running?.handler}`;
    const answers = this.#handler(call.workflow)?.answers ?? [];
    const from = this.#positions.get(key) ?? 0;
    for (let step = 0; step < answers.length; step++) {
      const at = (from + step) % answers.length;
      if (answers[at]?.call !== name) continue;
      this.#positions.set(key, at + 1);
      return { ok: true, value: JSON.stringify(answers[at].result) };
    }
    const place = `handlers.${running?.handler ?? "…"}.answers of ${running?.workflow ?? "…"}.fixture.json`;
    return {
      ok: false,
      class: "precondition",
      code: "no-answer",
      message: `nothing answers ${name}: add it to ${place}`,
    };
  }

  async send(call: RecordedCall): Promise<SendAnswer> {
    const given = this.#handler(call.workflow)?.outcome;
    const name = `${call.alias}.${call.tool}`;
    if (given?.status === "failed" || given?.status === "unknown") {
      const message =
        typeof given["message"] === "string" ? given["message"] : `${name}: the fixture says ${given.status}`;
      return {
        outcome: given.status,
        class: "transient",
        code: "fixture",
        message,
        raw: JSON.stringify(given),
      };
    }
    const result = given?.result === undefined ? EMPTY : JSON.stringify(given.result);
    return { outcome: "applied", result, raw: result };
  }

  async check(): Promise<CheckAnswer> {
    return { says: "unsure" };
  }

  #handler(id: WorkflowId): Fixture["handlers"][string] | undefined {
    const running = this.#running.get(id);
    return running && this.#fixtures.get(running.workflow)?.handlers[running.handler];
  }
}
