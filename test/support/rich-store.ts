/**
 * A store in which every kind of row and every kind of state stands: several workflows in two namespaces, chains that
 * committed, retried, crashed, wait for a person, for a check and for a time, slots, states, and decisions of people.
 */
import type { SqliteStore } from "../../host/store/open.ts";
import { type Command, Model } from "./model.ts";

const of = (op: Command["op"], a: number, b = 0): Command => ({ op, a, b });
/** Meanings of the numbers are `model.ts`'s: what the run does next is chosen by `a`. */
const RESERVE = of("work", 0);
const INTENT = of("work", 1);
const SEND = of("work", 1);
const APPLIED = of("work", 1);
const ON = of("work", 1);
const COMMIT = of("work", 1, 3);
const TICK = of("tick", 0);
const WHOLE = [TICK, RESERVE, INTENT, SEND, APPLIED, ON, COMMIT];
const NOTHING = [TICK, of("work", 2), ON, of("work", 0, 3)];
const PRODUCE = [TICK, of("work", 0, 3)];

const STORIES: readonly (readonly Command[])[] = [
  // Commits, a due producer with older points, a crash past the boundary, then idle and triggered.
  [
    of("publish", 0, 3),
    ...WHOLE,
    ...WHOLE.slice(0, -1),
    of("crash", 1),
    TICK,
    COMMIT,
    ...NOTHING,
    ...NOTHING,
    ...PRODUCE,
    of("time", 4),
    ...PRODUCE,
    of("time", 4),
    ...PRODUCE,
    of("state", 1, 1),
    of("publish", 0, 4),
    of("publish", 4, 4),
  ],
  // Waits for a check, after a crash in flight.
  [...WHOLE, TICK, RESERVE, INTENT, SEND, of("crash", 1)],
  // Waits for an approval.
  [...WHOLE, TICK, RESERVE, INTENT, of("work", 0)],
  // Waits for a retry, after one.
  [TICK, RESERVE, INTENT, SEND, of("fail", 0, 2), of("time", 1), TICK, RESERVE, INTENT, of("fail", 0, 2)],
  // A producer that failed and waits for a person; version 2.
  [...NOTHING, of("deploy", 0), ...WHOLE, ...NOTHING, ...NOTHING, TICK, of("fail", 1)],
];

export async function richStore(store: SqliteStore): Promise<Model[]> {
  const models: Model[] = [];
  for (const story of STORIES) {
    const model = new Model(store);
    await model.play([of("time", 0), ...story]);
    models.push(model);
  }
  return models;
}
