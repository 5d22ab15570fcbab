/**
 * One run inside one worker, from invoke to result: ships the call, answers its host calls a few at a time, keeps the
 * transcript, and ends it once, by whatever comes first.
 *
 * T1. A host call that fails ends the run at once; the script never sees it and so cannot catch it.
 * T2. Only a call that the phase and the stored manifest allow reaches the host, whatever the isolate let through.
 */
import { type ErrorCode, PawlError } from "../core/errors.ts";
import { NAME_PATTERN } from "../core/workflow.ts";
import type {
  HostAnswer,
  HostCall,
  Limits,
  LogLine,
  SandboxCall,
  SandboxError,
  SandboxResult,
  Transcript,
  Usage,
} from "../ports/sandbox.ts";
import { limitError, located, thrownError } from "./blame.ts";
import type { ChildUsage, InvokeHeader } from "./child.ts";
import { decodeDone, decodeLogs } from "./decode.ts";
import { FRAME, type Frame, splitBody } from "./wire.ts";
import type { Tenant, Worker } from "./worker.ts";

export type Answerer = (call: HostCall) => Promise<HostAnswer>;

export interface TenancyOptions {
  worker: Worker;
  slot: number;
  key: string;
  scope: "fresh" | "frozen" | "reused";
  call: SandboxCall;
  limits: Limits;
  answer: Answerer;
}

export class Tenancy implements Tenant {
  readonly sectionMs: number;
  readonly result: Promise<SandboxResult>;
  #settle: (result: SandboxResult) => void = () => {};
  readonly #on: TenancyOptions;
  readonly #startedMs = performance.now();
  readonly #transcript: Transcript = [];
  #queue: (() => void)[] = [];
  #asking = 0;
  #calls = 0;
  #ended = false;
  #wall: NodeJS.Timeout;
  readonly #aborted = () => this.#stop(located(this.#on.call, "run-aborted", "the run was aborted", ""));

  constructor(on: TenancyOptions) {
    this.#on = on;
    this.sectionMs = on.limits.sectionMs;
    this.result = new Promise((resolve) => {
      this.#settle = resolve;
    });
    on.worker.admit(on.slot, this);
    this.#wall = setTimeout(() => this.#outOfTime(), on.limits.wallMs);
    on.call.signal?.addEventListener("abort", this.#aborted, { once: true });
    on.worker.work(FRAME.invoke, on.slot, 0, invokeBody(on));
    if (on.call.signal?.aborted) this.#aborted();
  }

  frame(frame: Frame): void {
    if (this.#ended) return;
    switch (frame.type) {
      case FRAME.call: {
        const [name, args] = splitBody(frame.body, 1) as [string, string];
        return this.#hostCall(frame.call, name, args);
      }
      case FRAME.wait:
        if (this.#asking > 0 || this.#on.worker.owes(this.#on.slot)) return;
        return this.#on.worker.kill(this.#on.slot, "sandbox-protocol", "it waits for nothing");
      case FRAME.lost:
        return this.#lose("sandbox-lost", "another run of this version brought down the isolate they shared");
      case FRAME.done:
      case FRAME.fail:
        return this.#decode(frame);
      default:
        this.#on.worker.kill(this.#on.slot, "sandbox-protocol", `frame type ${frame.type}`);
    }
  }

  gone(code: ErrorCode | undefined, why: string): void {
    if (code === undefined)
      return this.#lose(
        why === "shutting down" ? "sandbox-closed" : "sandbox-lost",
        `the sandbox process ended: ${why}`,
      );
    this.#fail(limitError(this.#on.call, this.#on.limits, code, why));
  }

  #hostCall(id: number, name: string, args: string): void {
    const { call, limits, worker, slot } = this.#on;
    const nth = ++this.#calls;
    if (nth > limits.hostCalls) return this.#stop(limitError(call, limits, "host-call-limit"));
    const bytes = Buffer.byteLength(args);
    if (bytes > limits.messageBytes) {
      const said = `the arguments of ${name} are ${bytes} bytes; the limit is ${limits.messageBytes}`;
      return this.#stop(located(call, "value-too-large", said, ""));
    }
    if (!mayAsk(call, name, args))
      return this.#stop(
        located(call, "bad-call", `there is no ${JSON.stringify(name.slice(0, 80))} to call`, ""),
      ); // (T2)
    const ask = async () => {
      this.#asking++;
      const answer = await this.#answer(name, args);
      this.#asking--;
      if (this.#ended) return;
      this.#transcript.push({ call: nth, name, args, answer });
      if (answer.ok) worker.work(FRAME.answer, slot, id, `${answer.nowMs}\n${answer.value}`);
      else
        this.#stop({
          ...located(call, "bad-call", answer.message, ""),
          class: answer.class,
          code: answer.code,
          tool: name,
        }); // (T1)
      this.#queue.shift()?.();
    };
    if (this.#asking < limits.hostCallsAtOnce) void ask();
    else this.#queue.push(() => void ask());
  }

