/**
 * A webhook's request → an event on disk (02 §8, 05 `POST /hooks/…`). Orders the checks; which senders are believed is the
 * connector's, what a body may look like the core's.
 *
 * R1. Nothing of a body is looked at before its signature holds.
 * R2. Answered with 202 means on disk; the event is the sender's own, hops 0, caused by an input of its own.
 * R3. A delivery that came again within its window gets the first one's answer and changes nothing. The same id with
 *     another body is refused.
 * R4. A paused workflow takes events in and lets them wait; an archived one is not there.
 */
import { readBody } from "../core/hook.ts";
import type { WorkflowId } from "../core/ids.ts";
import { plainLine } from "../core/plain-line.ts";
import type { HookDeclaration } from "../core/workflow.ts";
import type { Connections, ConnectionRow } from "../ports/connections.ts";
import type { HookRequest, HookVerdict, VerifyHook } from "../ports/hooks.ts";
import { feed } from "./feed.ts";
import type { Parts } from "./parts.ts";

export interface ReceivedHook extends HookRequest {
  workflow: WorkflowId;
  hook: string;
}

export type HookAnswer =
  | { status: 202; event: number; outcome: "created" | "updated" | "unchanged"; messageId: string }
  | { status: 401 | 404 | 409 | 413 | 422; code: string; message: string; hint?: string };

const NOT_HERE: HookAnswer = { status: 404, code: "hook-unknown", message: "there is no such hook" };
/** Deliveries that are remembered at once, over all hooks. */
const REMEMBERED = 20_000;

interface Seen {
  bodyHash: string;
  answer: Promise<HookAnswer>;
  untilMs: number;
}

export class Hooks {
  readonly #parts: Pick<Parts, "store" | "clock" | "scripts">;
  readonly #connections: Pick<Connections, "behind">;
  readonly #verify: VerifyHook;
  readonly #poke: () => void;
  readonly #seen = new Map<string, Seen>();

  constructor(
    parts: Pick<Parts, "store" | "clock" | "scripts">,
    connections: Pick<Connections, "behind">,
    verify: VerifyHook,
    poke: () => void,
  ) {
    this.#parts = parts;
    this.#connections = connections;
    this.#verify = verify;
    this.#poke = poke;
  }

  async receive({ workflow, hook, ...request }: ReceivedHook): Promise<HookAnswer> {
    const declared = await this.#declared(workflow, hook);
    if (!declared) return NOT_HERE;
    const behind = await this.#connections.behind(workflow, declared.alias);
    const connection = behind?.connection;
    if (!connection || connection.connector !== "webhook")
      return {
        status: 409,
        code: "binding-missing",
        message: "no connection stands behind this hook",
        hint: `Bind the alias ${declared.alias} to a webhook connection.`,
      };
    const verdict = await this.#verify(connection, request, this.#parts.clock.nowMs());
    if (!verdict.ok) {
      const code = verdict.status === 413 ? "hook-too-large" : "hook-signature";
      return { status: verdict.status, code, message: verdict.reason };
    }
    // (R1)
    const take = () => this.#take(workflow, { hook, declared, connection }, request.body);
    return verdict.id === undefined
      ? take()
      : this.#once(`${connection.id}/${hook}/${verdict.id}`, verdict, take);
  }

  /** (R4) */
  async #declared(id: WorkflowId, hook: string): Promise<HookDeclaration | undefined> {
    const { store, scripts } = this.#parts;
    const workflow = await store.workflow(id);
    if (!workflow || workflow.archived || workflow.activeVersion === 0) return undefined;
    const { hooks } = (await scripts.script(id, workflow.activeVersion)).manifest;
    return Object.hasOwn(hooks, hook) ? hooks[hook] : undefined;
  }

  /** (R3) */
  async #once(
    key: string,
    { bodyHash, rememberMs }: Extract<HookVerdict, { ok: true }>,
    take: () => Promise<HookAnswer>,
  ): Promise<HookAnswer> {
    const nowMs = this.#parts.clock.nowMs();
    const known = this.#seen.get(key);
    if (known && known.untilMs > nowMs) {
      if (known.bodyHash === bodyHash) return known.answer;
      return {
        status: 409,
        code: "hook-replayed",
        message: "a delivery with this id has come before, with another body",
      };
    }
    this.#forget(nowMs);
    // The sender's clock may be ahead by as much as it may be behind.
    const seen: Seen = { bodyHash, answer: take(), untilMs: nowMs + 2 * rememberMs };
    this.#seen.delete(key);
    this.#seen.set(key, seen);
    const forget = () => {
      if (this.#seen.get(key) === seen) this.#seen.delete(key);
    };
    // What was not taken in may come again.
    void seen.answer.then((answer) => answer.status !== 202 && forget(), forget);
    return seen.answer;
  }

  #forget(nowMs: number): void {
    for (const [key, { untilMs }] of this.#seen) {
      if (untilMs > nowMs && this.#seen.size < REMEMBERED) return;
      this.#seen.delete(key);
    }
  }

  async #take(
    workflow: WorkflowId,
    { hook, declared, connection }: { hook: string; declared: HookDeclaration; connection: ConnectionRow },
    bytes: Uint8Array,
  ): Promise<HookAnswer> {
    const body = readBody(textOf(bytes), declared.messageId);
    if (!body.ok) return { status: 422, code: "hook-body", message: body.message, hint: body.hint };
    const { messageId, payload } = body;
    const fed = await feed(this.#parts, workflow, {
      topic: declared.topic,
      messageId,
      payload,
      input: {
        id: this.#parts.store.newId(),
        source: connection.name,
        type: hook,
        key: messageId,
        title: plainLine(`${hook} ${messageId}`, MOST_TITLE),
      },
    }); // (R2)
    if (fed.ok) this.#poke();
    if (fed.ok) return { status: 202, event: fed.event.event, outcome: fed.event.outcome, messageId };
    if (fed.code === "not_found" || fed.code === "archived") return NOT_HERE;
    return { status: fed.code === "changed" ? 409 : 422, code: fed.code, message: fed.message };
  }
}

const MOST_TITLE = 200;

/** Bytes that are no UTF-8 become what is no JSON. */
function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return "";
  }
}
