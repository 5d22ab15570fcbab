/**
 * The outside world, which never forgets: it counts the true effects of every decision, whatever the host believes. Its
 * faults lie before and after the effect; a call may have its effect after the host that made it is dead.
 *
 * Tools differ in how their outcome can be proved: `post` can be looked up, `put` carries a key that the service honours,
 * `blind` can be neither, `ask` needs an approval and can be looked up, `wire` needs an approval and carries a key,
 * `swap` changes only what is still as it was seen before. What a tool's connection is, and what is granted, people change.
 */
import type {
  CheckAnswer,
  ReadAnswer,
  RecordedCall,
  SendAnswer,
  Tool,
  ToolCall,
  ToolFailure,
  World,
} from "../../host/ports/connector.ts";
import type { Kernel } from "./kernel.ts";
import type { SimAccess } from "./sim-access.ts";

export const MUTATIONS = {
  post: { proof: "lookup", canCheck: true, grant: "allow" },
  put: { proof: "key", canCheck: true, grant: "allow" },
  blind: { proof: "none", canCheck: false, grant: "allow" },
  ask: { proof: "lookup", canCheck: true, grant: "approve" },
  wire: { proof: "key", canCheck: true, grant: "approve" },
  swap: { proof: "conditional", canCheck: true, grant: "allow" },
} as const;

/** Those of a world whose connections nobody touches. */
export const STEADY_TOOLS = ["post", "put", "blind", "ask", "wire"] as const;

export type MutationTool = keyof typeof MUTATIONS;

const SEND_FAULTS = [
  "refused",
  "rejected",
  "limited",
  "unauthorised",
  "timeout before the effect",
  "timeout after the effect",
  "5xx after the effect",
  "late effect",
  "late answer",
  "late refusal",
  "garbage",
] as const;

const CHECK_FAULTS = ["check unsure", "check throws", "check unauthorised"] as const;
/** Of a world that is not steady. */
const RESTLESS_FAULTS = ["check hangs", "check answers too late", "stranger"] as const;
const READ_FAULTS = ["read fails", "read limited", "read unauthorised"] as const;

export type WorldFault =
  | (typeof SEND_FAULTS)[number]
  | (typeof CHECK_FAULTS)[number]
  | (typeof RESTLESS_FAULTS)[number]
  | (typeof READ_FAULTS)[number];
export const WORLD_FAULTS: readonly WorldFault[] = [...SEND_FAULTS, ...CHECK_FAULTS, ...READ_FAULTS];
export const RESTLESS: readonly WorldFault[] = RESTLESS_FAULTS;

/** Chances in [0, 1]; what is not there does not happen. */
export type WorldWeather = Partial<Record<WorldFault, number>>;

export interface SentDecision {
  /** Id of the ledger row. */
  row: number;
  tool: MutationTool;
  workflow: number;
  args: string;
  key: string;
  sends: number;
  /** True effects. */
  effects: number;
  /** The last send came back with proof that nothing happened. */
  provenUnsent: boolean;
}

const OK = '{"status":200,"headers":{},"body":{}}';
const SETTLE_MS = 30_000;
const WISH_MS = 90_000;
/** Beyond the timeout of a call. */
const TOO_LATE_MS = 130_000;

export class SimWorld implements World {
  weather: WorldWeather = {};
  /** Ledger row → what the world knows about it. */
  readonly decisions = new Map<number, SentDecision>();
  /** Connections that want to be authorised again. */
  revoked = false;
  /** Grows with everything people do: they may be faster than a server's wish. */
  humanActs = 0;
  /** Judges a send at the moment it leaves; gives the ledger row it belongs to. */
  onSend: (call: RecordedCall) => number = () => 0;
  problem: (message: string) => void = () => {};
  readonly access: SimAccess;
  /** Key of a decision → the config that its last check was answered under. */
  readonly answeredUnder = new Map<string, number>();
  readonly #kernel: Kernel;
  /** What `swap` compares with, by workflow. */
  readonly #editions = new Map<number, number>();
  readonly #byKey = new Map<string, SentDecision>();
  /** Keys whose effect took place: the service makes no second one. */
  readonly #honoured = new Set<string>();
  /** When a service wants to hear of a call again, unless somebody insists. */
  readonly #wishes = new Map<string, { untilMs: number; acts: number }>();

  constructor(kernel: Kernel, access: SimAccess) {
    this.#kernel = kernel;
    this.access = access;
  }

  /** What it was told, and did not write down, the host has forgotten. */
  hostDied(): void {
    this.#wishes.clear();
  }

  async tool({
    workflow,
    alias,
    tool,
    connection,
  }: Pick<ToolCall, "workflow" | "alias" | "tool"> & { connection?: string }): Promise<Tool | ToolFailure> {
    const mutation = MUTATIONS[tool as MutationTool] as (typeof MUTATIONS)[MutationTool] | undefined;
    const behind = mutation
      ? this.access.tell(workflow, tool, mutation.grant, connection)
      : { connection: alias, configVersion: 1, grant: "allow" as const };
    return {
      kind: mutation ? "mutation" : "read",
      ...behind,
      ...(tool === "swap" ? { looksBefore: true } : {}),
      proof: mutation?.proof ?? "none",
      canCheck: mutation?.canCheck ?? false,
      settleMs: SETTLE_MS,
    };
  }