  async #answer(name: string, args: string): Promise<HostAnswer> {
    try {
      return await this.#on.answer({ name, args });
    } catch (error) {
      const message = `answering ${name} failed: ${(error as Error).name}`;
      return { ok: false, class: "internal", code: "sandbox-protocol", message };
    }
  }

  /** Time spent waiting for the host is not the script's fault. */
  #outOfTime(): void {
    const error = limitError(this.#on.call, this.#on.limits, "wall-limit");
    this.#stop(this.#asking > 0 ? { ...error, class: "transient" } : error);
  }

  #decode(frame: Frame): void {
    const { call, limits } = this.#on;
    const [usageText, logsText, json] = splitBody(frame.body, 2) as [string, string, string];
    const ledger = this.#ledger();
    try {
      const usage = JSON.parse(usageText) as ChildUsage;
      ledger.usage = { ...ledger.usage, cpuMs: usage.cpuMs, heapBytes: usage.heapBytes, scope: usage.scope };
      this.#on.worker.isolates = usage.isolates;
      ledger.logs = decodeLogs(logsText, limits);
      if (frame.type === FRAME.done)
        return this.#end({ status: "done", ...decodeDone(call, limits, json), ...ledger });
      this.#end({
        status: "failed",
        error: thrownError(call, limits, json, usage.scope),
        ...ledger,
      });
    } catch (error) {
      const known =
        error instanceof PawlError
          ? error
          : new PawlError("sandbox-protocol", "the sandbox answered with something unreadable");
      this.#end({ status: "failed", error: located(call, known.code, known.message, ""), ...ledger });
    }
  }

  /** Ends the run from outside; its realm is never used again. */
  #stop(error: SandboxError): void {
    if (this.#ended) return;
    this.#on.worker.work(FRAME.abort, this.#on.slot, 0, "");
    this.#fail(error);
  }

  #lose(code: ErrorCode, message: string): void {
    this.#end({ status: "lost", error: located(this.#on.call, code, message, ""), ...this.#ledger() });
  }

  #fail(error: SandboxError): void {
    this.#end({ status: "failed", error, ...this.#ledger() });
  }

  #ledger(): { logs: LogLine[]; usage: Usage; transcript: Transcript } {
    const scope = this.#on.scope === "fresh" ? "fresh" : "frozen";
    const wallMs = performance.now() - this.#startedMs;
    return {
      logs: [],
      usage: { cpuMs: 0, wallMs, heapBytes: 0, hostCalls: this.#calls, scope },
      transcript: this.#transcript,
    };
  }

  #end(result: SandboxResult): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#queue = [];
    clearTimeout(this.#wall);
    this.#on.call.signal?.removeEventListener("abort", this.#aborted);
    this.#on.worker.leave(this.#on.slot);
    this.#settle(result);
  }
}

function mayAsk({ unit, script, handler }: SandboxCall, name: string, args: string): boolean {
  const prepares = unit === "prepare" || unit === "prepare+mutate";
  if (name === "peek" || name === "getByIds")
    return prepares && (script.manifest.consumers[handler]?.subscribes.includes(topicOf(args)) ?? false);
  if (!prepares && unit !== "producer") return false;
  const alias = Object.keys(script.manifest.connections).find((one) => name.startsWith(`${one}.`));
  return alias !== undefined && NAME_PATTERN.test(name.slice(alias.length + 1));
}

function topicOf(args: string): string {
  try {
    return String((JSON.parse(args) as { topic?: unknown } | null)?.topic);
  } catch {
    return "";
  }
}

function invokeBody({ key, scope, call, limits }: TenancyOptions): string {
  const header: InvokeHeader = {
    key,
    scope,
    sectionMs: limits.sectionMs,
    cpuMs: limits.cpuMs,
    hostCalls: limits.hostCalls,
    outputChars: limits.outputBytes,
  };
  return `${JSON.stringify(header)}\n${invocation(call, limits)}`;
}

/** What the prelude is told of one call, as text that nobody reads on the way. */
export function invocation(call: SandboxCall, limits: Limits): string {
  const { script, run } = call;
  const consumer = script.manifest.consumers[call.handler];
  const handler = call.unit === "producer" ? script.manifest.producers[call.handler] : consumer;
  return JSON.stringify({
    unit: call.unit,
    handler: call.handler,
    runId: run.id,
    attempt: run.attempt,
    now: call.nowMs,
    seed: call.seed,
    params: call.params,
    state: call.state,
    prepared: call.prepared,
    outcome: call.outcome,
    peek: call.peek ?? {},
    connections: script.manifest.connections,
    subscribes: call.unit === "producer" ? [] : (consumer?.subscribes ?? []),
    publishes: handler?.publishes ?? [],
    logLines: limits.logLines,
    logLineChars: limits.logLineChars,
    maxPublishes: limits.maxPublishes,
    messageChars: limits.messageBytes,
    stateChars: limits.stateBytes,
    preparedChars: limits.preparedBytes,
  });
}
