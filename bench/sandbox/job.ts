/**
 * The one job that every contender does: two calls of the consumer beside this file (`prepare` with one peek and the
 * intent of `mutate`; then, as if the host had carried it out, `next` with one publish), and their results as data.
 *
 * J1. Whoever runs the script gets the same text in and is read by the same decoder.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  DEFAULT_LIMITS,
  type Intent,
  type Publish,
  type SandboxCall,
  type Scope,
  type Script,
} from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { decodeDone, decodeLogs } from "../../host/sandbox/decode.ts";
import type { Pool } from "../../host/sandbox/pool.ts";
import { invocation } from "../../host/sandbox/tenancy.ts";

export const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5);

/** What a run must come to, the same for everyone. */
export interface Product {
  intent: Intent;
  publishes: Publish[];
}

/** One call across a boundary: the invocation as text in; logs and result as text out. */
export type Enter = (request: string) => Promise<{ logs: string; json: string }>;

export async function compiledConsumer(): Promise<Script> {
  const source = readFileSync(join(import.meta.dirname, "consumer.ts.txt"), "utf8");
  return compiledSource(source, "consumer.ts");
}

export async function compiledSource(source: string, file: string): Promise<Script> {
  const made = await compileScript({ source, language: "ts", file, nowMs: NOW_MS });
  if (!made.ok) throw new Error(made.problems.map((one) => `${one.code} ${one.message}`).join("\n"));
  return { ...made.script, namespace: "bench", version: 1 };
}

export const order = {
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
const EVENTS = JSON.stringify([
  { messageId: order.id, payload: order, publishedAt: "2026-01-02T03:04:00.000Z" },
]);
const OUTCOME = { status: "applied", result: { status: 201, headers: {}, body: { id: "entry-1" } } };

type BenchCall = Omit<SandboxCall, "scope">;

function firstCall(script: Script): BenchCall {
  return {
    script,
    unit: "prepare+mutate",
    handler: "book",
    run: { id: "run_1", attempt: 1 },
    nowMs: NOW_MS,
    seed: "bench",
    params: JSON.stringify({ book: "main" }),
    peek: { "order.placed": { events: EVENTS, count: 1, complete: true } },
  };
}

function secondCall(script: Script, prepared: string): BenchCall {
  const { peek: _, ...same } = firstCall(script);
  return { ...same, unit: "next", prepared, outcome: JSON.stringify(OUTCOME) };
}

/** One run through the real pool. */
export async function runInPool(pool: Pool, script: Script, scope: Scope): Promise<Product> {
  const unasked = (): never => {
    throw new Error("the bench ships everything with the call");
  };
  const first = await pool.run({ ...firstCall(script), scope }, unasked);
  if (first.status !== "done" || !first.prepared || !first.intent) throw new Error(JSON.stringify(first));
  const last = await pool.run({ ...secondCall(script, first.prepared.json), scope }, unasked);
  if (last.status !== "done") throw new Error(JSON.stringify(last));
  return { intent: first.intent, publishes: last.publishes };
}

/** One run through any other boundary (J1). */
export async function runThrough(enter: Enter, script: Script): Promise<Product> {
  const one = async (call: BenchCall) => {
    const { logs, json } = await enter(invocation(call, DEFAULT_LIMITS));
    decodeLogs(`[${logs}]`, DEFAULT_LIMITS);
    return decodeDone(call, DEFAULT_LIMITS, json);
  };
  const { intent, prepared } = await one(firstCall(script));
  if (!intent || !prepared) throw new Error("no intent");
  const { publishes } = await one(secondCall(script, prepared.json));
  return { intent, publishes };
}
