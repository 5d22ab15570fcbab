/**
 * What any store must do, as tests: the contract of `host/ports/store.ts`. An adapter calls `describeStoreContract` with
 * a harness; the SQL that the harness runs past the port is plain enough for every database.
 */
import { describe, expect, test } from "vitest";
import { commit, emitting, intended, mutated, prepared, sending } from "../../host/core/advance.ts";
import type { Change, Write } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import { fail } from "../../host/core/fail.ts";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Mutation } from "../../host/core/mutation.ts";
import { editState, pause, renewDelivery, resume, skipDelivery } from "../../host/core/operate.ts";
import { recover } from "../../host/core/recover.ts";
import { claim } from "../../host/core/retry.ts";
import { begunBy, start } from "../../host/core/start.ts";
import { unknown } from "../../host/core/settle.ts";
import { choose } from "../../host/core/trigger.ts";
import type { Applied, Level, Refused, Store } from "../../host/ports/store.ts";
import {
  begin,
  deployed,
  handlerOf,
  ledgerRow,
  MANIFEST,
  must,
  publish,
  wholeRun,
} from "../support/chain.ts";

/** One database that a test may open, close and open again. */
export interface StoreHarness {
  /** Opens the data; the first call finds it empty. */
  open(): Promise<Store>;
  /** False for a database that is gone when it is closed. */
  outlivesClose: boolean;
  /** Straight into the open database, past the port. Rejects when the database refuses. */
  rows(sql: string): Promise<Record<string, unknown>[]>;
}

type Row = Record<string, unknown>;

const apply = (store: Store, change: Change, level: Level = "applied"): Promise<Applied | Refused> =>
  store.apply(change, { level, fence: store.fence });

const factsOf = async (store: Store, id: number): Promise<WorkflowFacts> =>
  (await store.workflow(id)) as WorkflowFacts;

/** One step of a run, decided on what the store says now. */
async function act(
  store: Store,
  run: number,
  verb: (facts: RunFacts & { mutation: Mutation }) => Change,
  level: Level = "applied",
): Promise<RunFacts> {
  await must(store, verb((await store.run(run)) as RunFacts & { mutation: Mutation }), level);
  return (await store.run(run)) as RunFacts;
}

/** A run that holds everything pending of its consumer. */
async function reserving(store: Store, workflow: number, nowMs: number): Promise<RunFacts> {
  const { run, handler } = await begin(store, workflow, nowMs);
  const events = await store.pending(handler.id, "order", { limit: 100 });
  const reservations = events.map((one) => one.delivery);
  return act(store, run.id, (facts) => prepared(facts, { json: "{}", reservations }, nowMs));
}

/** A run whose call has left and not come back. */
async function flying(store: Store, workflow: number, nowMs: number): Promise<RunFacts> {
  const { run } = await reserving(store, workflow, nowMs);
  await act(store, run.id, (facts) => intended(facts, ledgerRow(store, facts, nowMs), nowMs));
  const send = { n: 1, atMs: nowMs, bytesHash: "b", idempotencyKey: "k" };
  return act(store, run.id, (facts) => sending(facts, send, nowMs), "durable");
}

const publishing = (
  workflow: WorkflowFacts,
  messageId: string,
  more: { payload?: string; topic?: string; atMs?: number; inputs?: number[]; hops?: number } = {},
): Change => ({
  verb: "publish",
  workflow: workflow.id,
  atMs: more.atMs ?? 1_500,
  expect: { generation: workflow.generation },
  writes: [
    {
      do: "publish",
      publication: {
        topic: more.topic ?? "order",
        messageId,
        payload: more.payload ?? "{}",
        inputs: more.inputs ?? [],
        hops: more.hops ?? 0,
      },
      subscribers: more.topic === undefined ? [handlerOf(workflow, "book").id] : [],
    },
  ],
});

const noted = (workflow: number, expectation: Change["expect"], ...writes: Write[]): Change => ({
  verb: "note",
  workflow,
  atMs: 1_700,
  expect: expectation,
  writes: [{ do: "audit", actor: "test", action: "note", detail: "{}" }, ...writes],
});

const crash = (id: number, store: Store, canCheck: boolean) => ({
  error: { class: "internal" as const, code: "crashed", message: "gone" },
  inbox: store.newId(),
  attempt: { id, host: store.fence.incarnation, fused: true },
  canCheck,
});

const ended = { class: "logic" as const, code: "handler-throws", message: "no" };
const halt = { maxRetries: 0, retryOn: [], neverRetryOn: [], onFailure: "halt" as const };

