/**
 * A sandbox that runs plain functions in this process, for tests of whatever stands on the port: no child, no isolate,
 * no compiler, the same answers. It passes the same contract suite as the pool. What it cannot do is contain a script:
 * it measures neither CPU time nor memory, and functions share what they close over.
 *
 * A handler is a function, as an author would write it, or a list with what each of its runs does in turn: a function,
 * a value to return, or an error. A `PawlError` ends the run with its code, `ProcessLost` with `lost`, any other error
 * as if the handler had thrown it.
 */
import { type ErrorCode, PawlError } from "../../host/core/errors.ts";
import {
  DEFAULT_LIMITS,
  type HardeningReport,
  type HostAnswer,
  type HostCall,
  type Limits,
  type LogLine,
  type Sandbox,
  type SandboxCall,
  type SandboxError,
  type SandboxResult,
  type Transcript,
} from "../../host/ports/sandbox.ts";
import { limitError, located } from "../../host/sandbox/blame.ts";
import { decodeDone } from "../../host/sandbox/decode.ts";
import { ctxFor } from "./scripted-ctx.ts";

// oxlint-disable-next-line typescript/no-explicit-any -- takes handlers of every phase, whatever their ctx
export type Play = (ctx: any, ...args: any[]) => unknown;
type Plays = Play | readonly unknown[];

export interface ScriptedHandlers {
  producers?: Record<string, { handler: Plays }>;
  consumers?: Record<string, { prepare: Plays; mutate?: Plays; next?: Plays }>;
}

/** What a function throws, or a list holds, when the process is to end through no fault of the run. */
export class ProcessLost extends Error {}

/** The test scripted too little: that is nobody's result, so the call rejects. */
class NotScripted extends Error {}

/** By workflow name, so that one sandbox serves many. */
export type Scripted = Record<string, ScriptedHandlers>;

type Answerer = (call: HostCall) => Promise<HostAnswer>;

export function openScripted(workflows: Scripted): ScriptedSandbox {
  return new ScriptedSandbox(workflows);
}

export class ScriptedSandbox implements Sandbox {
  readonly #workflows: Scripted;
  readonly #live = new Set<ScriptedRun>();
  readonly #turns = new Map<readonly unknown[], number>();
  #closed = false;
  /** Every call it got, in order. */
  readonly calls: SandboxCall[] = [];

  constructor(workflows: Scripted) {
    this.#workflows = workflows;
  }

