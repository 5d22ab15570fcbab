import { isDeepStrictEqual } from "node:util";
import { describe, expect, test } from "vitest";
import {
  again,
  commit,
  emitting,
  intended,
  mutated,
  prepared,
  sending,
  withoutCall,
} from "../../host/core/advance.ts";
import type { Change, Write } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import { fail } from "../../host/core/fail.ts";
import { follow, type RunFacts } from "../../host/core/facts.ts";
import { type Effect, type Entry, journalOf, runFace } from "../../host/core/journal.ts";
import { rebuild } from "../../host/core/rebuild.ts";
import { recover } from "../../host/core/recover.ts";
import { claim } from "../../host/core/retry.ts";
import { start } from "../../host/core/start.ts";
import { attempt, consumer, created, error, HALT, ID, NOW, row, workflow } from "../support/facts.ts";

const hash = (text: string) => `#${Buffer.from(text).toString("hex")}`;

/** A run driven by the verbs alone, with everything it wrote in its journal. */
class Tape {
  facts: RunFacts;
  readonly entries: Entry[] = [];

  constructor(fused = true, hasMutate = true) {
    const flow = workflow();
    const handler = consumer({ hasMutate });
    this.#publish();
    const change = start(flow, handler, { reason: "event", atMs: NOW }, attempt({ id: ID.run, fused }), NOW);
    this.#note(change);
    const run = created(change);
    if (!run) throw new Error("no run");
    this.facts = { workflow: { ...flow, handlers: [handler] }, handler, run, reserved: [], released: [] };
  }

  #publish(): void {
    const published = {
      event: 1,
      topic: "t",
      messageId: "m",
      revision: 1,
      outcome: "created" as const,
      created: [
        { id: 1, handler: 12 },
        { id: 2, handler: 12 },
      ],
      late: [],
    };
    this.entries.push({ kind: "event.published", hash: "h", ...published });
  }

  #note(change: Change): void {
    const effects = new Map<Write, Effect>();
    for (const write of change.writes)
      if (write.do === "publish")
        effects.set(write, {
          of: "publish",
          published: {
            event: 2,
            topic: "t",
            messageId: "n",
            revision: 1,
            outcome: "created",
            created: [],
            late: [],
          },
        });
    this.entries.push(...journalOf(change, effects, hash));
  }

  do(step: (facts: RunFacts) => Change): this {
    const change = step(this.facts);
    this.#note(change);
    this.facts = follow(this.facts, change);
    const next = created(change);
    if (next) this.facts = { ...this.facts, run: next };
    return this;
  }

  get kinds(): string[] {
    return this.entries.map((one) => one.kind);
  }

  /** Each unit of each run: how often dispatched, how often ended. */
  check(): ReturnType<typeof rebuild> {
    const rebuilt = rebuild(this.entries);
    if (rebuilt.problems.length > 0) throw new Error(rebuilt.problems.join("; "));
    const [was, is] = [rebuilt.runs.get(this.facts.run.id), runFace(this.facts.run, hash)];
    if (!isDeepStrictEqual(was, is))
      throw new Error(`rebuilt ${JSON.stringify(was)}, but it is ${JSON.stringify(is)}`);
    return rebuilt;
  }
}

const prepare =
  (alone: boolean, reservations = [1, 2]) =>
  (facts: RunFacts) =>
    prepared(facts, { json: "P", reservations, alone }, NOW);
const intend = (facts: RunFacts) => intended(facts, row("proposed"), NOW);
const send = (facts: RunFacts) =>
  sending(
    { ...facts, mutation: facts.mutation ?? row("proposed") },
    { n: 1, atMs: NOW, bytesHash: "b", idempotencyKey: "k" },
    NOW,
  );
const apply = (facts: RunFacts) =>
  mutated(
    { ...facts, mutation: facts.mutation ?? row("in_flight") },
    { status: "applied", result: "R" },
    NOW,
    "raw",
  );
const emit = (facts: RunFacts) => emitting(facts, NOW);
const end = (facts: RunFacts) =>
  commit(facts, { publications: [], inputs: [], state: "S" }, settleSchedule(facts, "ran", []), NOW);
const broken = (units: ("prepare" | "mutate" | "next")[]) => (facts: RunFacts) =>
  fail(
    facts,
    {
      units,
      inbox: 1,
      down: [],
      failure: { error: error(), policy: HALT, retries: 0, delayMs: 0, pastBoundary: false },
    },
    NOW,
  );

