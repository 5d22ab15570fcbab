/** What happened, and what would: runs in full, journals, logs, versions, events, and the consequences of decisions. */
import type { Capability } from "../core/capability.ts";
import type { VersionRow } from "../core/change.ts";
import type { Consequences } from "../core/consequences.ts";
import { isUnknown } from "../core/mutation.ts";
import type { Decision } from "../core/resolve.ts";
import type { Decided } from "../engine/operator.ts";
import { questionOf } from "../engine/questions.ts";
import { canCheck, toolOf } from "../engine/tools.ts";
import type { Grant } from "../ports/connections.ts";
import type {
  AuditRecord,
  EventFilter,
  EventRecord,
  HandlerRecord,
  InputDetail,
  JournalRecord,
  LogRecord,
  Page,
  PageRequest,
  RunRecord,
  SlotRecord,
  TopicRecord,
  VersionRecord,
} from "../ports/records.ts";
import { type Acting, person } from "./open.ts";
import { missing, type Place } from "./place.ts";

const EMPTY = { items: [] };
const NOTHING = { connections: {}, consumers: {} };

export interface Questions {
  /** Of the oldest that is open. */
  first?: string;
  count: number;
}

export class HistoryDesk {
  readonly #place: Place;

  constructor(place: Place) {
    this.#place = place;
  }

  async journal(run: string, page: PageRequest): Promise<Page<JournalRecord>> {
    const { namespace, id } = await this.#run(run);
    return id === undefined || namespace === undefined ? EMPTY : this.#records.journal(namespace, id, page);
  }

  async logs(run: string, page: PageRequest): Promise<Page<LogRecord>> {
    const { namespace, id } = await this.#run(run);
    return id === undefined || namespace === undefined ? EMPTY : this.#records.logs(namespace, id, page);
  }

  /** In words and rows, without doing it. */
  async consequences(run: string, decision: Decision, acting: Acting = {}): Promise<Consequences | Decided> {
    const { id } = await this.#run(run);
    if (id === undefined) return missing(`there is no run ${run}`);
    return this.#place.open.engine.operator.consequences(id, decision, person(acting));
  }

  /** Whether somebody could ask the outside what became of a run's change. */
  async canCheck({ run, mutation }: Pick<RunRecord, "run" | "mutation">): Promise<boolean> {
    if (!mutation || !isUnknown(mutation.status)) return false;
    const { parts } = this.#place.open;
    const facts = await parts.store.run(run.id);
    if (!facts?.mutation) return false;
    return canCheck(await toolOf(parts, facts, facts.mutation), facts.mutation, parts.clock.nowMs());
  }

  async versions(workflow: string, page: PageRequest): Promise<Page<VersionRecord>> {
    const [namespace, id] = await this.#workflow(workflow);
    return id === undefined || namespace === undefined ? EMPTY : this.#records.versions(namespace, id, page);
  }

  async version(workflow: string, number: number): Promise<VersionRow | undefined> {
    const [, id] = await this.#workflow(workflow);
    return id === undefined ? undefined : this.#place.open.parts.store.version(id, number);
  }

  /** What one version can change outside that the other cannot. */
  async adds(workflow: string, version: number, than: number): Promise<Capability[]> {
    const [, id] = await this.#workflow(workflow);
    if (id === undefined) return [];
    return (await this.#place.open.engine.deploys.adds(id, version, than)) ?? [];
  }

  async manifest(workflow: string): Promise<Partial<VersionRow["manifest"]> & typeof NOTHING> {
    const [, id] = await this.#workflow(workflow);
    const { store, scripts } = this.#place.open.parts;
    const facts = id === undefined ? undefined : await store.workflow(id);
    if (!facts || facts.activeVersion === 0) return NOTHING;
    return (await scripts.script(facts.id, facts.activeVersion)).manifest;
  }

  async handlers(workflow: string): Promise<HandlerRecord[]> {
    const [namespace, id] = await this.#workflow(workflow);
    return id === undefined || namespace === undefined ? [] : this.#records.handlers(namespace, id);
  }

  async slots(workflow: string, handler: string, page: PageRequest): Promise<Page<SlotRecord> | undefined> {
    const namespace = await this.#place.namespace();
    const found = await this.#place.handler(workflow, handler, "producer");
    return found && namespace !== undefined ? this.#records.slots(namespace, found.id, page) : undefined;
  }

  async topics(workflow: string): Promise<TopicRecord[]> {
    const [namespace, id] = await this.#workflow(workflow);
    return id === undefined || namespace === undefined ? [] : this.#records.topics(namespace, id);
  }

  async events(
    workflow: string,
    topic: string,
    filter: EventFilter,
    page: PageRequest,
  ): Promise<Page<EventRecord>> {
    const [namespace, id] = await this.#workflow(workflow);
    if (id === undefined || namespace === undefined) return EMPTY;
    return this.#records.events(namespace, id, topic, filter, page);
  }

  async input(input: string): Promise<InputDetail | undefined> {
    const [namespace, found] = [await this.#place.namespace(), await this.#place.input(input)];
    return found && namespace !== undefined ? this.#records.input(namespace, found.id) : undefined;
  }

  async grants(workflow: string): Promise<(Grant & { name: string })[]> {
    const { outside } = this.#place.open.parts;
    const [namespace, id] = await this.#workflow(workflow);
    if (!outside || id === undefined || namespace === undefined) return [];
    const names = new Map((await outside.connections.list(namespace)).map((one) => [one.id, one.name]));
    const grants = await outside.connections.grants(id);
    return grants.map((one) => ({ ...one, name: names.get(one.connection) ?? "" }));
  }

  async questions(workflow: string): Promise<Questions> {
    const [, id] = await this.#workflow(workflow);
    const open = id === undefined ? [] : await this.#records.questions(id);
    const [oldest] = open;
    if (!oldest) return { count: 0 };
    return { first: (await questionOf(this.#place.open.parts, oldest)).question, count: open.length };
  }

  async staleInputs(workflow: string): Promise<number> {
    const [, id] = await this.#workflow(workflow);
    return id === undefined ? 0 : this.#records.staleInputs(id);
  }

  async audit(page: PageRequest): Promise<Page<AuditRecord>> {
    const namespace = await this.#place.namespace();
    return namespace === undefined ? EMPTY : this.#records.audit(namespace, page);
  }

  get #records() {
    return this.#place.open.records;
  }

  async #workflow(name: string) {
    return [await this.#place.namespace(), await this.#place.workflow(name)] as const;
  }

  async #run(run: string) {
    return { namespace: await this.#place.namespace(), id: await this.#place.run(run) };
  }
}