  async run(call: SandboxCall, answer: Answerer): Promise<SandboxResult> {
    this.calls.push(call);
    const run = new ScriptedRun(call, answer);
    this.#live.add(run);
    if (this.#closed) run.lose("sandbox-closed");
    else if (call.signal?.aborted) run.abort();
    else run.start((phase) => this.#play(call, phase));
    const result = await run.result;
    this.#live.delete(run);
    return result;
  }

  /** Ends every run alive as if their process had died of something else. */
  loseProcess(): void {
    for (const run of this.#live) run.lose("sandbox-lost");
  }

  async hardening(): Promise<HardeningReport> {
    return {
      level: 1,
      layers: [{ name: "process", inForce: false, detail: "scripted: functions of the test's own process" }],
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    for (const run of this.#live) run.lose("sandbox-closed");
  }

  /** What this run's phase does; a list is used up one entry at a time. */
  #play({ script, unit, handler }: SandboxCall, phase: string): Play | undefined {
    const known = this.#workflows[script.workflow];
    const parts = (unit === "producer" ? known?.producers : known?.consumers)?.[handler] as
      | Record<string, Plays | undefined>
      | undefined;
    if (!parts) throw new NotScripted(`nothing is scripted for ${unit} ${handler} of ${script.workflow}`);
    const plays = parts[phase === "producer" ? "handler" : phase];
    if (plays === undefined || typeof plays === "function") return plays;
    const turn = this.#turns.get(plays) ?? 0;
    if (turn >= plays.length)
      throw new NotScripted(`${phase} of ${handler} ran more often than the ${plays.length} times scripted`);
    this.#turns.set(plays, turn + 1);
    const item = plays[turn];
    if (typeof item === "function") return item as Play;
    return () => {
      if (item instanceof Error) throw item;
      return item;
    };
  }
}

/** One unit from call to result. Ends once, by whatever comes first; nothing said afterwards counts. */
export class ScriptedRun {
  readonly call: SandboxCall;
  readonly limits: Limits;
  readonly result: Promise<SandboxResult>;
  readonly logs: LogLine[] = [];
  readonly publishes: object[] = [];
  readonly inputs: object[] = [];
  intent: object | undefined;
  phase = "";
  nowMs: number;
  ended = false;
  #settle: (result: SandboxResult) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  readonly #answer: Answerer;
  readonly #transcript: Transcript = [];
  #queue: (() => void)[] = [];
  #asking = 0;
  #asked = 0;
  #wall: NodeJS.Timeout | undefined;
  readonly #aborted = () => this.abort();

  constructor(call: SandboxCall, answer: Answerer) {
    this.call = call;
    this.limits = { ...DEFAULT_LIMITS, ...call.limits };
    this.nowMs = call.nowMs;
    this.#answer = answer;
    this.result = new Promise((resolve, reject) => {
      this.#settle = resolve;
      this.#reject = reject;
    });
  }

  start(play: (phase: string) => Play | undefined): void {
    const { call, limits } = this;
    this.#wall = setTimeout(() => this.fail(limitError(call, limits, "wall-limit")), limits.wallMs);
    call.signal?.addEventListener("abort", this.#aborted, { once: true });
    void this.#perform(play);
    this.#lookForStandstill();
  }

  abort(): void {
    this.fail(located(this.call, "run-aborted", "the run was aborted", ""));
  }

  lose(code: "sandbox-lost" | "sandbox-closed"): void {
    this.#end({ status: "lost", error: located(this.call, code, "the sandbox process ended", "") });
  }

  fail(error: SandboxError): void {
    this.#end({ status: "failed", error });
  }

  /** A fault of the script: final, also when the handler catches it. */
  refuse(code: ErrorCode, message: string): never {
    this.fail(located(this.call, code, message, ""));
    throw new Error(message);
  }

  /** A question to the host; its promise stays open for ever when the run ends first. */
  ask(name: string, args: string): Promise<unknown> {
    const { call, limits } = this;
    if (++this.#asked > limits.hostCalls) this.fail(limitError(call, limits, "host-call-limit"));
    const nth = this.#asked;
    return new Promise((resolve) => {
      const put = async () => {
        if (this.ended) return;
        this.#asking++;
        const answer = await this.#answered({ name, args });
        this.#asking--;
        if (this.ended) return;
        this.#transcript.push({ call: nth, name, args, answer });
        if (!answer.ok) {
          const error = located(call, "bad-call", answer.message, "");
          return this.fail({ ...error, class: answer.class, code: answer.code, tool: name });
        }
        this.nowMs = answer.nowMs;
        resolve(JSON.parse(answer.value));
        this.#queue.shift()?.();
        this.#lookForStandstill();
      };
      if (this.#asking < limits.hostCallsAtOnce) void put();
      else this.#queue.push(() => void put());
    });
  }

  async #answered(question: HostCall): Promise<HostAnswer> {
    try {
      return await this.#answer(question);
    } catch (error) {
      const message = `answering ${question.name} failed: ${(error as Error).name}`;
      return { ok: false, class: "internal", code: "sandbox-protocol", message };
    }
  }

  async #perform(play: (phase: string) => Play | undefined): Promise<void> {
    let done: Record<string, unknown>;
    try {
      done = await this.#phases(play);
    } catch (error) {
      return this.#threw(error);
    }
    if (this.ended) return;
    try {
      const json = JSON.stringify({ ...done, publishes: this.publishes, inputs: this.inputs });
      if (json.length > this.limits.outputBytes)
        return this.fail(limitError(this.call, this.limits, "output-limit"));
      this.#end({ status: "done", ...decodeDone(this.call, this.limits, json) });
    } catch (error) {
      this.#threw(error);
    }
  }

  async #phases(play: (phase: string) => Play | undefined): Promise<Record<string, unknown>> {
    const { call } = this;
    const given = ctxFor(this);
    const value = (json: string | undefined): unknown => (json === undefined ? undefined : JSON.parse(json));
    const act = async (phase: string, ...args: unknown[]): Promise<unknown> => {
      const part = play(phase);
      this.phase = phase;
      const result = await part?.(given.ctx, ...args);
      return result === undefined
        ? undefined
        : JSON.parse(given.text(result, phase === "prepare" ? "the result of prepare" : "the state"));
    };
    if (call.unit === "producer" || call.unit === "next") {
      const inputs =
        call.unit === "producer" ? [value(call.state)] : [value(call.prepared), value(call.outcome)];
      const state = await act(call.unit, ...inputs);
      return state === undefined ? {} : { state };
    }
    const prepared =
      call.unit === "mutate" ? value(call.prepared) : ((await act("prepare", value(call.state))) ?? {});
    if (call.unit === "mutate" || (call.unit === "prepare+mutate" && reserves(prepared)))
      await act("mutate", structuredClone(prepared));
    return { prepared, ...(this.intent ? { intent: this.intent } : {}) };
  }

  #threw(error: unknown): void {
    if (this.ended) return;
    if (error instanceof ProcessLost) return this.lose("sandbox-lost");
    if (error instanceof PawlError) return this.fail(located(this.call, error.code, error.message, ""));
    if (error instanceof NotScripted) return this.#misused(error);
    const said =
      error instanceof Error ? `${error.name}: ${error.message}` : `threw ${JSON.stringify(error)}`;
    this.fail(located(this.call, "handler-throws", said, ""));
  }

  #misused(error: Error): void {
    this.ended = true;
    clearTimeout(this.#wall);
    this.#reject(error);
  }

  /** With no question open, a handler that has not ended by the next turn never will. */
  #lookForStandstill(): void {
    if (this.#asking > 0) return;
    setImmediate(() => {
      if (!this.ended && this.#asking === 0) this.fail(limitError(this.call, this.limits, "never-settles"));
    });
  }

  #end(outcome: Record<string, unknown> & { status: string }): void {
    if (this.ended) return;
    this.ended = true;
    this.#queue = [];
    clearTimeout(this.#wall);
    this.call.signal?.removeEventListener("abort", this.#aborted);
    const fresh = this.call.scope === "fresh" || this.call.script.scope === "fresh";
    const usage = {
      cpuMs: 0,
      wallMs: 0,
      heapBytes: 0,
      hostCalls: this.#asked,
      scope: fresh ? ("fresh" as const) : ("frozen" as const),
    };
    const { logs } = this;
    this.#settle({ ...outcome, logs, usage, transcript: this.#transcript } as unknown as SandboxResult);
  }
}

function reserves(prepared: unknown): boolean {
  const list = (prepared as { reservations?: { ids?: unknown[] }[] } | null)?.reservations;
  return Array.isArray(list) && list.some((one) => (one?.ids?.length ?? 0) > 0);
}
