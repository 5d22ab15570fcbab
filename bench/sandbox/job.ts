/** The one job that every contender does: the calls of one run of the consumer beside this file, and their results. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Scope, Script } from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import type { Pool } from "../../host/sandbox/pool.ts";

export const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5);
export const PARAMS = { book: "main" };
export const OUTCOME = { status: "applied", result: { status: 201, headers: {}, body: { id: "entry-1" } } };

/** What a run must come to, the same for everyone. */
export interface Product {
  intent: { alias: string; tool: string; args: unknown };
  publishes: { topic: string; messageId: string; payload: unknown }[];
}

export async function compiledConsumer(): Promise<Script> {
  const source = readFileSync(join(import.meta.dirname, "consumer.ts.txt"), "utf8");
  return compiledSource(source, "consumer.ts");
}

export async function compiledSource(source: string, file: string): Promise<Script> {
  const made = await compileScript({ source, language: "ts", file, nowMs: NOW_MS });
  if (!made.ok) throw new Error(made.problems.map((one) => `${one.code} ${one.message}`).join("\n"));
  return { ...made.script, namespace: "bench", version: 1 };
}

const order = {
  id: "order-1",
  customer: { name: "Ada Lovelace", email: "ada@example.com", country: "AT" },
  currency: "EUR",
  couponCents: 500,
  lines: ["Difference  engine", "Punch cards", "Brass gear", "Notebook"].map((title, i) => ({
    sku: `AB-${1000 + i}`,
    title,
    quantity: i + 1,
    unitCents: 129_900 - i * 31_000,
    taxRate: i === 3 ? 7 : 19,
  })),
};
export const EVENTS = JSON.stringify([
  { messageId: order.id, id: order.id, payload: order, publishedAt: "2026-01-02T03:04:00.000Z" },
]);

/** One run through the pool: the intent first, then, as if the host had carried it out, what follows. */
export async function runInPool(pool: Pool, script: Script, scope: Scope): Promise<Product> {
  const call = {
    script,
    handler: "book",
    run: { id: "run_1", attempt: 1 },
    nowMs: NOW_MS,
    seed: "bench",
    scope,
  };
  const params = JSON.stringify(PARAMS);
  const peek = { "order.placed": { events: EVENTS, count: 1, complete: true } };
  const unasked = async (): Promise<never> => {
    throw new Error("the bench ships everything with the call");
  };
  const first = await pool.run({ ...call, unit: "prepare+mutate", params, peek }, unasked);
  if (first.status !== "done" || !first.prepared || !first.intent) throw new Error(JSON.stringify(first));
  const prepared = first.prepared.json;
  const outcome = JSON.stringify(OUTCOME);
  const last = await pool.run({ ...call, unit: "next", params, prepared, outcome }, unasked);
  if (last.status !== "done") throw new Error(JSON.stringify(last));
  return {
    intent: { ...first.intent, args: JSON.parse(first.intent.args) },
    publishes: last.publishes.map(({ topics, messageId, payload }) => ({
      topic: topics[0] ?? "",
      messageId,
      payload: JSON.parse(payload),
    })),
  };
}