  async describe({ alias, tool }: ToolCall): Promise<string> {
    return `${alias}.${tool}`;
  }

  async fingerprint({ args }: RecordedCall): Promise<string> {
    return args;
  }

  before({ workflow }: ToolCall): Promise<string | undefined> {
    return this.#kernel.task("world is looked at", () =>
      this.#fault(READ_FAULTS) ? undefined : String(this.#editions.get(workflow) ?? 1),
    );
  }

  read(call: ToolCall): Promise<ReadAnswer> {
    return this.#kernel.task(`world read ${call.tool}`, () => {
      if (call.tool in MUTATIONS) this.problem(`invariant 11: ${call.tool} left as if it were a read`);
      const fault = this.#fault(READ_FAULTS);
      if (fault === "read unauthorised" || this.revoked)
        return { ok: false, ...refusal("auth", "unauthorised") };
      if (fault === "read fails") return { ok: false, ...refusal("transient", "read-failed") };
      if (fault) return { ok: false, ...refusal("transient", "rate-limited"), retryAfterMs: 45_000 };
      return { ok: true, value: OK };
    });
  }

  async send(call: RecordedCall): Promise<SendAnswer> {
    // The host's own door: what was decided under another config does not leave.
    if (this.access.configVersion(call.connection) !== call.configVersion)
      return this.#kernel.task("not sent: configured anew", () => failed("transient", "connection-changed"));
    const decision = await this.#kernel.task(`world receives ${call.tool} ${call.args}`, () =>
      this.#receive(call),
    );
    const fault = this.#sendFault(decision);
    const { life } = this.#kernel;
    const answer = (label: string, said: SendAnswer) => {
      if (this.#kernel.life !== life) return new Promise<never>(() => {});
      decision.provenUnsent = said.outcome === "failed";
      return this.#kernel.task(`world answers: ${label}`, () => said);
    };
    // What a key has made happen it does not make happen again, and says so.
    const { proof } = MUTATIONS[decision.tool];
    if (proof === "key" && this.#honoured.has(decision.key) && !fault) return answer("as before", APPLIED);
    if (this.revoked || fault === "unauthorised") {
      this.revoked = true;
      return answer("unauthorised", failed("auth", "unauthorised"));
    }
    if (!this.#matches(call)) return answer("not as it was", failed("precondition", "http-412"));
    switch (fault) {
      case "refused":
        return answer("refused", failed("transient", "connection-refused"));
      case "rejected":
        return answer("rejected", failed("logic", "http-422"));
      case "limited":
        this.#wishes.set(chainOf(call), { untilMs: this.#kernel.nowMs() + WISH_MS, acts: this.humanActs });
        return answer("limited", { ...failed("transient", "rate-limited"), retryAfterMs: WISH_MS });
      case "timeout before the effect":
        return answer("nothing", LOST);
      case "late effect":
        void this.#effect(decision, this.#kernel.dice.between(1, SETTLE_MS - 5_000), call.before);
        return answer("nothing, and acts later", LOST);
      case "timeout after the effect":
        await this.#effect(decision);
        return answer("nothing, having acted", LOST);
      case "5xx after the effect":
        await this.#effect(decision);
        return answer("502, having acted", { ...LOST, code: "http-502" });
      case "late answer":
        await this.#effect(decision);
        await this.#kernel.later(TOO_LATE_MS, "world thinks", () => undefined);
        return answer("applied, at last", APPLIED);
      case "late refusal":
        await this.#kernel.later(TOO_LATE_MS, "world thinks", () => undefined);
        return answer("refused, at last", failed("transient", "connection-refused"));
      case "garbage":
        await this.#effect(decision);
        return answer("garbage, having acted", { ...APPLIED, resultInvalid: true, raw: "<html>" });
      case undefined:
        await this.#effect(decision);
        return answer("applied", APPLIED);
    }
  }

  /** Asked at the moment of the answer; late effects make an early `notApplied` wrong, which is why nobody may believe it. */
  async check(call: RecordedCall): Promise<CheckAnswer> {
    if (this.#fault(["check hangs"])) return new Promise<never>(() => {});
    if (this.#fault(["check answers too late"]))
      await this.#kernel.later(TOO_LATE_MS, "world thinks about a check", () => undefined);
    await this.#kernel.task(`world is asked about ${call.tool}`, () => undefined);
    const fault = this.#fault(CHECK_FAULTS);
    if (fault === "check unauthorised") this.revoked = true;
    if (this.revoked) return this.#kernel.task("world says: unauthorised", () => ({ says: "auth" as const }));
    if (fault === "check throws")
      return this.#kernel.task("world breaks down over a check", () => {
        throw new Error("the check threw");
      });
    if (fault) return this.#kernel.task("world says: unsure", () => ({ says: "unsure" as const }));
    const { proof } = MUTATIONS[call.tool as MutationTool];
    if (proof === "key") return this.#resend(call);
    return this.#kernel.task("world says whether it happened", () => {
      this.answeredUnder.set(call.idempotencyKey, this.access.configVersion(call.connection));
      if (proof === "conditional") return this.#compared(call);
      const happened = (this.#byKey.get(call.idempotencyKey)?.effects ?? 0) > 0;
      this.#kernel.count(happened ? "check applied" : "check notApplied");
      return happened ? { says: "applied" as const, result: OK } : { says: "notApplied" as const };
    });
  }

  /** Nobody knows who has changed what is not as it was. */
  #compared(call: RecordedCall): CheckAnswer {
    const same = call.before !== undefined && this.#matches(call);
    this.#kernel.count(same ? "check unchanged" : "check changed");
    return { says: same ? "notApplied" : "unsure" };
  }

  #matches({ workflow, before }: Pick<RecordedCall, "workflow" | "before">): boolean {
    return before === undefined || before === String(this.#editions.get(workflow) ?? 1);
  }

  /** Class `key`: the check is the same bytes again. */
  async #resend(call: RecordedCall): Promise<CheckAnswer> {
    this.#kernel.count("re-send");
    const answer = await this.send(call);
    if (answer.outcome === "applied") return { says: "applied", result: OK };
    return answer.class === "auth" ? { says: "auth" } : { says: "unsure" };
  }

  #receive(call: RecordedCall): SentDecision {
    const row = this.onSend(call);
    const decision = this.decisions.get(row) ?? {
      row,
      tool: call.tool as MutationTool,
      workflow: call.workflow,
      args: call.args,
      key: call.idempotencyKey,
      sends: 0,
      effects: 0,
      provenUnsent: false,
    };
    if (decision.key !== call.idempotencyKey || decision.args !== call.args)
      this.problem(`invariant 8: row ${row} was sent again with other bytes or another key`);
    const { proof } = MUTATIONS[decision.tool];
    if (decision.sends > 0 && proof !== "key" && !decision.provenUnsent)
      this.problem(`invariant 8: row ${row} was sent again although it may have happened`);
    const wish = this.#wishes.get(chainOf(call));
    if (wish && this.#kernel.nowMs() < wish.untilMs && wish.acts === this.humanActs)
      this.problem(`invariant 21: ${call.tool} was tried again before the time that the server asked for`);
    decision.provenUnsent = false;
    decision.sends++;
    this.decisions.set(row, decision);
    this.#byKey.set(call.idempotencyKey, decision);
    return decision;
  }

  /** Survives the host: bytes that have left cannot be called back. */
  #effect(decision: SentDecision, delayMs = 0, before?: string): Promise<void> {
    const { key, tool, row, workflow } = decision;
    return this.#kernel.later(
      delayMs,
      `world acts on row ${row}`,
      () => {
        if (MUTATIONS[tool].proof === "key" && this.#honoured.has(key)) return;
        if (tool === "swap") {
          if (!this.#matches({ workflow, ...(before === undefined ? {} : { before }) })) return;
          this.#editions.set(workflow, Number(this.#editions.get(workflow) ?? 1) + 1);
        }
        this.#honoured.add(key);
        decision.effects++;
        if (decision.effects > 1) this.problem(`invariant 10: row ${row} had ${decision.effects} effects`);
      },
      true,
    );
  }

  /** Trouble seldom comes alone: what is sent again is more likely to go unanswered. */
  #sendFault({ sends }: SentDecision): (typeof SEND_FAULTS)[number] | undefined {
    const stormy = Object.keys(this.weather).length > 0;
    if (sends > 1 && stormy && this.#kernel.dice.hits(0.3)) return "timeout after the effect";
    return this.#fault(SEND_FAULTS);
  }

  /** Somebody else changes what `swap` looks at. */
  strange(workflow: number): void {
    if (this.#fault(["stranger"])) this.#editions.set(workflow, (this.#editions.get(workflow) ?? 1) + 1);
  }

  #fault<Fault extends WorldFault>(faults: readonly Fault[]): Fault | undefined {
    const fault = faults.find((one) => this.#kernel.dice.hits(this.weather[one] ?? 0));
    if (fault !== undefined) this.#kernel.count(fault);
    return fault;
  }
}

const chainOf = ({ workflow, args }: RecordedCall): string => `${workflow} ${args}`;

const refusal = (kind: "transient" | "auth" | "logic" | "precondition", code: string): ToolFailure => ({
  class: kind,
  code,
  message: code,
});

const failed = (kind: "transient" | "auth" | "logic" | "precondition", code: string) => ({
  outcome: "failed" as const,
  ...refusal(kind, code),
  raw: "{}",
});

const APPLIED = { outcome: "applied" as const, result: OK, raw: OK };

const LOST = {
  outcome: "unknown" as const,
  ...refusal("transient", "no-answer"),
  message: "the connection was lost",
  raw: "{}",
};
