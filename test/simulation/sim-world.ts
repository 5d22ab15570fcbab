/**
 * The outside world, which never forgets: it counts the true effects of every decision, whatever the host believes. Its
 * faults lie before and after the effect; a call may have its effect after the host that made it is dead.
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

export interface WorldFaults {
  /** Chances in [0, 1]. */
  refused: number;
  lostBefore: number;
  lostAfter: number;
  late: number;
  unauthorised: number;
  readFails: number;
  checkUnsure: number;
}

export const HEALTHY: WorldFaults = {
  refused: 0,
  lostBefore: 0,
  lostAfter: 0,
  late: 0,
  unauthorised: 0,
  readFails: 0,
  checkUnsure: 0,
};

const OK = '{"status":200,"headers":{},"body":{}}';

export class SimWorld implements World {
  /** Idempotency key → how often it really happened. */
  readonly effects = new Map<string, number>();
  /** What was asked of the world, in order. */
  readonly sends: RecordedCall[] = [];
  /** Sends in the current life of the host whose row had not been durable; must stay empty. */
  readonly early: string[] = [];
  faults: WorldFaults = HEALTHY;
  canCheck = true;
  isDurable: (call: RecordedCall) => boolean = () => true;
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  async tool({ alias, tool }: Pick<ToolCall, "alias" | "tool">): Promise<Tool | ToolFailure> {
    return {
      kind: tool === "post" ? "mutation" : "read",
      connection: alias,
      configVersion: 1,
      grant: "allow",
      proof: this.canCheck ? "lookup" : "none",
      canCheck: this.canCheck,
      settleMs: 30_000,
    };
  }

  async describe({ alias, tool }: ToolCall): Promise<string> {
    return `${alias}.${tool}`;
  }

  async fingerprint({ args }: RecordedCall): Promise<string> {
    return args;
  }

  read(call: ToolCall): Promise<ReadAnswer> {
    return this.#kernel.task(`world read ${call.tool}`, () =>
      this.#kernel.dice.hits(this.faults.readFails)
        ? { ok: false as const, class: "transient" as const, code: "read-failed", message: "no answer" }
        : { ok: true as const, value: OK },
    );
  }

  async send(call: RecordedCall): Promise<SendAnswer> {
    const { dice } = this.#kernel;
    const { faults } = this;
    this.sends.push(call);
    if (!this.isDurable(call)) this.early.push(call.idempotencyKey);
    const roll = (probability: number) => dice.hits(probability);
    if (roll(faults.refused)) return this.#answer("refused", failed("transient", "connection-refused"));
    if (roll(faults.unauthorised)) return this.#answer("unauthorised", failed("auth", "unauthorised"));
    if (roll(faults.lostBefore)) return this.#answer("lost before the effect", lost());
    if (roll(faults.lostAfter)) {
      await this.#effect(call);
      return this.#answer("lost after the effect", lost());
    }
    if (roll(faults.late)) {
      void this.#effect(call);
      return this.#answer("no answer, effect on its way", lost());
    }
    await this.#effect(call);
    return this.#answer("applied", { outcome: "applied", result: OK, raw: OK });
  }

  check(call: RecordedCall): Promise<CheckAnswer> {
    return this.#kernel.task("world check", () => {
      if (this.#kernel.dice.hits(this.faults.checkUnsure)) return { says: "unsure" as const };
      return (this.effects.get(call.idempotencyKey) ?? 0) > 0
        ? { says: "applied" as const, result: OK }
        : { says: "notApplied" as const };
    });
  }

  /** Survives the host: bytes that have left cannot be called back. */
  #effect({ idempotencyKey }: RecordedCall): Promise<void> {
    return this.#kernel.task(
      `world effect ${idempotencyKey}`,
      () => void this.effects.set(idempotencyKey, (this.effects.get(idempotencyKey) ?? 0) + 1),
      true,
    );
  }

  #answer(label: string, answer: SendAnswer): Promise<SendAnswer> {
    return this.#kernel.task(`world ${label}`, () => answer);
  }
}

const failed = (kind: "transient" | "auth", code: string): SendAnswer => ({
  outcome: "failed",
  class: kind,
  code,
  message: code,
  raw: "{}",
});

const lost = (): SendAnswer => ({
  outcome: "unknown",
  class: "transient",
  code: "no-answer",
  message: "the connection was lost",
  raw: "{}",
});
