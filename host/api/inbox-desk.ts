/** What waits for a person in one namespace: questions with the answers that are allowed now, and who is told of them. */
import type { InboxKind } from "../core/change.ts";
import { formatId, parseId } from "../core/ids.ts";
import type { InboxAction } from "../core/inbox.ts";
import type { Decided } from "../engine/operator.ts";
import { questionOf } from "../engine/questions.ts";
import type { NotificationTarget } from "../ports/notices.ts";
import type { InboxRecord, Page, PageRequest } from "../ports/records.ts";
import { type Acting, type Open, person } from "./open.ts";

export interface InboxItem {
  id: string;
  kind: InboxKind;
  workflow: string;
  run?: string;
  handler?: string;
  question: string;
  actions: InboxAction[];
  sinceMs: number;
}

export class InboxDesk {
  readonly #name: string;
  readonly #open: () => Open;

  constructor(name: string, open: () => Open) {
    this.#name = name;
    this.#open = open;
  }

  /** Oldest first. */
  async list({ kind, ...page }: PageRequest & { kind?: InboxKind } = {}): Promise<Page<InboxItem>> {
    const { records } = this.#open();
    const namespace = await records.namespace(this.#name);
    if (namespace === undefined) return { items: [] };
    const { items, ...more } = await records.inbox(namespace, kind === undefined ? {} : { kind }, page);
    return { items: await Promise.all(items.map((item) => this.#itemOf(item))), ...more };
  }

  async count(): Promise<number> {
    const { records } = this.#open();
    const namespace = await records.namespace(this.#name);
    return namespace === undefined ? 0 : records.inboxCount(namespace);
  }

  /** Lets rest what asks for no decision. */
  async acknowledge(item: string, acting: Acting = {}): Promise<Decided> {
    const { records, engine } = this.#open();
    const [namespace, id] = [await records.namespace(this.#name), parseId("inbox", item)];
    const found =
      namespace === undefined || id === undefined ? undefined : await records.inboxItem(namespace, id);
    if (!found) return { ok: false, code: "not_found", message: `${item} is not in the inbox` };
    const workflow = await records.workflowNamed(namespace as number, found.workflow);
    return engine.operator.acknowledge(workflow as number, found, person(acting));
  }

  async targets(): Promise<NotificationTarget[]> {
    const { records, notices } = this.#open();
    const namespace = await records.namespace(this.#name);
    return namespace === undefined ? [] : notices.targets(namespace);
  }

  /** All of them: who is not in it is told nothing any more. */
  async setTargets(targets: NotificationTarget[], acting: Acting = {}): Promise<Decided> {
    const { parts, notices, teller, engine } = this.#open();
    const refuse = (message: string): Decided => ({ ok: false, code: "target-invalid", message });
    if (!parts.outside || !teller) return refuse("this host has no connections to tell people through");
    const atMs = parts.clock.nowMs();
    const namespace = await parts.outside.connections.namespace(this.#name, atMs);
    const names = targets.map((one) => one.name);
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) return refuse(`there are two targets ${twice}`);
    for (const target of targets) {
      const problem = await teller.problem(namespace, target);
      if (problem !== undefined) return refuse(problem);
    }
    const { by: actor, note } = person(acting);
    await notices.setTargets(namespace, targets, { actor, atMs, ...(note === undefined ? {} : { note }) });
    engine.notify();
    return { ok: true };
  }

  async #itemOf(record: InboxRecord): Promise<InboxItem> {
    const { id, kind, workflow, run, handler, sinceMs } = record;
    return {
      id: formatId("inbox", id),
      kind,
      workflow,
      ...(run === undefined ? {} : { run: formatId("run", run) }),
      ...(handler === undefined ? {} : { handler }),
      ...(await questionOf(this.#open().parts, record)),
      sinceMs,
    };
  }
}
