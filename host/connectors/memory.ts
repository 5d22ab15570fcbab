/**
 * A world in memory: for tests, examples and `pawl dev`. Every alias is bound; reads are answered by a function, changes
 * are remembered and answered by another.
 */
import { createHash } from "node:crypto";
import type {
  CheckAnswer,
  GrantMode,
  ReadAnswer,
  RecordedCall,
  SendAnswer,
  Tool,
  ToolCall,
  ToolFailure,
  World,
} from "../ports/connector.ts";

const MUTATIONS = new Set(["post", "put", "patch", "delete", "send", "write", "publish"]);

export interface MemoryWorldOptions {
  grant?: GrantMode;
  read?: (call: ToolCall) => ReadAnswer | Promise<ReadAnswer>;
  send?: (call: RecordedCall) => SendAnswer | Promise<SendAnswer>;
  check?: (call: RecordedCall) => CheckAnswer | Promise<CheckAnswer>;
}

export class MemoryWorld implements World {
  /** Every change that was let through, in order. */
  readonly sent: RecordedCall[] = [];
  readonly #options: MemoryWorldOptions;

  constructor(options: MemoryWorldOptions = {}) {
    this.#options = options;
  }

  async tool({ alias, tool }: Pick<ToolCall, "alias" | "tool">): Promise<Tool | ToolFailure> {
    const kind = MUTATIONS.has(tool) ? "mutation" : "read";
    return {
      kind,
      connection: alias,
      configVersion: 1,
      grant: this.#options.grant ?? "allow",
      proof: this.#options.check ? "lookup" : "none",
      canCheck: this.#options.check !== undefined,
      settleMs: 30_000,
    };
  }

  async describe({ alias, tool }: ToolCall): Promise<string> {
    return `${alias}.${tool}`;
  }

  async fingerprint({ alias, tool, args }: RecordedCall): Promise<string> {
    return createHash("sha256").update(`${alias}.${tool} ${args}`).digest("base64url");
  }

  async read(call: ToolCall): Promise<ReadAnswer> {
    if (this.#options.read) return this.#options.read(call);
    return { ok: true, value: '{"status":200,"headers":{},"body":{}}' };
  }

  async send(call: RecordedCall): Promise<SendAnswer> {
    this.sent.push(call);
    if (this.#options.send) return this.#options.send(call);
    const result = '{"status":200,"headers":{},"body":{}}';
    return { outcome: "applied", result, raw: result };
  }

  async check(call: RecordedCall): Promise<CheckAnswer> {
    return this.#options.check ? this.#options.check(call) : { says: "unsure" };
  }
}
