import { mkdtempSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { intended, prepared, sending } from "../../host/core/advance.ts";
import type { Change, Write } from "../../host/core/change.ts";
import { fail } from "../../host/core/fail.ts";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Mutation } from "../../host/core/mutation.ts";
import { type DeliveryFacts, renewDelivery, skipDelivery } from "../../host/core/operate.ts";
import { decide } from "../../host/core/resolve.ts";
import { claim } from "../../host/core/retry.ts";
import { unknown } from "../../host/core/settle.ts";
import { inspect } from "../../host/store/doctor.ts";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { prune, RETENTION } from "../../host/store/retention.ts";
import { TRANSCRIPT_BODY } from "../../host/store/sqlite/records.ts";
import { verify } from "../../host/store/verify.ts";
import { begin, deployed, handlerOf, ledgerRow, must, publish, wholeRun } from "../support/chain.ts";

const DAY = 86_400_000;
const open = (data = ":memory:") => openStore({ data, nowMs: () => 1_000 });
const count = (store: SqliteStore, from: string): number =>
  store.db.prepare(`SELECT count(*) FROM ${from}`).pluck().get() as number;
const sound = (store: SqliteStore) => [...inspect(store.db), ...verify(store.db)];

async function act(
  store: SqliteStore,
  run: number,
  verb: (facts: RunFacts & { mutation: Mutation }) => Change,
): Promise<RunFacts> {
  await must(store, verb((await store.run(run)) as RunFacts & { mutation: Mutation }));
  return (await store.run(run)) as RunFacts;
}

const failing = (store: SqliteStore, onFailure: "halt" | "deadLetter", atMs: number) => (facts: RunFacts) =>
  fail(
    facts,
    {
      units: facts.run.phase === "preparing" ? ["prepare", "mutate"] : ["mutate"],
      inbox: store.newId(),
      down: [],
      failure: {
        error: { class: "logic", code: "handler-throws", message: "no" },
        policy: { maxRetries: 0, retryOn: [], neverRetryOn: [], onFailure },
        retries: 0,
        delayMs: 0,
        pastBoundary: false,
      },
    },
    atMs,
  );

async function reserving(store: SqliteStore, workflow: number, atMs: number): Promise<RunFacts> {
  const { run, handler } = await begin(store, workflow, atMs);
  const [first] = await store.pending(handler.id, "order", { limit: 1 });
  const reservations = first ? [first.delivery] : [];
  return act(store, run.id, (facts) => prepared(facts, { json: "{}", reservations }, atMs));
}

/** A workflow with one whole run that ended at `atMs`. */
async function oneRun(store: SqliteStore, atMs: number): Promise<{ workflow: number; run: number }> {
  const workflow = await deployed(store, "orders", atMs);
  await publish(store, workflow, ["a"], atMs);
  const { run } = await wholeRun(store, workflow, atMs);
  return { workflow, run: run.id };
}

const noted = (workflow: number, atMs: number, ...writes: Write[]): Change => ({
  verb: "note",
  workflow,
  atMs,
  expect: {},
  writes,
});

