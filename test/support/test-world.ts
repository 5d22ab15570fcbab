/** An outside world whose every answer a test writes, and which remembers what it was asked. */
import type { ErrorClass } from "../../host/core/errors.ts";
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

const MUTATIONS = ["post", "put", "send"];

type Or<Answer> = Answer | Promise<Answer>;

export const ok = (body: unknown = {}): ReadAnswer => ({ ok: true, value: JSON.stringify(body) });
export const readFails = (kind: ErrorClass, code = "nope"): ReadAnswer => ({
  ok: false,
  class: kind,
  code,
  message: `read: ${code}`,
});
export const applied = (body: unknown = { done: true }): SendAnswer => ({
  outcome: "applied",
  result: JSON.stringify(body),
  raw: JSON.stringify(body),
});
export const failed = (kind: ErrorClass, more: Partial<ToolFailure> = {}): SendAnswer => ({
  outcome: "failed",
  class: kind,
  code: "refused",
  message: "the service said no",
  raw: '{"said":"no"}',
  ...more,
});
export const unknown = (): SendAnswer => ({
  outcome: "unknown",
  class: "transient",
  code: "reset",
  message: "the connection broke",
  raw: '{"reset":true}',
});

/** A promise that a test opens when it likes. */
export function gate<Value = void>(): { promise: Promise<Value>; open: (value: Value) => void } {
  const { promise, resolve } = Promise.withResolvers<Value>();
  return { promise, open: resolve };
}

export class TestWorld implements World {
  readonly reads: ToolCall[] = [];
  readonly sent: RecordedCall[] = [];
  readonly checked: RecordedCall[] = [];
  /** What stands behind every alias, mutations. */
  tool_: Partial<Tool> = {};
  missing: ToolFailure | undefined;
  onRead: (call: ToolCall, nth: number) => Or<ReadAnswer> = () => ok();
  onSend: (call: RecordedCall, nth: number) => Or<SendAnswer> = () => applied();
  onCheck: (call: RecordedCall, nth: number) => Or<CheckAnswer> = () => ({ says: "unsure" });

  /** Arguments of what was sent, in order. */
  get args(): unknown[] {
    return this.sent.map((call) => JSON.parse(call.args) as unknown);
  }

  async tool({ alias, tool }: Pick<ToolCall, "alias" | "tool">): Promise<Tool | ToolFailure> {
    if (!MUTATIONS.includes(tool))
      return {
        kind: "read",
        connection: alias,
        configVersion: 1,
        grant: "allow",
        proof: "none",
        canCheck: false,
        settleMs: 0,
      };
    return (
      this.missing ?? {
        kind: "mutation",
        connection: alias,
        configVersion: 1,
        grant: "allow",
        proof: "lookup",
        canCheck: true,
        settleMs: 30_000,
        ...this.tool_,
      }
    );
  }

  async describe({ alias, tool, args }: ToolCall): Promise<string> {
    return `${alias}.${tool} ${args}`;
  }

  async fingerprint({ args }: RecordedCall): Promise<string> {
    return `bytes of ${args}`;
  }

  async read(call: ToolCall): Promise<ReadAnswer> {
    this.reads.push(call);
    return this.onRead(call, this.reads.length);
  }

  async send(call: RecordedCall): Promise<SendAnswer> {
    this.sent.push(call);
    return this.onSend(call, this.sent.length);
  }

  async check(call: RecordedCall): Promise<CheckAnswer> {
    this.checked.push(call);
    return this.onCheck(call, this.checked.length);
  }
}
