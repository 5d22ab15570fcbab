/**
 * A sandbox whose scripts are tiny programs: what each handler does is data, so that what must follow can be computed
 * without the engine. It may lose a run, or fail one, at any moment.
 */
import type {
  Done,
  HardeningReport,
  HostAnswer,
  HostCall,
  Sandbox,
  SandboxCall,
  SandboxResult,
} from "../../host/ports/sandbox.ts";
import type { Kernel } from "./kernel.ts";

export interface ConsumerProgram {
  topic: string;
  /** At most so many events per run; 0 never reserves. */
  batch: number;
  mutates: boolean;
  /** Publishes one event per reserved one to this topic. */
  publishes?: string;
}

export interface Program {
  /** Events that the producer publishes on each run. */
  produces: { topic: string; count: number };
  consumers: Record<string, ConsumerProgram>;
}

export interface SandboxFaults {
  lost: number;
  throws: number;
}

const ENDED = {
  logs: [],
  transcript: [],
  usage: { cpuMs: 0, wallMs: 0, heapBytes: 0, hostCalls: 0, scope: "frozen" as const },
};

interface Event {
  messageId: string;
  payload: unknown;
}

export class SimSandbox implements Sandbox {
  faults: SandboxFaults = { lost: 0, throws: 0 };
  readonly #kernel: Kernel;
  readonly #programs: Map<string, Program>;

  constructor(kernel: Kernel, programs: Map<string, Program>) {
    this.#kernel = kernel;
    this.#programs = programs;
  }

  async run(call: SandboxCall, answer: (call: HostCall) => Promise<HostAnswer>): Promise<SandboxResult> {
    const { dice } = this.#kernel;
    const label = `${call.script.workflow}/${call.handler} ${call.unit}`;
    await this.#kernel.task(`sandbox begins ${label}`, () => undefined);
    if (dice.hits(this.faults.lost)) return { status: "lost", error: lostError(), ...ENDED };
    if (dice.hits(this.faults.throws))
      return {
        status: "failed",
        error: { class: "transient", code: "simulated", message: "a passing failure" },
        ...ENDED,
      };
    const result = await this.#execute(call, answer);
    await this.#kernel.task(`sandbox ends ${label}`, () => undefined);
    return dice.hits(this.faults.lost) ? { status: "lost", error: lostError(), ...ENDED } : result;
  }

  async hardening(): Promise<HardeningReport> {
    return { level: 1, layers: [] };
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  async #execute(call: SandboxCall, answer: (call: HostCall) => Promise<HostAnswer>): Promise<SandboxResult> {
    const program = this.#programs.get(call.script.workflow);
    if (!program) throw new Error(`no program ${call.script.workflow}`);
    if (call.unit === "producer") return this.#produce(program, call, answer);
    const consumer = program.consumers[call.handler];
    if (!consumer) throw new Error(`no consumer ${call.handler}`);
    if (call.unit === "next") return next(consumer, call);
    if (call.unit === "mutate") return mutate(consumer, call.prepared ?? "{}");
    return this.#prepare(consumer, call, answer);
  }

  async #produce(
    { produces }: Program,
    call: SandboxCall,
    answer: (call: HostCall) => Promise<HostAnswer>,
  ): Promise<SandboxResult> {
    const page = await answer({ name: "shop.get", args: "{}" });
    if (!page.ok)
      return {
        status: "failed",
        error: { class: page.class, code: page.code, message: page.message },
        ...ENDED,
      };
    const from = (call.state ? (JSON.parse(call.state) as { made: number }).made : 0) + 1;
    const publishes = Array.from({ length: produces.count }, (_, i) => ({
      topics: [produces.topic],
      messageId: `m${from + i}`,
      payload: JSON.stringify({ n: from + i }),
    }));
    return done({ publishes, state: JSON.stringify({ made: from + produces.count - 1 }) });
  }

  async #prepare(
    consumer: ConsumerProgram,
    call: SandboxCall,
    answer: (call: HostCall) => Promise<HostAnswer>,
  ): Promise<SandboxResult> {
    const shipped = call.peek?.[consumer.topic];
    let events = shipped ? (JSON.parse(shipped.events) as Event[]) : [];
    if (!shipped) {
      const asked = await answer({
        name: "peek",
        args: JSON.stringify({ topic: consumer.topic, limit: 100 }),
      });
      if (!asked.ok)
        return {
          status: "failed",
          error: { class: asked.class, code: asked.code, message: asked.message },
          ...ENDED,
        };
      events = JSON.parse(asked.value) as Event[];
    }
    const ids = events.slice(0, consumer.batch).map((event) => event.messageId);
    const json = JSON.stringify({ data: { ids } });
    const prepared = { json, reservations: ids.length > 0 ? [{ topic: consumer.topic, ids }] : [] };
    const intends = call.unit === "prepare+mutate" && ids.length > 0 && consumer.mutates;
    return done({ prepared, ...(intends ? { intent: intentOf(json) } : {}) });
  }
}

function mutate(consumer: ConsumerProgram, prepared: string): SandboxResult {
  return done(consumer.mutates ? { intent: intentOf(prepared) } : {});
}

function next(consumer: ConsumerProgram, call: SandboxCall): SandboxResult {
  const { ids } = (JSON.parse(call.prepared ?? "{}") as { data?: { ids?: string[] } }).data ?? {};
  const { publishes: topic } = consumer;
  if (topic === undefined) return done({});
  return done({
    publishes: (ids ?? []).map((id) => ({ topics: [topic], messageId: `${id}'`, payload: "{}" })),
  });
}

const intentOf = (prepared: string) => ({ alias: "bank", tool: "post", args: prepared });

const done = (part: Partial<Done>): SandboxResult => ({
  status: "done",
  publishes: [],
  inputs: [],
  ...part,
  ...ENDED,
});

const lostError = () => ({ class: "transient" as const, code: "sandbox-lost", message: "lost" });