describe("boundaries", () => {
  test("runs, ledger, deliveries and journal go after 90 days and not a millisecond earlier", async () => {
    await using store = open();
    await oneRun(store, 1_000);
    expect(await prune(store, RETENTION, 1_000 + 90 * DAY)).toMatchObject({ runs: 0, journal: 0 });
    expect([count(store, "runs"), count(store, "mutations"), count(store, "deliveries")]).toEqual([1, 1, 1]);
    const done = await prune(store, RETENTION, 1_001 + 90 * DAY);
    expect(done).toMatchObject({ runs: 1, mutations: 1, deliveries: 1 });
    expect(["runs", "mutations", "sends", "deliveries"].map((table) => count(store, table))).toEqual([
      0, 0, 0, 0,
    ]);
    expect(store.db.prepare("SELECT verb, count FROM journal").all()).toEqual([
      { verb: "journal.pruned", count: 1 },
    ]);
    expect(sound(store)).toEqual([]);
  });

  test("a consumed payload goes after 30 days, its messageId stays recognised until 365 days unseen (X3)", async () => {
    await using store = open();
    const { workflow } = await oneRun(store, 1_000);
    const payload = () =>
      store.db.prepare("SELECT payload_json FROM events WHERE topic = 'order'").pluck().get();
    await prune(store, RETENTION, 1_000 + 30 * DAY);
    expect(payload()).not.toBeNull();
    await prune(store, RETENTION, 1_001 + 30 * DAY);
    expect(payload()).toBeNull();
    expect(sound(store)).toEqual([]);
    const again = await publish(store, workflow, ["a"], 1_000 + 40 * DAY);
    expect(again.published.map((one) => one.outcome)).toEqual(["unchanged"]);
    const seen = 1_000 + 40 * DAY;
    await prune(store, RETENTION, seen + 365 * DAY);
    expect(count(store, "events WHERE topic = 'order'")).toBe(1);
    await prune(store, RETENTION, seen + 365 * DAY + 1);
    expect(count(store, "events WHERE topic = 'order'")).toBe(0);
    expect(sound(store)).toEqual([]);
    const anew = await publish(store, workflow, ["a"], seen + 366 * DAY);
    expect(anew.published.map((one) => one.outcome)).toEqual(["created"]);
    expect(sound(store)).toEqual([]);
  });

  test("a payload is kept while its delivery was consumed less than 30 days ago, however old it is", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    await publish(store, workflow, ["a"], 1_000);
    const at = 1_000 + 29 * DAY;
    await wholeRun(store, workflow, at);
    await prune(store, RETENTION, at + 30 * DAY);
    expect(count(store, "events WHERE topic = 'order' AND payload_json IS NOT NULL")).toBe(1);
    await prune(store, RETENTION, at + 30 * DAY + 1);
    expect(count(store, "events WHERE topic = 'order' AND payload_json IS NOT NULL")).toBe(0);
  });

  test("what has no payload any more is not run on again", async () => {
    await using store = open();
    await oneRun(store, 1_000);
    await prune(store, RETENTION, 31 * DAY);
    const id = store.db.prepare("SELECT id FROM deliveries").pluck().get() as number;
    const facts = (await store.delivery(id)) as DeliveryFacts;
    expect(renewDelivery(facts, "reprocess", undefined, { by: "ada", atMs: 31 * DAY })).toMatchObject({
      code: "wrong_state",
    });
  });

  test("logs go after 14 days, transcripts after 7 with the bodies that nobody else names", async () => {
    await using store = open();
    const { workflow, run } = await oneRun(store, 1_000);
    const transcript = (unit: string, body: string): Write => ({ do: "transcript", run, unit, body });
    await must(store, noted(workflow, 1_000, { do: "logs", run, unit: "prepare", lines: "[]" }));
    await must(
      store,
      noted(workflow, 1_000, transcript("prepare", '"old"'), transcript("mutate", '"shared"')),
    );
    await must(store, noted(workflow, 1_001, transcript("next", '"shared"')));
    const left = () => [count(store, "logs"), count(store, "transcripts"), count(store, "blobs")];
    await prune(store, RETENTION, 1_000 + 7 * DAY);
    expect(left()).toEqual([1, 3, 2]);
    expect(await prune(store, RETENTION, 1_001 + 7 * DAY)).toMatchObject({ transcripts: 2, blobs: 1 });
    expect(left()).toEqual([1, 1, 1]);
    await prune(store, RETENTION, 1_000 + 14 * DAY);
    expect(left()).toEqual([1, 0, 0]);
    await prune(store, RETENTION, 1_001 + 14 * DAY);
    expect(left()).toEqual([0, 0, 0]);
  });

  test("answered questions go with the records, open ones and the audit stay", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    const [answered, asked] = [store.newId(), store.newId()];
    await must(store, noted(workflow, 1_000, { do: "inbox.open", id: answered, kind: "stale_input" }));
    await must(store, noted(workflow, 1_000, { do: "inbox.open", id: asked, kind: "stale_input" }));
    await must(store, noted(workflow, 1_000, { do: "inbox.close", id: answered }));
    const audit = store.db.prepare("SELECT * FROM audit").all();
    await prune(store, RETENTION, 10_000 * DAY);
    expect(store.db.prepare("SELECT id FROM inbox").pluck().all()).toEqual([asked]);
    expect(store.db.prepare("SELECT * FROM audit").all()).toEqual(audit);
    expect(audit.length).toBeGreaterThan(0);
    expect(sound(store)).toEqual([]);
  });
});