describe("10 the journal of a whole run", () => {
  for (const fused of [true, false])
    test(`10 with a call, ${fused ? "fused" : "unfused"}: rebuilt, nothing pending`, () => {
      const tape = new Tape(fused).do(prepare(!fused)).do(intend).do(send).do(apply).do(emit).do(end);
      const { pending, deliveries, mutations } = tape.check();
      expect(pending.size).toBe(0);
      expect(deliveries.get(1)).toMatchObject({ status: "consumed", reservedBy: null });
      expect(mutations.get(ID.row)).toMatchObject({ status: "applied", sends: 1, result: hash("R") });
    });
  for (const fused of [true, false])
    test(`10 nothing reserved, ${fused ? "fused" : "unfused"}: \`mutate\` is ${fused ? "skipped" : "never dispatched"}`, () => {
      const tape = new Tape(fused).do(prepare(!fused, [])).do(emit).do(end);
      expect(tape.check().pending.size).toBe(0);
      expect(tape.kinds.filter((one) => one === "unit.skipped")).toHaveLength(fused ? 1 : 0);
    });
  test("10 without `mutate`, and with one that asks for nothing", () => {
    for (const hasMutate of [true, false])
      expect(
        new Tape(true, hasMutate)
          .do(prepare(false))
          .do((facts) => withoutCall(facts, NOW))
          .do(emit)
          .do(end)
          .check().pending.size,
      ).toBe(0);
  });
  test("07 both settings give the same journal but for the grouping of dispatches", () => {
    const of = (fused: boolean) =>
      new Tape(fused)
        .do(prepare(!fused))
        .do(intend)
        .do(send)
        .do(apply)
        .do(emit)
        .do(end)
        .entries.filter((one) => one.kind !== "unit.dispatched");
    expect(of(true)).toEqual(of(false));
  });
  test("10 dispatched is committed before the unit executes: pending() says what is out", () => {
    const tape = new Tape();
    expect(tape.check().pending.get(ID.run)).toEqual(["prepare", "mutate"]);
    tape.do(prepare(false));
    expect(tape.check().pending.get(ID.run)).toEqual(["mutate"]);
    tape.do(intend);
    expect(tape.check().pending.size).toBe(0);
  });
  test("10 a lost unit ends and is dispatched anew", () => {
    const tape = new Tape().do((facts) => again(facts, ["prepare", "mutate"], NOW));
    expect(tape.check().pending.get(ID.run)).toEqual(["prepare", "mutate"]);
  });
  test("10 it holds ids, small facts and hashes: no value", () => {
    const tape = new Tape().do(prepare(false)).do(intend).do(send).do(apply).do(emit).do(end);
    const text = JSON.stringify(tape.entries);
    for (const value of ['"P"', '"R"', '"S"', "amount"]) expect(text).not.toContain(value);
    for (const value of ["P", "R", "S"]) expect(text).toContain(hash(value));
  });
});

describe("10 the journal of a chain", () => {
  test("10 a failure and its retry: two runs, linked, deliveries back and reserved again", () => {
    const tape = new Tape()
      .do(prepare(false))
      .do(broken(["mutate"]))
      .do((facts) => claim(facts, attempt(), NOW));
    const { runs, deliveries, pending } = tape.check();
    expect(runs.get(ID.run)).toMatchObject({ status: "paused:transient", open: false, successor: ID.next });
    expect(runs.get(ID.next)).toMatchObject({ retryOf: ID.run, phase: "preparing", open: true });
    expect(deliveries.get(1)).toMatchObject({ status: "pending", reservedBy: null });
    expect([...pending.keys()]).toEqual([ID.next]);
  });
  test("10 a crash in flight: the successor owns row and deliveries", () => {
    const crash = { error: error(), inbox: 1, attempt: attempt(), canCheck: true };
    const tape = new Tape()
      .do(prepare(false))
      .do(intend)
      .do(send)
      .do((facts) => recover(facts, crash, NOW) as Change);
    const { mutations, deliveries, runs, pending } = tape.check();
    expect(mutations.get(ID.row)).toMatchObject({ ownerRun: ID.next, status: "needs_reconcile" });
    expect(deliveries.get(2)).toMatchObject({ status: "reserved", reservedBy: ID.next });
    expect(runs.get(ID.run)).toMatchObject({ status: "crashed", open: false });
    expect(pending.size).toBe(0);
  });
  test("10 a retry past the boundary: handed over, one owner", () => {
    const tape = new Tape()
      .do(prepare(false))
      .do(intend)
      .do(send)
      .do(apply)
      .do(emit)
      .do(broken(["next"]))
      .do((facts) => claim(facts, attempt(), NOW));
    const { mutations, deliveries, runs } = tape.check();
    expect(mutations.get(ID.row)).toMatchObject({ ownerRun: ID.next, originRun: ID.run, status: "applied" });
    expect(deliveries.get(1)?.reservedBy).toBe(ID.next);
    expect(runs.get(ID.next)).toMatchObject({ prepared: hash("P"), result: hash("R"), outcome: "applied" });
  });
});

describe("10 rebuild", () => {
  const base: Entry[] = [
    {
      kind: "event.published",
      event: 1,
      topic: "t",
      messageId: "m",
      revision: 1,
      outcome: "created",
      created: [{ id: 1, handler: 12 }],
      late: [],
      hash: "h",
    },
  ];
  const of = (...entries: Entry[]) => rebuild([...base, ...entries]).deliveries;
  test("10 requeued: pending, one attempt more", () => {
    expect(of({ kind: "deliveries.dead", ids: [1] }, { kind: "deliveries.requeued", id: 1 }).get(1)).toEqual({
      event: 1,
      handler: 12,
      status: "pending",
      reservedBy: null,
      attempts: 2,
    });
  });
  test("10 reprocessed: a new delivery, the old one stays consumed", () => {
    const deliveries = of(
      { kind: "deliveries.consumed", ids: [1] },
      { kind: "deliveries.reprocessed", id: 5, from: 1, event: 1, handler: 12 },
    );
    expect(deliveries.get(1)?.status).toBe("consumed");
    expect(deliveries.get(5)).toMatchObject({ status: "pending", event: 1, attempts: 1 });
  });
  test("10 moved to another consumer", () => {
    expect(of({ kind: "deliveries.moved", ids: [1], to: 99 }).get(1)?.handler).toBe(99);
  });
  test("10 contradictions are named, not repaired", () => {
    const { problems } = rebuild([
      { kind: "status.changed", run: 1, set: { open: false } },
      { kind: "mutation.changed", mutation: 1, set: { sends: 1 } },
      { kind: "unit.completed", run: 1, units: ["next"] },
      { kind: "deliveries.pending", ids: [9] },
    ]);
    expect(problems).toHaveLength(4);
  });
});
