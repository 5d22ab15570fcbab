/**
 * How many pending events travel with a `prepare`, so that its `peek` needs no round trip: as many as its version has
 * asked for before. Who looks at one event at a time is not sent a hundred of them for each run.
 *
 * S1. What travels is the oldest pending, and says whether it is all of them; whoever wants more asks, and gets more
 *     from the next run on. So a wrong guess costs one round trip, once.
 * S2. Nothing is decided on it, and nothing of it outlives the process.
 */
import type { RunFacts } from "../core/facts.ts";
import type { DeliveryId } from "../core/ids.ts";
import type { Manifest } from "../core/workflow.ts";
import type { SandboxCall } from "../ports/sandbox.ts";
import type { Parts } from "./parts.ts";

const FIRST = 1;
const MOST = 100;
const KEPT = 10_000;

export interface Shipped {
  peek: NonNullable<SandboxCall["peek"]>;
  ids: Record<string, { deliveries: number[]; complete: boolean }>;
  /** Topic → messageId → what stood for it when it was sent. */
  known: Map<string, Map<string, DeliveryId>>;
}

export class Shipping {
  readonly #asked = new Map<string, number>();

  async ship(parts: Parts, facts: RunFacts, { consumers }: Manifest): Promise<Shipped> {
    const { handler } = facts;
    const peek: Shipped["peek"] = {};
    const ids: Shipped["ids"] = {};
    const known: Shipped["known"] = new Map();
    for (const topic of consumers[handler.name]?.subscribes ?? []) {
      const most = this.#asked.get(keyOf(facts, topic)) ?? FIRST;
      const found = await parts.store.pending(handler.id, topic, { limit: most + 1 });
      const events = found.slice(0, most);
      const complete = found.length <= most;
      peek[topic] = { events: pendingJson(events), count: events.length, complete };
      known.set(topic, new Map(events.map((one) => [one.messageId, one.delivery])));
      ids[topic] = { deliveries: events.map((one) => one.delivery), complete };
    }
    return { peek, ids, known };
  }

  /** A script asked for more than it was sent (S1). */
  asked(facts: RunFacts, topic: string, limit: number): void {
    const key = keyOf(facts, topic);
    const most = Math.min(MOST, Math.max(Math.floor(limit), this.#asked.get(key) ?? FIRST));
    this.#asked.delete(key);
    if (this.#asked.size >= KEPT) this.#asked.delete(this.#asked.keys().next().value as string);
    this.#asked.set(key, most);
  }
}

export function pendingJson(
  found: readonly { messageId: string; payload: string; publishedAtMs: number }[],
): string {
  const items = found.map(
    (one) =>
      `{"messageId":${JSON.stringify(one.messageId)},"payload":${one.payload},"publishedAt":"${new Date(one.publishedAtMs).toISOString()}"}`,
  );
  return `[${items.join(",")}]`;
}

const keyOf = ({ handler, run }: RunFacts, topic: string): string => `${handler.id}/${run.version}/${topic}`;
