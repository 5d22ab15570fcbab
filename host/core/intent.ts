/**
 * The identity of an outside change: its key, and whether the script asks for the same thing when it asks again (02
 * §5.4). Scripts never see the key.
 *
 * K1. The same decision has the same key, however its arguments are ordered.
 * K2. The key changes after a failure only if the connector proved it: a person may be wrong, and then the old key is
 *     what keeps the change from being made twice.
 */
import type { DeliveryId, RunId } from "./ids.ts";
import type { Hash } from "./journal.ts";
import type { Mutation } from "./mutation.ts";
import type { Run } from "./run.ts";
import type { Json, JsonText } from "./workflow.ts";

export interface Intent {
  rootId: RunId;
  connection: string;
  tool: string;
  args: JsonText;
  n: number;
}

export function idempotencyKey({ rootId, connection, tool, args, n }: Intent, hash: Hash): string {
  return hash(JSON.stringify([rootId, connection, tool, canonical(JSON.parse(args) as Json), n])); // (K1)
}

/** The same text for the same value. */
export function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const fields = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonical(value[key] as Json)}`);
  return `{${fields.join(",")}}`;
}

/** `n` of the chain's next decision, from its last one and the run that owned it. (K2) */
export function nextN(last: { mutation: Mutation; run: Pick<Run, "resolution"> } | undefined): number {
  if (!last) return 0;
  const { mutation, run } = last;
  const proved =
    mutation.status === "failed" && !mutation.notSent && run.resolution?.action !== "not-applied";
  return proved ? mutation.n + 1 : mutation.n;
}

/** One attempt of a chain: what it reserved and what it then asked for. */
export interface StatedIntent {
  reserved: readonly DeliveryId[];
  connection: string;
  tool: string;
  args: JsonText;
}

/** The warning `unstable-intent`: for the same deliveries the script asks for something else each time. */
export function isUnstable(attempts: readonly StatedIntent[]): boolean {
  const last = attempts.at(-1);
  if (!last) return false;
  const same = attempts.filter(
    (one) => one.tool === last.tool && one.connection === last.connection && sameIds(one, last),
  );
  if (same.length < 2) return false;
  const texts = new Set(same.map((one) => canonical(JSON.parse(one.args) as Json)));
  return texts.size === same.length;
}

function sameIds(a: StatedIntent, b: StatedIntent): boolean {
  const held = new Set(a.reserved);
  return a.reserved.length === b.reserved.length && b.reserved.every((id) => held.has(id));
}
