/**
 * Tests only: a server on this machine stands for the outside world, so that a test can count what really happened while
 * the host is killed. Reads are `GET /read/<alias>/<tool>`, changes `POST /send/<alias>/<tool>` with their idempotency key,
 * checks `GET /check/<key>`. Nothing but a loopback address is accepted.
 */
import { createHash } from "node:crypto";
import type {
  CheckAnswer,
  ReadAnswer,
  RecordedCall,
  SendAnswer,
  Tool,
  ToolCall,
  ToolFailure,
  World,
} from "../ports/connector.ts";

const LOOPBACK = ["127.0.0.1", "[::1]", "localhost"];

export class LoopbackWorld implements World {
  readonly #origin: string;

  constructor(url: string) {
    const { hostname, origin } = new URL(url);
    if (!LOOPBACK.includes(hostname))
      throw new Error(`the test world must be on this machine, not ${hostname}`);
    this.#origin = origin;
  }

  async tool({ alias, tool }: Pick<ToolCall, "alias" | "tool">): Promise<Tool | ToolFailure> {
    return {
      kind: tool === "get" ? "read" : "mutation",
      connection: alias,
      configVersion: 1,
      grant: "allow",
      proof: "lookup",
      canCheck: true,
      settleMs: 20,
    };
  }

  async describe({ alias, tool }: ToolCall): Promise<string> {
    return `${alias}.${tool} on the test world`;
  }

  async fingerprint({ args }: RecordedCall): Promise<string> {
    return createHash("sha256").update(args).digest("base64url");
  }

  async read({ alias, tool, args, signal }: ToolCall): Promise<ReadAnswer> {
    try {
      const query = new URLSearchParams({ args });
      const answer = await fetch(
        `${this.#origin}/read/${alias}/${tool}?${query.toString()}`,
        signal ? { signal } : {},
      );
      if (answer.ok) return { ok: true, value: await answer.text() };
      return {
        ok: false,
        class: "transient",
        code: `http-${answer.status}`,
        message: `the test world said ${answer.status}`,
      };
    } catch (error) {
      return { ok: false, class: "transient", code: "unreachable", message: (error as Error).message };
    }
  }

  async send({ alias, tool, args, idempotencyKey }: RecordedCall): Promise<SendAnswer> {
    try {
      const answer = await fetch(`${this.#origin}/send/${alias}/${tool}`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": idempotencyKey },
        body: args,
      });
      const raw = await answer.text();
      if (answer.ok) return { outcome: "applied", result: raw, raw };
      const failure = {
        class: "transient" as const,
        code: `http-${answer.status}`,
        message: `the test world said ${answer.status}`,
        raw: JSON.stringify(raw),
      };
      return answer.status === 409 ? { outcome: "failed", ...failure } : { outcome: "unknown", ...failure };
    } catch (error) {
      const message = (error as Error).message;
      return {
        outcome: "unknown",
        class: "transient",
        code: "no-answer",
        message,
        raw: JSON.stringify(message),
      };
    }
  }

  async check({ idempotencyKey }: RecordedCall): Promise<CheckAnswer> {
    try {
      const answer = await fetch(`${this.#origin}/check/${encodeURIComponent(idempotencyKey)}`);
      if (answer.status === 404) return { says: "notApplied" };
      return answer.ok ? { says: "applied", result: await answer.text() } : { says: "unsure" };
    } catch {
      return { says: "unsure" };
    }
  }
}
