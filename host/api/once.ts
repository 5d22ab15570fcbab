/**
 * A request with an Idempotency-Key is made once: the same key and the same bytes again get the first answer, for a day.
 *
 * O1. That it was begun is on record before it does anything; when its answer was lost with the host, the same key is told
 *     so instead of doing it again.
 * O2. The same key for other bytes is refused.
 * O3. Two at once: the second waits for the first.
 * O4. An answer that shows something once is not kept: the same key is told that it was made.
 * O5. What failed on the host's side may be tried again with the same key.
 */
import { createHash } from "node:crypto";
import type { Answers } from "../ports/principals.ts";
import { Refusal } from "./problems.ts";

export interface Said {
  status: number;
  text: string;
}

const KEEP_MS = 86_400_000;
const KEY = /^[\x21-\x7e]{1,255}$/;

export interface Request {
  principal: string;
  key: string;
  /** Method, path and query. */
  target: string;
  bytes: Uint8Array;
  isSecret: boolean;
  nowMs: number;
}

export class Once {
  readonly #answers: () => Answers;
  readonly #pending = new Map<string, Promise<unknown>>();

  constructor(answers: () => Answers) {
    this.#answers = answers;
  }

  async make(request: Request, make: () => Promise<Said>): Promise<Said> {
    const { principal, key } = request;
    if (!KEY.test(key))
      throw new Refusal("request-invalid", "an Idempotency-Key is 1 to 255 visible characters", {
        path: "Idempotency-Key",
      });
    const name = JSON.stringify([principal, key]);
    for (let before = this.#pending.get(name); before; before = this.#pending.get(name)) await before; // (O3)
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#pending.set(name, promise);
    try {
      return await this.#make(request, make);
    } finally {
      this.#pending.delete(name);
      resolve();
    }
  }

  async #make(
    { principal, key, target, bytes, isSecret, nowMs }: Request,
    make: () => Promise<Said>,
  ): Promise<Said> {
    const answers = this.#answers();
    const hash = createHash("sha256").update(target).update("\n").update(bytes).digest("hex");
    const begun = await answers.begin({ principal, key, hash }, { nowMs, keepMs: KEEP_MS }); // (O1)
    if (begun.is === "other")
      throw new Refusal("key-reused", "this Idempotency-Key was used for another request"); // (O2)
    if (begun.is === "lost")
      throw new Refusal("key-lost", "a request with this key was begun, and its answer is not known");
    if (begun.is === "known") {
      if (begun.body !== undefined) return { status: begun.status, text: begun.body };
      throw new Refusal("key-lost", "it was made with this key; its answer is shown once"); // (O4)
    }
    let said: Said;
    try {
      said = await make();
    } catch (error) {
      await answers.forget(principal, key); // (O5)
      throw error;
    }
    if (said.status >= 500) await answers.forget(principal, key);
    else if (isSecret) await answers.finish(principal, key, { status: said.status });
    else await answers.finish(principal, key, { status: said.status, body: said.text });
    return said;
  }
}
