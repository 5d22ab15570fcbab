/**
 * A sandbox whose scripts are tiny programs. It may lose a run before, during and after it, fail one, and let a script try
 * what it must not.
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
import { type Chosen, type ConsumerProgram, followUp, numberOf, programOf } from "./programs.ts";

export const SANDBOX_FAULTS = [
  "takes long",
  "dies before",
  "dies during",
  "dies after",
  "throws",
  "passing failure",
  "mutates out of phase",
  "asks after its end",
] as const;
export type SandboxFault = (typeof SANDBOX_FAULTS)[number];
export type SandboxWeather = Partial<Record<SandboxFault, number>>;

const LONG_MS = 20_000;
/** As many as `peek` wants when a script does not say. */
const LOOKS_AT = 100;

const ENDED = {
  logs: [],
  transcript: [],
  usage: { cpuMs: 0, wallMs: 0, heapBytes: 0, hostCalls: 0, scope: "frozen" as const },
};

interface Event {
  messageId: string;
  payload: unknown;
}

type Answer = (call: HostCall) => Promise<HostAnswer>;

export class SimSandbox implements Sandbox {
  weather: SandboxWeather = {};
  /** Called when a unit begins. */
  onUnit: (call: SandboxCall) => void = () => {};
  problem: (message: string) => void = () => {};
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  async run(call: SandboxCall, answer: Answer): Promise<SandboxResult> {
    const label = `${call.script.workflow}/${call.handler} ${call.unit}`;
    await this.#kernel.task(`sandbox begins ${label}`, () => this.onUnit(call));
    const fault = this.#fault();
    if (fault === "dies before") return lost();
    if (fault === "passing failure") return failure("transient", "simulated");
    const result = await this.#execute(call, answer, fault);
    const ms = this.#happens("takes long") ? this.#kernel.dice.between(1, LONG_MS) : 0;
    await this.#kernel.later(ms, `sandbox ends ${label}`, () => undefined);
    if (fault === "asks after its end") void answer({ name: "shop.get", args: "{}" });
    return fault === "dies during" || fault === "dies after" ? lost() : result;
  }

  async hardening(): Promise<HardeningReport> {
    return { level: 1, layers: [] };
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  #fault(): SandboxFault | undefined {
    return SANDBOX_FAULTS.find((one) => one !== "takes long" && this.#happens(one));
  }

  #happens(fault: SandboxFault): boolean {
    if (!this.#kernel.dice.hits(this.weather[fault] ?? 0)) return false;
    this.#kernel.count(fault);
    return true;
  }

  async #execute(call: SandboxCall, answer: Answer, fault: SandboxFault | undefined): Promise<SandboxResult> {
    const program = programOf(call.script.source);
    const { flaw } = program;
    const flawed = flaw?.handler === call.handler && call.unit.split("+").includes(flaw.unit);
    if (flawed || fault === "throws") return failure("logic", "script-threw");
    if (fault === "mutates out of phase") {
      const said = await answer({ name: "bank.post", args: "{}" });
      if (said.ok) this.problem(`invariant 11: ${call.unit} was allowed to change something`);
      return said.ok ? done({}) : failure(said.class, said.code);
    }
    if (call.unit === "producer") return produce(call, answer);
    const consumer = program.consumers[call.handler];
    if (!consumer) throw new Error(`${call.script.workflow} has no consumer ${call.handler}`);
    if (call.unit === "next") return next(consumer, call);
    if (call.unit === "mutate") return done(intentOf(consumer, call.prepared ?? "{}"));
    return prepare(consumer, call, answer);
  }
}

async function produce(call: SandboxCall, answer: Answer): Promise<SandboxResult> {
  const page = await answer({ name: "shop.get", args: "{}" });
  if (!page.ok) return failure(page.class, page.code);
  const program = programOf(call.script.source).producers[call.handler];
  if (!program) throw new Error(`no producer ${call.handler}`);
  const from = (call.state ? (JSON.parse(call.state) as { made: number }).made : 0) + 1;
  const publishes = Array.from({ length: program.count }, (_, i) => ({
    topics: program.topics,
    messageId: `m${from + i}`,
    payload: JSON.stringify({ n: from + i }),
  }));
  return done({ publishes, state: JSON.stringify({ made: from + program.count - 1 }) });
}

async function prepare(consumer: ConsumerProgram, call: SandboxCall, answer: Answer): Promise<SandboxResult> {
  const pending: string[][] = [];
  for (const topic of consumer.topics) {
    const shipped = call.peek?.[topic];
    if (shipped && (shipped.complete || shipped.count >= LOOKS_AT)) pending.push(idsOf(shipped.events));
    else {
      const asked = await answer({ name: "peek", args: JSON.stringify({ topic, limit: LOOKS_AT }) });
      if (!asked.ok) return failure(asked.class, asked.code);
      pending.push(idsOf(asked.value));
    }
  }
  if (consumer.reads) {
    const page = await answer({ name: "shop.get", args: "{}" });
    if (!page.ok) return failure(page.class, page.code);
  }
  const [first = [], ...others] = pending;
  const common = first.filter((id) => others.every((ids) => ids.includes(id)));
  const ids = common.length < (consumer.needs ?? 1) ? [] : common.slice(0, consumer.batch);
  const chosen: Chosen = { consumer: call.handler, ids };
  const json = JSON.stringify({ data: chosen });
  const prepared = {
    json,
    reservations: ids.length > 0 ? consumer.topics.map((topic) => ({ topic, ids })) : [],
    ...(consumer.wakeMs === undefined
      ? {}
      : { wakeAt: new Date(call.nowMs + consumer.wakeMs).toISOString() }),
  };
  const states = call.unit === "prepare+mutate" && ids.length > 0;
  return done({ prepared, ...(states ? intentOf(consumer, json) : {}) });
}

function intentOf({ tool, abstains }: ConsumerProgram, prepared: string): Partial<Done> {
  const { data } = JSON.parse(prepared) as { data: Chosen };
  if (tool === undefined || abstain(abstains, data.ids)) return {};
  return { intent: { alias: "bank", tool, args: JSON.stringify(data) } };
}

export const abstain = (every: number | undefined, ids: readonly string[]): boolean =>
  every !== undefined && numberOf(ids[0] ?? "") % every === 0;

function next({ publishes: topic }: ConsumerProgram, call: SandboxCall): SandboxResult {
  const { data } = JSON.parse(call.prepared ?? '{"data":{"ids":[]}}') as { data: Chosen };
  const outcome = (JSON.parse(call.outcome ?? "{}") as { status?: string }).status;
  const consumed = call.state ? (JSON.parse(call.state) as { consumed: number }).consumed : 0;
  return done({
    state: JSON.stringify({ consumed: consumed + data.ids.length }),
    publishes:
      topic === undefined
        ? []
        : data.ids.map((id) => ({
            topics: [topic],
            messageId: followUp(call.handler, id),
            payload: JSON.stringify({ outcome }),
          })),
  });
}

const idsOf = (events: string): string[] => (JSON.parse(events) as Event[]).map((one) => one.messageId);

const done = (part: Partial<Done>): SandboxResult => ({
  status: "done",
  publishes: [],
  inputs: [],
  ...part,
  ...ENDED,
});

const failure = (kind: Extract<HostAnswer, { ok: false }>["class"], code: string): SandboxResult => ({
  status: "failed",
  error: { class: kind, code, message: code },
  ...ENDED,
});

const lost = (): SandboxResult => ({
  status: "lost",
  error: { class: "transient", code: "sandbox-lost", message: "lost" },
  ...ENDED,
});
