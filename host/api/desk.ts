/**
 * Everything a client may ask of one namespace, by names and public ids: the library is a desk, and so is whatever speaks
 * HTTP. Looks things up, hands over to the engine, and says what came of it; decides nothing.
 *
 * D1. What belongs to another namespace does not exist.
 * D2. An unknown name or id is an answer, not a throw.
 */
import type { Decision } from "../core/resolve.ts";
import { formatId, type NamespaceId, parseId, type RunId, type WorkflowId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import type { Json } from "../core/workflow.ts";
import type { Binding, GivenAccess } from "../engine/access.ts";
import { type Deployed, problem } from "../engine/deploys.ts";
import { feedAll } from "../engine/feed.ts";
import type { HookAnswer } from "../engine/hooks.ts";
import type { Decided, Expectation } from "../engine/operator.ts";
import type { HookRequest } from "../ports/hooks.ts";
import type {
  InputRecord,
  OutputRecord,
  Page,
  PageRequest,
  Records,
  RunDetail,
  RunFilter,
  RunRecord,
  WorkflowRecord,
} from "../ports/records.ts";
import type { Compilation } from "../ports/sandbox.ts";
import { type Bulk, BulkDesk } from "./bulk-desk.ts";
import { ConnectionsDesk } from "./connections-desk.ts";
import { HistoryDesk } from "./history-desk.ts";
import { InboxDesk } from "./inbox-desk.ts";
import { type Acting, type Open, person } from "./open.ts";
import { Place } from "./place.ts";
import { RulesDesk } from "./rules-desk.ts";
import { WorkDesk } from "./work-desk.ts";

const DAY_MS = 86_400_000;

export interface ScriptUpload extends Acting, GivenAccess {
  source: string;
  file?: string;
  language?: "ts" | "js";
  /** The name it is deployed under; without it, the script's own. */
  name?: string;
  sourceMap?: string;
  orphans?: "keep" | "skip" | { moveTo: string };
  params?: Record<string, Json>;
  labels?: Record<string, string>;
  /** `false`: a new version is stored, and the active one goes on. */
  activate?: boolean;
}

export interface GivenEvent {
  topic: string;
  messageId: string;
  payload: Json;
  /** For an input of its own, under this title. */
  title?: string;
}

export interface PublishedEvent {
  outcome: "created" | "updated" | "unchanged";
  event: string;
  /** Deliveries that a run works on: they keep the payload they were reserved with. */
  late: number;
}

type PublishRefused = { ok: false; code: string; message: string };
export type PublishAnswer = ({ ok: true } & PublishedEvent) | PublishRefused;
export type PublishAllAnswer = { ok: true; events: PublishedEvent[] } | (PublishRefused & { at?: number });

export class Desk {
  readonly name: string;
  readonly connections: ConnectionsDesk;
  readonly inbox: InboxDesk;
  /** Workflows, handlers and what came in, as a person moves them. */
  readonly work: WorkDesk;
  readonly history: HistoryDesk;
  readonly rules: RulesDesk;
  readonly bulk: BulkDesk;
  readonly place: Place;
  readonly #open: () => Open;

  /** `begun`: the bulk decisions of a host, which its desks share. */
  constructor(name: string, open: () => Open, begun: Map<string, Bulk> = new Map()) {
    this.name = name;
    this.#open = open;
    this.connections = new ConnectionsDesk(name, open);
    this.inbox = new InboxDesk(name, open);
    this.place = new Place(name, open);
    this.work = new WorkDesk(this.place);
    this.history = new HistoryDesk(this.place);
    this.rules = new RulesDesk(this.place);
    this.bulk = new BulkDesk(this.place, begun);
  }

  async deploy(upload: ScriptUpload): Promise<Deployed & { name: string }> {
    const { engine } = this.#open();
    const { source, file = "script.ts", language = "ts", sourceMap } = upload;
    const {
      by = "library",
      name: asked,
      source: _,
      file: __,
      language: ___,
      sourceMap: ____,
      ...terms
    } = upload;
    const given = { source, file, language, ...(sourceMap === undefined ? {} : { sourceMap }) };
    let name = asked;
    if (name === undefined) {
      const compiled = await this.check(given);
      if (!compiled.ok) return { ok: false, problems: compiled.problems, name: "" };
      name = compiled.script.workflow;
    }
    const made = await engine.deploys.deploy({ ...terms, by, namespace: this.name, name, upload: given });
    engine.poke();
    return { ...made, name };
  }

  /** What an upload of this source would say. */
  check(upload: Pick<ScriptUpload, "source" | "file" | "language">): Promise<Compilation> {
    const { source, file = "script.ts", language = "ts" } = upload;
    const { compile, parts } = this.#open();
    return compile({ source, file, language, nowMs: parts.clock.nowMs() });
  }

  /** A version that is stored becomes the active one: forward, or back. */
  async activate(workflow: string, version: number, acting: Acting = {}): Promise<Deployed> {
    const id = await this.#id(workflow);
    if (id === undefined) return noWorkflow(workflow);
    return this.#open().engine.deploys.activate({ workflow: id, version, ...person(acting) });
  }

  /** A person agrees to what a version may do beyond the active one: this is its deploy. */
  async consent(workflow: string, version: number, acting: Acting = {}): Promise<Deployed> {
    const id = await this.#id(workflow);
    if (id === undefined) return noWorkflow(workflow);
    return this.#open().engine.deploys.consent({ workflow: id, version, ...person(acting) });
  }

  async bindings(workflow: string): Promise<Binding[]> {
    const id = await this.#id(workflow);
    return id === undefined ? [] : this.#open().engine.access.bindings(id);
  }

  /** Alias → name of a connection; a run that waits for one goes on. */
  bind(workflow: string, bindings: Record<string, string>, acting: Acting = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open().engine.access.set(id, { bindings }, person(acting)));
  }

  grant(workflow: string, grants: GivenAccess["grants"] & object, acting: Acting = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open().engine.access.set(id, { grants }, person(acting)));
  }

  runNow(workflow: string, { handler, ...acting }: Acting & { handler?: string } = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open().engine.operator.runNow(id, handler, person(acting)));
  }

  /** Drains. With `abort` a script that runs now is ended early, but never a call in flight. */
  pause(workflow: string, { abort = false, ...acting }: Acting & { abort?: boolean } = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open().engine.operator.pause(id, person(acting), { abort }));
  }

  resume(workflow: string, acting: Acting = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open().engine.operator.resume(id, person(acting)));
  }

  /** Acknowledged when it is on disk. The same `messageId` again is recognised, not doubled. */
  async publish(workflow: string, event: GivenEvent): Promise<PublishAnswer> {
    const fed = await this.publishAll(workflow, [event]);
    if (fed.ok) return { ok: true, ...(fed.events[0] as PublishedEvent) };
    const { at: _, ...refused } = fed;
    return refused;
  }

  /** All of them, or none. */
  async publishAll(workflow: string, events: readonly GivenEvent[]): Promise<PublishAllAnswer> {
    const { engine, parts } = this.#open();
    const id = await this.#id(workflow);
    if (id === undefined) return notFound(workflow);
    const incoming = events.map(({ topic, messageId, payload, title }) => ({
      topic,
      messageId,
      payload: JSON.stringify(payload),
      // What came of it is found by its input.
      ...(title === undefined
        ? {}
        : { input: { id: parts.store.newId(), source: "api", type: topic, key: messageId, title } }),
    }));
    const fed = await feedAll(parts, id, incoming);
    if (!fed.ok) return fed;
    engine.poke();
    const publishedAs = ({ outcome, late, event }: Published): PublishedEvent => ({
      outcome,
      event: formatId("event", event),
      late: late.length,
    });
    return { ok: true, events: fed.events.map(publishedAs) };
  }

  /** A request that a sender made to a script's hook: 202 means that its event is on disk. */
  async receive(workflow: string, hook: string, request: HookRequest): Promise<HookAnswer> {
    const { hooks } = this.#open().engine;
    const id = await this.#id(workflow);
    if (!hooks || id === undefined)
      return { status: 404, code: "hook-unknown", message: "there is no such hook" };
    return hooks.receive({ workflow: id, hook, ...request });
  }

  /** A person's answer about a run that waits; `expect` is what they were looking at. */
  async decide(
    run: string,
    decision: Decision,
    { expect, ...acting }: Acting & { expect?: Expectation } = {},
  ): Promise<Decided> {
    const id = await this.#runId(run);
    if (id === undefined) return { ok: false, code: "not_found", message: `${run} is no run` };
    return this.#open().engine.operator.decide(id, decision, person(acting), expect);
  }

  async workflows(page: PageRequest & { archived?: boolean } = {}): Promise<Page<WorkflowRecord>> {
    const { records, parts } = this.#open();
    const namespace = await this.#namespace();
    if (namespace === undefined) return { items: [] };
    const options = { archived: page.archived ?? false, sinceMs: parts.clock.nowMs() - DAY_MS };
    return records.workflows(namespace, options, page);
  }

  async workflow(name: string): Promise<WorkflowRecord | undefined> {
    const { records, parts } = this.#open();
    const [namespace, id] = [await this.#namespace(), await this.#id(name)];
    if (namespace === undefined || id === undefined) return undefined;
    return records.workflow(namespace, id, { sinceMs: parts.clock.nowMs() - DAY_MS });
  }

  /** Newest first. */
  async runs(
    filter: Omit<RunFilter, "workflow"> & { workflow?: string } = {},
    page: PageRequest = {},
  ): Promise<Page<RunRecord>> {
    const namespace = await this.#namespace();
    const { workflow: name, ...rest } = filter;
    const workflow = name === undefined ? undefined : await this.#id(name);
    if (namespace === undefined || (name !== undefined && workflow === undefined)) return { items: [] };
    const narrowed = { ...rest, ...(workflow === undefined ? {} : { workflow }) };
    return this.#open().records.runs(namespace, narrowed, page);
  }

  async run(id: string): Promise<RunDetail | undefined> {
    const [namespace, run] = [await this.#namespace(), parseId("run", id)];
    return namespace === undefined || run === undefined
      ? undefined
      : this.#open().records.run(namespace, run);
  }

  /** What came in from outside, newest first, with what became of it. */
  async inputs(workflow: string, page: PageRequest = {}): Promise<Page<InputRecord>> {
    return this.#page(workflow, (records, namespace, id) => records.inputs(namespace, id, page));
  }

  /** What was changed outside, or was to be, newest first. */
  async outputs(workflow: string, page: PageRequest = {}): Promise<Page<OutputRecord>> {
    return this.#page(workflow, (records, namespace, id) => records.outputs(namespace, id, page));
  }

  async #page<Item>(
    workflow: string,
    read: (records: Records, namespace: NamespaceId, id: WorkflowId) => Promise<Page<Item>>,
  ): Promise<Page<Item>> {
    const [namespace, id] = [await this.#namespace(), await this.#id(workflow)];
    if (namespace === undefined || id === undefined) return { items: [] };
    return read(this.#open().records, namespace, id);
  }

  async #on(workflow: string, act: (id: WorkflowId) => Promise<Decided>): Promise<Decided> {
    const id = await this.#id(workflow);
    return id === undefined ? notFound(workflow) : act(id);
  }

  #namespace(): Promise<NamespaceId | undefined> {
    return this.#open().records.namespace(this.name);
  }

  async #id(workflow: string): Promise<WorkflowId | undefined> {
    const namespace = await this.#namespace();
    return namespace === undefined ? undefined : this.#open().records.workflowNamed(namespace, workflow);
  }

  /** (D1) */
  async #runId(run: string): Promise<RunId | undefined> {
    const id = parseId("run", run);
    const facts = id === undefined ? undefined : await this.#open().parts.store.run(id);
    return facts && facts.workflow.namespace === (await this.#namespace()) ? id : undefined;
  }
}

/** (D2) */
const notFound = (workflow: string) =>
  ({ ok: false, code: "not_found", message: `there is no workflow ${workflow}` }) as const;

const noWorkflow = (workflow: string): Deployed => ({
  ok: false,
  problems: [problem("no-workflow", `there is no workflow ${workflow}`)],
});