export function describeStoreContract(name: string, harness: () => StoreHarness): void {
  const within = (work: (store: Store, of: StoreHarness) => Promise<void>) => async () => {
    const of = harness();
    await using store = await of.open();
    await work(store, of);
  };
  const ready = (work: (store: Store, workflow: number, of: StoreHarness) => Promise<void>) =>
    within(async (store, of) => work(store, await deployed(store, "orders", 1_000), of));
  const { outlivesClose } = harness();
  const reopening = outlivesClose ? test : test.skip;

  describe(`${name}: levels and order`, () => {
    test.each(["applied", "committed", "durable"] as const)(
      "a Change asked for at %s is visible to reads when apply resolves, and before",
      (level) =>
        ready(async (store, workflow) => {
          const before = await factsOf(store, workflow);
          const applying = apply(store, publishing(before, "a"), level);
          expect((await factsOf(store, workflow)).seq).toBe(before.seq + 1);
          expect(await applying).toMatchObject({ ok: true, seq: before.seq + 1 });
          expect((await factsOf(store, workflow)).seq).toBe(before.seq + 1);
        })(),
    );

    test(
      "Changes of one workflow take effect in the order of the calls, whatever their levels",
      ready(async (store, workflow) => {
        const facts = await factsOf(store, workflow);
        const levels: Level[] = ["durable", "applied", "committed"];
        const all = await Promise.all(
          Array.from({ length: 90 }, (_, i) => apply(store, publishing(facts, `m${i}`), levels[i % 3])),
        );
        const seqs = all.map((one) => (one.ok ? one.seq : -1));
        expect(seqs).toEqual(seqs.map((_, i) => facts.seq + 1 + i));
        const pending = await store.pending(handlerOf(facts, "book").id, "order", { limit: 100 });
        expect(pending.map((one) => one.messageId)).toEqual(Array.from({ length: 90 }, (_, i) => `m${i}`));
      }),
    );

    test(
      "those who ask for the same level are told in the order of their calls",
      ready(async (store, workflow) => {
        const facts = await factsOf(store, workflow);
        for (const level of ["committed", "durable"] as const) {
          const told: number[] = [];
          const tell = async (i: number) => {
            await apply(store, publishing(facts, `${level}${i}`), level);
            told.push(i);
          };
          await Promise.all(Array.from({ length: 100 }, (_, i) => tell(i)));
          expect(told).toEqual(told.toSorted((a, b) => a - b));
        }
      }),
    );

    test(
      "a loop of applied Changes lets the rest of the program live",
      ready(async (store, workflow) => {
        const facts = await factsOf(store, workflow);
        let turns = 0;
        const count = () => {
          turns++;
          again = setImmediate(count);
        };
        let again = setImmediate(count);
        for (let i = 0; i < 300; i++) await apply(store, publishing(facts, `m${i}`));
        clearImmediate(again);
        expect(turns).toBeGreaterThan(1);
      }),
    );

    test(
      "1,000 Changes at once over ten workflows: all applied, each workflow's own sequence without a gap",
      within(async (store, of) => {
        const workflows = await Promise.all(
          Array.from({ length: 10 }, (_, i) => deployed(store, `w${i}`, 1_000)),
        );
        const facts = await Promise.all(workflows.map((id) => factsOf(store, id)));
        const all = await Promise.all(
          Array.from({ length: 1_000 }, (_, i) =>
            apply(
              store,
              publishing(facts[i % 10] as WorkflowFacts, `m${i}`),
              i % 7 === 0 ? "durable" : "committed",
            ),
          ),
        );
        expect(all.every((one) => one.ok)).toBe(true);
        const events = await of.rows("SELECT workflow, seq FROM events ORDER BY workflow, seq");
        expect(events).toEqual(
          workflows
            .toSorted((a, b) => a - b)
            .flatMap((workflow) => Array.from({ length: 100 }, (_, i) => ({ workflow, seq: i + 1 }))),
        );
      }),
    );

    test(
      "flush resolves with nothing to do, twice, and after work",
      ready(async (store, workflow) => {
        await store.flush();
        await store.flush();
        void apply(store, publishing(await factsOf(store, workflow), "a"));
        await store.flush();
        expect((await factsOf(store, workflow)).seq).toBe(1);
      }),
    );

    reopening(
      "what was applied is there after a clean close, and who comes later is told that the store is closed",
      async () => {
        const of = harness();
        const store = await of.open();
        const workflow = await deployed(store, "orders", 1_000);
        const facts = await factsOf(store, workflow);
        const applying = apply(store, publishing(facts, "a"));
        const closing = store[Symbol.asyncDispose]();
        await expect(apply(store, publishing(facts, "b"))).rejects.toMatchObject({ code: "store-closed" });
        await expect(store.workflow(workflow)).rejects.toMatchObject({ code: "store-closed" });
        await applying;
        await closing;
        await store[Symbol.asyncDispose]();
        await using second = await of.open();
        expect((await factsOf(second, workflow)).seq).toBe(1);
      },
    );
  });

  describe(`${name}: refusals`, () => {
    type Bad = (store: Store, workflow: WorkflowFacts, run: RunFacts) => Change | Promise<Change>;
    const cases: [because: string, what: string, bad: Bad][] = [
      [
        "stale-workflow",
        "another revision",
        (_, workflow) => noted(workflow.id, { workflowRevision: workflow.revision - 1 }),
      ],
      [
        "stale-workflow",
        "another generation",
        (_, workflow) => noted(workflow.id, { generation: workflow.generation + 1 }),
      ],
      ["stale-workflow", "a workflow that does not exist", (store) => noted(store.newId(), {})],
      [
        "stale-workflow",
        "a second open run",
        (store, workflow) => {
          const attempt = { id: store.newId(), host: store.fence.incarnation, fused: true };
          const trigger = { reason: "event" as const, atMs: 1_600 };
          return start(workflow, handlerOf(workflow, "book"), trigger, attempt, 1_600);
        },
      ],
      [
        "stale-run",
        "another revision",
        (_, { id }, { run }) => noted(id, { run: { id: run.id, revision: 1 } }),
      ],
      ["stale-run", "no such run", (store, { id }) => noted(id, { run: { id: store.newId(), revision: 1 } })],
      [
        "stale-row",
        "another row state",
        (_, { id }, { mutation }) => noted(id, { mutation: { id: mutation?.id ?? 0, status: "proposed" } }),
      ],
      [
        "stale-row",
        "no such row",
        (store, { id }) => noted(id, { mutation: { id: store.newId(), status: "failed" } }),
      ],
      [
        "not-idle",
        "the handler's run is open",
        (_, { id }, { handler }) => noted(id, { handlerIdle: handler.id }),
      ],
    ];

    test.each(cases)("%s (%s): no trace, and its neighbours in the group are applied", (because, _, bad) =>
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a", "b"], 1_000);
        const run = await flying(store, workflow, 1_200);
        await apply(store, publishing(await factsOf(store, workflow), "c"));
        const facts = await factsOf(store, workflow);
        const refusable = await bad(store, facts, run);
        const all = await Promise.all([
          apply(store, publishing(facts, "good-1"), "committed"),
          apply(store, refusable, "durable"),
          apply(store, publishing(facts, "good-2"), "durable"),
        ]);
        expect(all.map((one) => (one.ok ? "ok" : one.because))).toEqual(["ok", because, "ok"]);
        expect(await of.rows("SELECT verb FROM journal WHERE verb = 'note'")).toEqual([]);
        expect(await of.rows("SELECT action FROM audit WHERE action = 'note'")).toEqual([]);
        expect((await factsOf(store, workflow)).seq).toBe(facts.seq + 2);
      })(),
    );

    test(
      "stale-deliveries names exactly those that are no longer as expected, and reserves none",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a", "b", "c"], 1_000);
        const { run, handler } = await begin(store, workflow, 1_200);
        const ids = (await store.pending(handler.id, "order", { limit: 9 })).map((one) => one.delivery);
        const [, second] = ids as [number, number, number];
        const operator = { by: "ada", atMs: 1_300 };
        const facts = await store.delivery(second);
        await must(store, skipDelivery(facts as NonNullable<typeof facts>, operator) as Change);
        const unknownId = store.newId();
        const now = (await store.run(run.id)) as RunFacts;
        const refused = await apply(
          store,
          prepared(now, { json: "{}", reservations: [...ids, unknownId] }, 1_400),
          "durable",
        );
        expect(refused).toEqual({
          ok: false,
          because: "stale-deliveries",
          deliveries: [second, unknownId],
        });
        expect(await store.run(run.id)).toEqual(now);
        expect((await store.pending(handler.id, "order", { limit: 9 })).map((one) => one.delivery)).toEqual(
          ids.filter((id) => id !== second),
        );
      }),
    );

    test(
      "stale-deliveries also says that another run holds them",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run, reserved } = await reserving(store, workflow, 1_200);
        const held = { ids: reserved, status: "reserved" as const };
        expect(
          await apply(store, noted(workflow, { deliveries: { ...held, reservedBy: run.id } })),
        ).toMatchObject({ ok: true });
        expect(
          await apply(store, noted(workflow, { deliveries: { ...held, reservedBy: run.id + 1 } })),
        ).toMatchObject({ because: "stale-deliveries", deliveries: reserved });
      }),
    );

    test(
      "stale-deliveries also says that they are another consumer's",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const [id] = (
          await store.pending(handlerOf(await factsOf(store, workflow), "book").id, "order", { limit: 1 })
        ).map((one) => one.delivery);
        const { handlers } = await factsOf(store, workflow);
        const held = (handler: number) => ({ ids: [id as number], status: "pending" as const, handler });
        const [own, other] = ["book", "poll"].map(
          (of) => handlers.find((one) => one.name === of)?.id as number,
        );
        expect(await apply(store, noted(workflow, { deliveries: held(own as number) }))).toMatchObject({
          ok: true,
        });
        expect(await apply(store, noted(workflow, { deliveries: held(other as number) }))).toMatchObject({
          because: "stale-deliveries",
          deliveries: [id],
        });
      }),
    );

    test(
      "a run that a start has begun reads as the core says it does",
      ready(async (store, workflow) => {
        const alone = await deployed(store, "alone", 1_000, { ...MANIFEST, consumers: {} });
        for (const id of [workflow, alone]) {
          const before = await factsOf(store, id);
          const choice = choose(before, 400_000);
          if (choice.next !== "start") throw new Error(`nothing to start: ${choice.next}`);
          const { handler, trigger } = choice;
          const attempt = { id: store.newId(), host: store.fence.incarnation, fused: true };
          const change = start(before, handler, trigger, attempt, 400_000);
          const now = await must(store, change);
          expect(begunBy({ workflow: before, handler }, change, now)).toEqual(await store.run(attempt.id));
        }
      }),
    );

    test(
      "a fence of another incarnation or epoch writes nothing",
      ready(async (store, workflow, of) => {
        const { incarnation, epoch } = store.fence;
        for (const fence of [
          { incarnation: incarnation - 1, epoch },
          { incarnation, epoch: epoch + 1 },
        ])
          expect(await store.apply(noted(workflow, {}), { level: "durable", fence })).toEqual({
            ok: false,
            because: "stale-fence",
          });
        expect(await of.rows("SELECT action FROM audit WHERE action = 'note'")).toEqual([]);
      }),
    );

    test(
      "a Change that no step may make is rejected alone; its neighbours are applied",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run } = await begin(store, workflow, 1_200);
        const facts = await factsOf(store, workflow);
        const impossible: Change = {
          ...noted(workflow, { run: { id: run.id, revision: run.revision } }),
          writes: [
            {
              do: "run.set",
              id: run.id,
              from: { kind: "consumer", phase: "preparing", status: "active" },
              set: { phase: "emitting" },
            },
          ],
        };
        const [first, bad, last] = await Promise.allSettled([
          apply(store, publishing(facts, "good-1"), "durable"),
          apply(store, impossible, "durable"),
          apply(store, publishing(facts, "good-2"), "durable"),
        ]);
        expect([first.status, bad.status, last.status]).toEqual(["fulfilled", "rejected", "fulfilled"]);
        expect((await factsOf(store, workflow)).seq).toBe(facts.seq + 2);
      }),
    );

    test(
      "of two decisions on the same facts one wins",
      ready(async (store, workflow) => {
        const facts = await factsOf(store, workflow);
        const operator = { by: "ada", atMs: 1_100 };
        const [first, second] = await Promise.all([
          apply(store, pause(facts, operator), "durable"),
          apply(store, pause(facts, operator), "durable"),
        ]);
        expect([first.ok, second.ok]).toEqual([true, false]);
      }),
    );
  });

  describe(`${name}: runs`, () => {
    test(
      "one open run per workflow: of two starts in one turn the second is refused",
      ready(async (store, workflow) => {
        const facts = await factsOf(store, workflow);
        const choice = choose(facts, 1_000);
        if (choice.next !== "start") throw new Error("nothing to start");
        const starting = () =>
          start(
            facts,
            choice.handler,
            choice.trigger,
            { id: store.newId(), host: store.fence.incarnation, fused: true },
            1_000,
          );
        const [first, second] = await Promise.all([apply(store, starting()), apply(store, starting())]);
        expect([first.ok, second.ok]).toEqual([true, false]);
      }),
    );

    test(
      "one open run per workflow is a law of the database itself",
      ready(async (store, workflow, of) => {
        const { run } = await begin(store, workflow, 1_000);
        await store.flush();
        const [row] = await of.rows(`SELECT * FROM runs WHERE id = ${run.id}`);
        const columns = Object.keys(row as Row);
        const copied = columns.map((one) => (one === "id" || one === "root_id" ? `${run.id} + 1` : one));
        await expect(
          of.rows(
            `INSERT INTO runs (${columns.join(", ")}) SELECT ${copied.join(", ")} FROM runs WHERE id = ${run.id} RETURNING id`,
          ),
        ).rejects.toThrow(/unique/i);
      }),
    );

    test(
      "a whole consumer run: committed, delivery consumed, event published, state and wake kept",
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a", "b"], 1_000);
        const { run, reserved, mutation } = await wholeRun(store, workflow, 2_000);
        expect(run).toMatchObject({
          phase: "committed",
          status: "committed",
          open: false,
          outcome: "applied",
        });
        expect(reserved).toEqual([]);
        expect(mutation).toMatchObject({ status: "applied", sends: 1, result: "{}" });
        expect((await factsOf(store, workflow)).openRun).toBeUndefined();
        expect(await of.rows("SELECT status FROM deliveries ORDER BY seq")).toEqual([
          { status: "consumed" },
          { status: "pending" },
        ]);
        expect(await of.rows("SELECT topic, hops, run FROM events WHERE topic = 'booked'")).toEqual([
          { topic: "booked", hops: 1, run: run.id },
        ]);
        expect((await begin(store, workflow, 3_000)).run.trigger.reason).toBe("more");
      }),
    );

    test(
      "every run revision is one more than the last, and apply says which",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run } = await begin(store, workflow, 1_100);
        const facts = (await store.run(run.id)) as RunFacts;
        const result = await must(store, prepared(facts, { json: "{}", reservations: [] }, 1_200));
        expect(result.runRevision).toBe(run.revision + 1);
        expect(((await store.run(run.id)) as RunFacts).run.revision).toBe(run.revision + 1);
      }),
    );

    test(
      "a failed run gives its deliveries back and knows which they were",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a", "b"], 1_000);
        const { run, reserved } = await reserving(store, workflow, 1_200);
        const failed = await act(store, run.id, (facts) =>
          fail(
            facts,
            {
              units: ["mutate"],
              inbox: store.newId(),
              down: [],
              failure: { error: ended, policy: halt, retries: 0, delayMs: 0, pastBoundary: false },
            },
            1_300,
          ),
        );
        expect(failed.run).toMatchObject({ status: "failed:logic", open: true, phase: "prepared" });
        expect([failed.reserved, failed.released]).toEqual([[], reserved]);
        expect((await factsOf(store, workflow)).openRun).toMatchObject({ id: run.id, active: false });
      }),
    );

    test(
      "a crash with an unknown row: the successor holds row and deliveries in the same Change",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run, reserved } = await flying(store, workflow, 1_200);
        const id = store.newId();
        await act(
          store,
          run.id,
          (facts) => recover(facts, crash(id, store, true), 1_400) as Change,
          "durable",
        );
        const next = (await store.run(id)) as RunFacts;
        expect(next.run).toMatchObject({
          status: "paused:reconciliation",
          phase: "mutating",
          retryOf: run.id,
        });
        expect(next.reserved).toEqual(reserved);
        expect(next.mutation).toMatchObject({ status: "needs_reconcile", ownerRun: id, originRun: run.id });
        const old = (await store.run(run.id)) as RunFacts;
        expect(old.run).toMatchObject({ status: "crashed", open: false, successor: id });
        expect(old.reserved).toEqual([]);
      }),
    );

    test(
      "a crash before the boundary: ready at once, then a new attempt from the start",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run } = await reserving(store, workflow, 1_200);
        await act(
          store,
          run.id,
          (facts) => recover(facts, crash(store.newId(), store, true), 1_400) as Change,
        );
        expect(await store.due(1_400, 5)).toEqual([expect.objectContaining({ workflow, dueAtMs: 1_400 })]);
        const id = store.newId();
        const attempt = { id, host: store.fence.incarnation, fused: true };
        await act(store, run.id, (facts) => claim(facts, attempt, 1_500));
        expect(((await store.run(id)) as RunFacts).run).toMatchObject({ phase: "preparing", attempt: 2 });
      }),
    );

    test(
      "two workflows run side by side and never meet",
      within(async (store) => {
        const one = await deployed(store, "one", 1_000);
        const two = await deployed(store, "two", 1_000);
        await Promise.all([publish(store, one, ["a"], 1_000), publish(store, two, ["a"], 1_000)]);
        const [first, second] = await Promise.all([wholeRun(store, one, 2_000), wholeRun(store, two, 2_000)]);
        expect([first.run.workflow, second.run.workflow]).toEqual([one, two]);
        expect([first.run.status, second.run.status]).toEqual(["committed", "committed"]);
      }),
    );

    test(
      "facts about what does not exist are undefined",
      ready(async (store, workflow) => {
        const none = store.newId();
        expect(await store.workflow(none)).toBeUndefined();
        expect(await store.run(none)).toBeUndefined();
        expect(await store.delivery(none)).toBeUndefined();
        expect(await store.version(workflow, 99)).toBeUndefined();
        expect(await store.pending(none, "order", { limit: 5 })).toEqual([]);
        expect(await store.causes([none])).toEqual({ hops: 0, inputs: [] });
      }),
    );
  });

  describe(`${name}: events and deliveries`, () => {
    const outcomes = async (store: Store, change: Change) =>
      (await must(store, change, "committed")).published.map((one) => one.outcome);

    test(
      "publishing: created, unchanged, updated; one event per messageId",
      ready(async (store, workflow, of) => {
        const facts = await factsOf(store, workflow);
        expect(await outcomes(store, publishing(facts, "a", { payload: "1" }))).toEqual(["created"]);
        const before = await factsOf(store, workflow);
        expect(await outcomes(store, publishing(facts, "a", { payload: "1" }))).toEqual(["unchanged"]);
        expect((await factsOf(store, workflow)).seq).toBe(before.seq);
        expect(await outcomes(store, publishing(facts, "a", { payload: "2" }))).toEqual(["updated"]);
        expect(await of.rows("SELECT message_id, revision, payload_json FROM events")).toEqual([
          { message_id: "a", revision: 2, payload_json: "2" },
        ]);
        expect(await of.rows("SELECT revision, payload_json FROM revisions")).toEqual([
          { revision: 1, payload_json: "1" },
        ]);
      }),
    );

    test(
      "an unchanged payload is noted as seen at most once a day",
      ready(async (store, workflow, of) => {
        const facts = await factsOf(store, workflow);
        const day = 86_400_000;
        for (const atMs of [1_000, 1_000 + day - 1, 1_000 + day])
          await must(store, publishing(facts, "a", { atMs }));
        expect(await of.rows("SELECT seen_at FROM events")).toEqual([{ seen_at: 1_000 + day }]);
      }),
    );

    test(
      "the same messageId twice in one Change is one event",
      ready(async (store, workflow) => {
        const facts = await factsOf(store, workflow);
        const one = publishing(facts, "a", { payload: "1" });
        const two = publishing(facts, "a", { payload: "2" });
        const both = { ...one, writes: [...one.writes, ...two.writes] };
        expect(await outcomes(store, both)).toEqual(["created", "updated"]);
      }),
    );

    test(
      "a new payload for a reserved delivery is late: the run keeps what it pinned, the publisher is told",
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run, reserved } = await reserving(store, workflow, 1_200);
        const facts = await factsOf(store, workflow);
        const result = await must(store, publishing(facts, "a", { payload: "2" }));
        expect(result.published).toMatchObject([{ outcome: "updated", revision: 2, late: reserved }]);
        await act(store, run.id, (now) => intended(now, ledgerRow(store, now, 1_300), 1_300));
        await act(store, run.id, (now) =>
          sending(now, { n: 1, atMs: 1_300, bytesHash: "b", idempotencyKey: "k" }, 1_300),
        );
        await act(store, run.id, (now) => mutated(now, { status: "applied" }, 1_400));
        await act(store, run.id, (now) => emitting(now, 1_400));
        await act(store, run.id, (now) =>
          commit(now, { publications: [], inputs: [] }, settleSchedule(now, "ran", []), 1_500),
        );
        expect(await of.rows("SELECT status, revision, late FROM deliveries")).toEqual([
          { status: "consumed", revision: 1, late: 1 },
        ]);
      }),
    );

    test(
      "a consumed event published again with another payload triggers nobody",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        await wholeRun(store, workflow, 2_000);
        const facts = await factsOf(store, workflow);
        await must(store, publishing(facts, "a", { payload: "2", atMs: 3_000 }));
        expect(handlerOf(await factsOf(store, workflow), "book")).not.toHaveProperty("newPendingAtMs");
      }),
    );

    test(
      "pending: oldest first, limited, by topic and by messageIds, without what is reserved",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["c", "a", "b"], 1_000);
        const book = handlerOf(await factsOf(store, workflow), "book").id;
        const peek = async (options: { limit: number; messageIds?: string[] }, topic = "order") =>
          (await store.pending(book, topic, options)).map((one) => one.messageId);
        expect(await peek({ limit: 9 })).toEqual(["c", "a", "b"]);
        expect(await peek({ limit: 2 })).toEqual(["c", "a"]);
        expect(await peek({ limit: 9 }, "booked")).toEqual([]);
        expect(await peek({ limit: 9, messageIds: ["b", "nope", "c"] })).toEqual(["b", "c"]);
        expect(await peek({ limit: 1, messageIds: ["b", "c"] })).toEqual(["b"]);
        const { run } = await begin(store, workflow, 1_100);
        const [first] = await store.pending(book, "order", { limit: 1 });
        await act(store, run.id, (facts) =>
          prepared(facts, { json: "{}", reservations: [first?.delivery ?? 0] }, 1_200),
        );
        expect(await peek({ limit: 9 })).toEqual(["a", "b"]);
        expect(await peek({ limit: 9, messageIds: ["c"] })).toEqual([]);
      }),
    );

    test(
      "pending shows the newest payload and keeps its place in the order",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a", "b"], 1_000);
        const facts = await factsOf(store, workflow);
        await must(store, publishing(facts, "a", { payload: '"new"', atMs: 1_800 }));
        const [first, second] = await store.pending(handlerOf(facts, "book").id, "order", { limit: 9 });
        expect(first).toMatchObject({ messageId: "a", payload: '"new"', publishedAtMs: 1_800 });
        expect(second?.messageId).toBe("b");
      }),
    );

    test(
      "causes: the union of the inputs, the most hops; registering an input twice is once",
      ready(async (store, workflow, of) => {
        const facts = await factsOf(store, workflow);
        const ids = [store.newId(), store.newId()] as const;
        const input = (id: number, key: string): Write => ({
          do: "input",
          id,
          source: "mail",
          type: "letter",
          key,
          title: key,
        });
        await must(store, noted(workflow, {}, input(ids[0], "x"), input(ids[1], "y")));
        await must(store, noted(workflow, {}, input(store.newId(), "x")));
        expect(await of.rows("SELECT id FROM inputs ORDER BY id")).toEqual(ids.map((id) => ({ id })));
        await must(store, publishing(facts, "a", { inputs: [ids[0]], hops: 2 }));
        await must(store, publishing(facts, "b", { inputs: [...ids], hops: 7 }));
        const both = await store.pending(handlerOf(facts, "book").id, "order", { limit: 2 });
        const { hops, inputs } = await store.causes(both.map((one) => one.delivery));
        expect([hops, inputs.toSorted((a, b) => a - b)]).toEqual([7, [...ids]]);
      }),
    );

    test(
      "a delivery's facts name its handler and, while reserved, the run that holds it",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run, reserved, handler } = await reserving(store, workflow, 1_200);
        const facts = await store.delivery(reserved[0] as number);
        expect(facts?.delivery).toMatchObject({ status: "reserved", reservedBy: run.id, attempts: 1 });
        expect([facts?.handler.id, facts?.holder?.run.id]).toEqual([handler.id, run.id]);
      }),
    );

    test(
      "a skipped delivery is requeued with one attempt more, and triggers",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        await wholeRun(store, workflow, 2_000);
        await publish(store, workflow, ["b"], 2_100);
        const facts = await factsOf(store, workflow);
        const [b] = await store.pending(handlerOf(facts, "book").id, "order", { limit: 1 });
        const operator = { by: "ada", atMs: 2_200 };
        const of = async () => (await store.delivery(b?.delivery as number)) as never;
        await must(store, skipDelivery(await of(), operator) as Change);
        await must(store, renewDelivery(await of(), "requeue", undefined, operator) as Change);
        const again = await store.delivery(b?.delivery as number);
        expect(again?.delivery).toMatchObject({ status: "pending", attempts: 2 });
        expect(again?.handler.newPendingAtMs).toBeDefined();
      }),
    );

    test(
      "a consumed delivery is reprocessed as a new one of the same event",
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a"], 1_000);
        await wholeRun(store, workflow, 2_000);
        const [row] = await of.rows("SELECT id FROM deliveries");
        const facts = (await store.delivery(row?.["id"] as number)) as never;
        await must(store, renewDelivery(facts, "reprocess", undefined, { by: "ada", atMs: 2_200 }) as Change);
        expect(await of.rows("SELECT event, status, reprocess_of FROM deliveries ORDER BY id")).toMatchObject(
          [
            { status: "consumed", reprocess_of: null },
            { status: "pending", reprocess_of: row?.["id"] },
          ],
        );
      }),
    );

    test(
      "orphaned deliveries move to another consumer, or are skipped, all of them",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a", "b"], 1_000);
        const book = handlerOf(await factsOf(store, workflow), "book").id;
        const other = store.newId();
        await must(
          store,
          noted(
            workflow,
            {},
            { do: "handler.create", id: other, kind: "consumer", name: "other", order: 9, set: {} },
          ),
        );
        await must(store, noted(workflow, {}, { do: "orphans.move", from: book, to: other }));
        expect(await store.pending(book, "order", { limit: 9 })).toEqual([]);
        expect((await store.pending(other, "order", { limit: 9 })).map((one) => one.messageId)).toEqual([
          "a",
          "b",
        ]);
        await must(store, noted(workflow, {}, { do: "orphans.skip", handler: other }));
        expect(await store.pending(other, "order", { limit: 9 })).toEqual([]);
      }),
    );
  });

  describe(`${name}: what is due`, () => {
    test(
      "a deploy makes its workflow due; a start, a pause and an archive take it off the list",
      ready(async (store, workflow) => {
        expect(await store.due(1_000, 9)).toMatchObject([{ workflow, dueAtMs: 1_000 }]);
        const operator = { by: "ada", atMs: 1_050 };
        await must(store, pause(await factsOf(store, workflow), operator));
        expect(await store.due(9e12, 9)).toEqual([]);
        expect(await store.nextDueAt()).toBeUndefined();
        await must(store, resume(await factsOf(store, workflow), operator));
        expect(await store.due(1_000, 9)).toHaveLength(1);
        await begin(store, workflow, 1_100);
        expect(await store.due(9e12, 9)).toEqual([]);
      }),
    );

    test(
      "an event published while its consumer runs triggers it again, by data alone",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        await reserving(store, workflow, 1_200);
        await publish(store, workflow, ["b"], 1_300);
        const book = handlerOf(await factsOf(store, workflow), "book");
        expect(book.newPendingAtMs).toBe(1_300);
        expect(book.seenSeq).toBe(1);
      }),
    );

    test(
      "due: longest waiting first, limited, never before its time",
      within(async (store) => {
        const ids = [];
        for (const [i, atMs] of [3_000, 1_000, 2_000].entries())
          ids.push(await deployed(store, `w${i}`, atMs));
        const [late, early, middle] = ids;
        expect((await store.due(5_000, 9)).map((one) => one.workflow)).toEqual([early, middle, late]);
        expect((await store.due(5_000, 2)).map((one) => one.workflow)).toEqual([early, middle]);
        expect((await store.due(1_999, 9)).map((one) => one.workflow)).toEqual([early]);
        expect(await store.nextDueAt()).toBe(1_000);
      }),
    );

    test(
      "an unknown outcome is due for its check at its time, and so is the store",
      ready(async (store, workflow) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run } = await flying(store, workflow, 1_200);
        const end = { error: ended, answer: "{}", canCheck: true, inbox: store.newId() };
        await act(store, run.id, (facts) => unknown(facts, end, 2_000));
        expect(await store.checksDue(1_999, 9)).toEqual([]);
        expect(await store.checksDue(2_000, 9)).toEqual([run.id]);
        expect(await store.nextDueAt()).toBe(2_000);
        expect(await store.due(9e12, 9)).toEqual([]);
      }),
    );

    test(
      "a state is set, kept and cleared; editing it waits for the handler to be idle",
      ready(async (store, workflow) => {
        const operator = { by: "ada", atMs: 1_050 };
        const edit = async (state: string | null) => {
          const facts = await factsOf(store, workflow);
          return apply(store, editState(facts, handlerOf(facts, "book"), state, operator));
        };
        await edit('{"n":1}');
        expect(handlerOf(await factsOf(store, workflow), "book").state).toBe('{"n":1}');
        await publish(store, workflow, ["a"], 1_000);
        await begin(store, workflow, 1_100);
        expect(await edit("2")).toMatchObject({ ok: false, because: "not-idle" });
        expect(handlerOf(await factsOf(store, workflow), "book").state).toBe('{"n":1}');
      }),
    );
  });

  describe(`${name}: what is kept`, () => {
    test(
      "a workflow is created once per namespace and name",
      within(async (store) => {
        const [first, again, other] = await Promise.all([
          store.workflowId("default", "orders", 1_000),
          store.workflowId("default", "orders", 1_000),
          store.workflowId("other", "orders", 1_000),
        ]);
        expect(again).toBe(first);
        expect(other).not.toBe(first);
      }),
    );

    test(
      "a version reads back as it was deployed",
      ready(async (store, workflow) => {
        expect(await store.version(workflow, 1)).toEqual({
          number: 1,
          hash: "h1",
          language: "ts",
          source: "",
          code: "",
          manifest: MANIFEST,
          scope: "frozen",
          activatedAtMs: 1_000,
        });
        await deployed(store, "orders", 2_000);
        expect((await factsOf(store, workflow)).activeVersion).toBe(2);
        expect(await store.version(workflow, 1)).toMatchObject({ hash: "h1" });
      }),
    );

    test(
      "a version is found by its number, by its content, or as the newest",
      ready(async (store, workflow) => {
        await deployed(store, "orders", 2_000);
        expect((await store.version(workflow, "newest"))?.number).toBe(2);
        expect((await store.version(workflow, { hash: "h1" }))?.number).toBe(1);
        expect(await store.version(workflow, { hash: "never deployed" })).toBeUndefined();
        const bare = await store.workflowId("default", "bare", 1_000);
        expect(await store.version(bare, "newest")).toBeUndefined();
      }),
    );

    test(
      "the journal is gapless per workflow",
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a", "b", "c"], 1_000);
        await wholeRun(store, workflow, 2_000);
        await wholeRun(store, workflow, 3_000);
        const journal = await of.rows(
          `SELECT first, count FROM journal WHERE workflow = ${workflow} ORDER BY first`,
        );
        let next = 1;
        for (const { first, count } of journal) {
          expect(first).toBe(next);
          next += count as number;
        }
        expect(await of.rows(`SELECT journal_seq FROM workflows WHERE id = ${workflow}`)).toEqual([
          { journal_seq: next - 1 },
        ]);
      }),
    );

    test(
      "the audit is a chain per namespace: numbered from one, each link over the one before",
      ready(async (store, workflow, of) => {
        await must(store, noted(workflow, {}));
        await must(store, noted(workflow, {}));
        const audit = await of.rows("SELECT seq, hash FROM audit ORDER BY seq");
        expect(audit.map((one) => one["seq"])).toEqual(audit.map((_, i) => i + 1));
        expect(new Set(audit.map((one) => one["hash"])).size).toBe(audit.length);
        expect(await of.rows("SELECT audit_seq, audit_hash FROM namespaces")).toEqual([
          { audit_seq: audit.length, audit_hash: audit.at(-1)?.["hash"] },
        ]);
      }),
    );

    const laws: [what: string, sql: (run: number) => string, says: RegExp][] = [
      [
        "an ended run's status",
        (run) => `UPDATE runs SET status = 'active' WHERE id = ${run}`,
        /never rewritten/,
      ],
      [
        "an ended run's result",
        (run) => `UPDATE runs SET result_json = '1' WHERE id = ${run}`,
        /never rewritten/,
      ],
      ["an ended run's phase", (run) => `UPDATE runs SET phase = 'mutated' WHERE id = ${run}`, /never/],
      ["a settled row's status", () => "UPDATE mutations SET status = 'proposed'", /never rewritten/],
      ["a settled row's arguments", () => "UPDATE mutations SET args_json = '2'", /never rewritten/],
      ["the journal's entries", () => "UPDATE journal SET entries_json = '[]'", /never rewritten/],
      ["the journal's rows", () => "DELETE FROM journal", /never rewritten/],
      ["the audit's rows", () => "UPDATE audit SET actor = 'mallory'", /never rewritten/],
      ["the audit's length", () => "DELETE FROM audit", /never rewritten/],
    ];
    test.each(laws)("the database itself refuses to change %s", (_, sql, says) =>
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run } = await wholeRun(store, workflow, 2_000);
        await store.flush();
        await expect(of.rows(sql(run.id))).rejects.toThrow(says);
      })(),
    );

    test(
      "the database itself refuses a phase that goes back",
      ready(async (store, workflow, of) => {
        await publish(store, workflow, ["a"], 1_000);
        const { run } = await flying(store, workflow, 1_200);
        await store.flush();
        await expect(of.rows(`UPDATE runs SET phase = 'prepared' WHERE id = ${run.id}`)).rejects.toThrow(
          /never goes back/,
        );
      }),
    );

    test(
      "ids are never handed out twice",
      within(async (store) => {
        const ids = Array.from({ length: 1_000 }, () => store.newId());
        expect(new Set(ids).size).toBe(1_000);
        expect(ids.every((id) => Number.isSafeInteger(id) && id > 0)).toBe(true);
      }),
    );

    reopening("ids and fences are new after a reopen", async () => {
      const of = harness();
      const ids = new Set<number>();
      const fences: number[] = [];
      for (let i = 0; i < 3; i++) {
        await using store = await of.open();
        fences.push(store.fence.incarnation);
        for (let n = 0; n < 100; n++) ids.add(store.newId());
      }
      expect([ids.size, new Set(fences).size]).toEqual([300, 3]);
    });

    reopening(
      "active runs of the last incarnation are interrupted, held ones and our own are not",
      async () => {
        const of = harness();
        const interrupted = await (async () => {
          await using store = await of.open();
          const active = await deployed(store, "active", 1_000);
          const held = await deployed(store, "held", 1_000);
          await publish(store, held, ["a"], 1_000);
          const { run } = await flying(store, held, 1_200);
          const end = { error: ended, answer: "{}", canCheck: true, inbox: store.newId() };
          await act(store, run.id, (facts) => unknown(facts, end, 2_000));
          const begun = await begin(store, active, 1_000);
          expect(await store.interrupted(9)).toEqual([]);
          return begun.run.id;
        })();
        await using store = await of.open();
        expect(await store.interrupted(9)).toEqual([interrupted]);
        expect(await store.interrupted(0)).toEqual([]);
        const stale = { incarnation: store.fence.incarnation - 1, epoch: store.fence.epoch };
        const { run } = (await store.run(interrupted)) as RunFacts;
        const late = noted(run.workflow, { run: { id: run.id, revision: run.revision } });
        expect(await store.apply(late, { level: "durable", fence: stale })).toMatchObject({
          because: "stale-fence",
        });
      },
    );

    reopening("everything reads back as it was after a reopen", async () => {
      const of = harness();
      const read = async (store: Store, workflow: number, run: number) => [
        await store.workflow(workflow),
        await store.run(run),
        await store.version(workflow, 1),
        await store.due(9e12, 9),
        await store.nextDueAt(),
        await store.checksDue(9e12, 9),
      ];
      const first = await of.open();
      const workflow = await deployed(first, "orders", 1_000);
      await publish(first, workflow, ["a", "b"], 1_000);
      const { run } = await flying(first, workflow, 1_200);
      const before = await read(first, workflow, run.id);
      await first[Symbol.asyncDispose]();
      await using second = await of.open();
      expect(await read(second, workflow, run.id)).toEqual(before);
    });
  });
}
