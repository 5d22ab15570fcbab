/**
 * One namespace of a running host: what a name or a public id stands for in it.
 *
 * L1. What belongs to another namespace does not exist.
 */
import type { HandlerFacts } from "../core/facts.ts";
import {
  type DeliveryId,
  type InputId,
  type NamespaceId,
  parseId,
  type RunId,
  type WorkflowId,
} from "../core/ids.ts";
import type { Kind } from "../core/run.ts";
import type { Decided } from "../engine/operator.ts";
import type { Open } from "./open.ts";

export class Place {
  readonly name: string;
  readonly #open: () => Open;

  constructor(name: string, open: () => Open) {
    this.name = name;
    this.#open = open;
  }

  get open(): Open {
    return this.#open();
  }

  namespace(): Promise<NamespaceId | undefined> {
    return this.open.records.namespace(this.name);
  }

  async workflow(name: string): Promise<WorkflowId | undefined> {
    const namespace = await this.namespace();
    return namespace === undefined ? undefined : this.open.records.workflowNamed(namespace, name);
  }

  async handler(workflow: string, name: string, kind?: Kind): Promise<HandlerFacts | undefined> {
    const id = await this.workflow(workflow);
    const facts = id === undefined ? undefined : await this.open.parts.store.workflow(id);
    return facts?.handlers.find((one) => one.name === name && (kind === undefined || one.kind === kind));
  }

  /** (L1) */
  async run(run: string): Promise<RunId | undefined> {
    const id = parseId("run", run);
    const facts = id === undefined ? undefined : await this.open.parts.store.run(id);
    return facts && facts.workflow.namespace === (await this.namespace()) ? id : undefined;
  }

  /** (L1) */
  async delivery(delivery: string): Promise<DeliveryId | undefined> {
    const id = parseId("delivery", delivery);
    const facts = id === undefined ? undefined : await this.open.parts.store.delivery(id);
    return facts && facts.workflow.namespace === (await this.namespace()) ? id : undefined;
  }

  /** (L1) */
  async input(input: string): Promise<{ id: InputId; workflow: WorkflowId } | undefined> {
    const [namespace, id] = [await this.namespace(), parseId("input", input)];
    const found =
      namespace === undefined || id === undefined ? undefined : await this.open.records.input(namespace, id);
    return found && { id: found.id, workflow: found.workflow };
  }

  /** On a workflow by its name. */
  async on(workflow: string, act: (id: WorkflowId) => Promise<Decided>): Promise<Decided> {
    const id = await this.workflow(workflow);
    return id === undefined ? missing(`there is no workflow ${workflow}`) : act(id);
  }
}

export const missing = (message: string) => ({ ok: false, code: "not_found", message }) as const;
