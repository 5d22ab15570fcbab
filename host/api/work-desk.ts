/** What a person does with a workflow, its handlers and what came in: everything but deciding about one run. */
import type { Json } from "../core/workflow.ts";
import type { Kind } from "../core/run.ts";
import { formatId } from "../core/ids.ts";
import type { Deployed } from "../engine/deploys.ts";
import type { Decided } from "../engine/operator.ts";
import { preview, type Preview } from "../engine/previewing.ts";
import { type Acting, person } from "./open.ts";
import { missing, type Place } from "./place.ts";

export class WorkDesk {
  readonly #place: Place;

  constructor(place: Place) {
    this.#place = place;
  }

  get #operator() {
    return this.#place.open.engine.operator;
  }

  archive(workflow: string, acting: Acting = {}): Promise<Decided> {
    return this.#place.on(workflow, (id) => this.#operator.archive(id, person(acting)));
  }

  unarchive(workflow: string, acting: Acting = {}): Promise<Decided> {
    return this.#place.on(workflow, (id) => this.#operator.unarchive(id, person(acting)));
  }

  setMode(workflow: string, mode: "auto" | "step", acting: Acting = {}): Promise<Decided> {
    return this.#place.on(workflow, (id) => this.#operator.setMode(id, mode, person(acting)));
  }

  step(workflow: string, acting: Acting = {}): Promise<Decided> {
    return this.#place.on(workflow, (id) => this.#operator.step(id, person(acting)));
  }

  orphans(
    workflow: string,
    consumer: string,
    action: "keep" | "skip" | { moveTo: string },
    acting: Acting = {},
  ): Promise<Decided> {
    return this.#place.on(workflow, (id) => this.#operator.orphans(id, consumer, action, person(acting)));
  }

  editState(
    workflow: string,
    handler: { name: string; kind?: Kind },
    state: Json,
    acting: Acting = {},
  ): Promise<Decided> {
    const text = state === null ? null : JSON.stringify(state);
    return this.#place.on(workflow, (id) => this.#operator.editState(id, handler, text, person(acting)));
  }

  /** Params and labels, all of them. */
  async configure(
    workflow: string,
    set: { params?: Record<string, Json>; labels?: Record<string, string> },
    acting: Acting = {},
  ): Promise<Deployed> {
    const id = await this.#place.workflow(workflow);
    if (id === undefined) return { ok: false, problems: [] };
    return this.#place.open.engine.deploys.configure(id, { ...set, ...person(acting) });
  }

  async skipDelivery(delivery: string, acting: Acting = {}): Promise<Decided> {
    const id = await this.#place.delivery(delivery);
    return id === undefined ? noDelivery(delivery) : this.#operator.skipDelivery(id, person(acting));
  }

  async requeue(
    delivery: string,
    { priorOutcome, ...acting }: Acting & { priorOutcome?: "not-applied" } = {},
  ): Promise<Decided> {
    const id = await this.#place.delivery(delivery);
    return id === undefined ? noDelivery(delivery) : this.#operator.requeue(id, person(acting), priorOutcome);
  }

  async reprocess(delivery: string, acting: Acting = {}): Promise<Decided> {
    const id = await this.#place.delivery(delivery);
    return id === undefined ? noDelivery(delivery) : this.#operator.reprocess(id, person(acting));
  }

  async skipInput(
    input: string,
    acting: Acting = {},
  ): Promise<Decided & { left?: { delivery: string; why: string }[] }> {
    const found = await this.#place.input(input);
    if (!found) return missing(`there is no input ${input}`);
    const { left = [], ...decided } = await this.#operator.skipInput(
      found.workflow,
      found.id,
      person(acting),
    );
    return {
      ...decided,
      left: left.map(({ delivery, why }) => ({ delivery: formatId("delivery", delivery), why })),
    };
  }

  /** What a consumer would do now, on what is really pending. */
  async preview(workflow: string, consumer: string): Promise<Preview | undefined> {
    const id = await this.#place.workflow(workflow);
    return id === undefined ? undefined : preview(this.#place.open.parts, id, consumer);
  }
}

const noDelivery = (delivery: string) => missing(`there is no delivery ${delivery}`);