describe("the pruned journal", () => {
  test("the rest replays to the tables, whatever is cut off, and so does what comes after", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    for (let day = 0; day < 40; day++) {
      await publish(store, workflow, [`m${day}`], 1_000 + day * DAY);
      await wholeRun(store, workflow, 1_000 + day * DAY);
    }
    for (let day = 90; day < 135; day += 5) {
      await prune(store, RETENTION, 1_500 + day * DAY);
      expect(sound(store)).toEqual([]);
    }
    expect(count(store, "runs")).toBe(0);
    await publish(store, workflow, ["late"], 140 * DAY);
    await wholeRun(store, workflow, 140 * DAY);
    expect(sound(store)).toEqual([]);
    const rows = store.db.prepare("SELECT first, count FROM journal ORDER BY first").raw().all() as [
      number,
      number,
    ][];
    expect(rows.slice(1).map(([first]) => first)).toEqual(
      rows.slice(0, -1).map(([first, entries]) => first + entries),
    );
  });

  test("a damaged row is still found behind a pruned journal", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    await publish(store, workflow, ["a", "b"], 1_000);
    await wholeRun(store, workflow, 1_000);
    const { reserved } = await reserving(store, workflow, 2_000);
    await prune(store, RETENTION, 100 * DAY);
    expect(sound(store)).toEqual([]);
    store.db.exec(`UPDATE deliveries SET attempts = 9 WHERE id = ${reserved[0]}`);
    expect(verify(store.db)).toMatchObject([{ rows: [{ table: "deliveries", id: reserved[0] }] }]);
  });

  test("a chain goes whole: one that ended late keeps its early attempts", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    await publish(store, workflow, ["a"], 1_000);
    const { run } = await reserving(store, workflow, 1_000);
    await act(store, run.id, failing(store, "halt", 1_100));
    const by = { by: "ada", atMs: 50 * DAY, down: [], canCheck: false };
    await act(store, run.id, (facts) => decide(facts, { action: "retry" }, by));
    const attempt = { id: store.newId(), host: store.fence.incarnation, fused: true };
    await act(store, run.id, (facts) => claim(facts, attempt, 50 * DAY));
    await act(store, attempt.id, failing(store, "halt", 50 * DAY));
    await act(store, attempt.id, (facts) =>
      decide(facts, { action: "close", deliveries: "skip" }, { ...by, atMs: 51 * DAY }),
    );
    await prune(store, RETENTION, 140 * DAY);
    expect([count(store, "runs"), sound(store)]).toEqual([2, []]);
    await prune(store, RETENTION, 141 * DAY + 1);
    expect([count(store, "runs"), sound(store)]).toEqual([0, []]);
  });

  test("a workflow with more old open work than a digest should hold keeps its journal", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    await publish(
      store,
      workflow,
      Array.from({ length: 1_500 }, (_, i) => `m${i}`),
      1_000,
    );
    expect(await prune(store, RETENTION, 100 * DAY)).toMatchObject({ journal: 0, deliveries: 0 });
    expect(count(store, "deliveries WHERE status = 'pending'")).toBe(1_500);
    expect(sound(store)).toEqual([]);
  });
});

/** What a person or a run still needs, as rows. */
const openWork = (store: SqliteStore) =>
  [
    "SELECT * FROM runs WHERE root_id IN (SELECT root_id FROM runs WHERE open = 1) ORDER BY id",
    "SELECT m.* FROM mutations m WHERE status NOT IN ('applied', 'failed', 'skipped') ORDER BY id",
    "SELECT d.* FROM deliveries d WHERE status IN ('pending', 'reserved', 'dead') ORDER BY id",
    "SELECT e.* FROM events e WHERE id IN (SELECT event FROM deliveries WHERE status IN ('pending', 'reserved', 'dead')) ORDER BY id",
    "SELECT * FROM inbox WHERE closed_at IS NULL ORDER BY id",
    "SELECT * FROM runs WHERE id IN (SELECT run FROM inbox WHERE closed_at IS NULL) ORDER BY id",
    "SELECT * FROM audit ORDER BY namespace, seq",
    "SELECT * FROM handlers ORDER BY id",
    "SELECT * FROM workflows ORDER BY id",
    "SELECT * FROM logs WHERE run IN (SELECT id FROM runs WHERE open = 1) ORDER BY id",
    `SELECT t.*, ${TRANSCRIPT_BODY} FROM transcripts t WHERE run IN (SELECT id FROM runs WHERE open = 1) ORDER BY run, unit`,
  ].map((sql) => store.db.prepare(sql).all());

type Step = { act: "publish" | "run" | "skip" | "fail" | "dead" | "unknown" | "close"; days: number };

/** Does the step if the workflow allows it now. */
async function take(store: SqliteStore, workflow: number, { act: what }: Step, atMs: number): Promise<void> {
  const facts = (await store.workflow(workflow)) as WorkflowFacts;
  const book = handlerOf(facts, "book");
  const [first] = await store.pending(book.id, "order", { limit: 1 });
  const idle = facts.openRun === undefined && first !== undefined;
  if (what === "publish") await publish(store, workflow, [`m${atMs}`, `n${atMs}`], atMs);
  else if (what === "skip" && first) {
    const delivery = (await store.delivery(first.delivery)) as DeliveryFacts;
    await must(store, skipDelivery(delivery, { by: "ada", atMs }) as Change);
  } else if (what === "close" && facts.openRun && !facts.openRun.active) {
    const run = (await store.run(facts.openRun.id)) as RunFacts;
    const deciding = { by: "ada", atMs, down: [], canCheck: false };
    if (run.mutation?.status === "indeterminate")
      await must(store, decide(run, { action: "not-applied" }, deciding));
    else await must(store, decide(run, { action: "close", deliveries: "skip" }, deciding));
  } else if (idle && book.newPendingAtMs !== undefined) {
    if (what === "run") await wholeRun(store, workflow, atMs);
    else if (what !== "skip" && what !== "close") await half(store, workflow, what, atMs);
  }
}

async function half(
  store: SqliteStore,
  workflow: number,
  what: "fail" | "dead" | "unknown",
  atMs: number,
): Promise<void> {
  const { run } = await reserving(store, workflow, atMs);
  await must(store, noted(workflow, atMs, { do: "logs", run: run.id, unit: "prepare", lines: "[]" }));
  const transcript = { do: "transcript" as const, run: run.id, unit: "prepare", body: '"shared"' };
  await must(store, noted(workflow, atMs, transcript));
  if (what !== "unknown") {
    await act(store, run.id, failing(store, what === "dead" ? "deadLetter" : "halt", atMs));
    return;
  }
  await act(store, run.id, (facts) => intended(facts, ledgerRow(store, facts, atMs), atMs));
  await act(store, run.id, (facts) => {
    const { idempotencyKey } = facts.mutation;
    return sending(facts, { n: 1, atMs, bytesHash: "b", idempotencyKey }, atMs);
  });
  const error = { class: "transient" as const, code: "timeout", message: "no answer" };
  const end = { error, answer: "{}", canCheck: false, inbox: store.newId() };
  await act(store, run.id, (facts) => unknown(facts, end, atMs));
}

describe("open work (X1)", () => {
  const steps = fc.array(
    fc.record({
      act: fc.constantFrom<Step["act"]>(
        "publish",
        "publish",
        "run",
        "run",
        "skip",
        "fail",
        "dead",
        "unknown",
        "close",
      ),
      days: fc.constantFrom(0, 1, 10, 40, 100),
    }),
    { minLength: 3, maxLength: 25 },
  );

  test("nothing open is ever pruned, and what is left is sound: after any work, at any time", async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.integer({ min: 0, max: 500 }), async (list, wait) => {
        await using store = open();
        const workflow = await deployed(store, "orders", 1_000);
        let atMs = 1_000;
        for (const step of list) {
          atMs += step.days * DAY + 1;
          await take(store, workflow, step, atMs);
        }
        const before = openWork(store);
        await prune(store, RETENTION, atMs + wait * DAY);
        expect(openWork(store)).toEqual(before);
        expect(sound(store)).toEqual([]);
        const again = await prune(store, RETENTION, atMs + wait * DAY);
        expect(again).toMatchObject({ runs: 0, journal: 0, payloads: 0, tombstones: 0, deliveries: 0 });
        await take(store, workflow, { act: "publish", days: 0 }, atMs + wait * DAY + 1);
        expect(sound(store)).toEqual([]);
      }),
      { numRuns: 150 },
    );
  });
});

describe("the writer (X2)", () => {
  test("thousands of rows go in batches of at most 50 ms, writes go on, and the file shrinks", async () => {
    const data = mkdtempSync(join(tmpdir(), "pawl-retention-"));
    await using store = open(data);
    const workflows = await Promise.all(
      Array.from({ length: 20 }, (_, i) => deployed(store, `w${i}`, 1_000)),
    );
    const fill = async (workflow: number) => {
      for (let i = 0; i < 40; i++) {
        const batch = Array.from({ length: 3 }, (_, n) => `${i}-${n}-${"x".repeat(500)}`);
        await publish(store, workflow, batch, 1_000);
        await wholeRun(store, workflow, 1_000);
      }
    };
    await Promise.all(workflows.map(fill));
    const busy = await deployed(store, "busy", 1_000);
    let stop = false;
    let written = 0;
    const load = (async () => {
      for (; !stop; written++) await publish(store, busy, [`m${written}`], 99 * DAY);
    })();
    const done = await prune(store, RETENTION, 100 * DAY);
    stop = true;
    await load;
    expect(done.runs).toBe(800);
    expect(done.journal).toBeGreaterThan(2_000);
    expect(done.pages).toBeGreaterThan(0);
    expect(written).toBeGreaterThan(10);
    // Five times the limit that bench and proof hold it to.
    expect(done.longestMs).toBeLessThan(250);
    expect(sound(store)).toEqual([]);
    expect(store.db.pragma("freelist_count", { simple: true })).toBe(0);
    expect(statSync(join(data, "pawl.db")).size).toBeGreaterThan(0);
  });
});
