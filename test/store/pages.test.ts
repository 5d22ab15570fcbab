/** The lists people look at (ports/records.ts): what is in them, whose it is, how they page, and by which index. */
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Page, PageRequest } from "../../host/ports/records.ts";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { Pages } from "../../host/store/sqlite/pages.ts";
import { indexesOf, slowSteps, statementsOf } from "../support/plans.ts";
import { deployed, handlerOf, must, publish, wholeRun } from "../support/chain.ts";

let store: SqliteStore;
let pages: Pages;
let namespace: number;
let workflow: number;

beforeEach(async () => {
  store = openStore({ data: ":memory:", nowMs: () => 1_000 });
  pages = new Pages(store.db);
  workflow = await deployed(store, "orders", 1_000);
  namespace = (await pages.namespace("default")) as number;
});
afterEach(() => store[Symbol.asyncDispose]());

const idsTo = (count: number, prefix = "m"): string[] =>
  Array.from({ length: count }, (_, n) => `${prefix}${String(n).padStart(4, "0")}`);

async function runsTo(count: number): Promise<number[]> {
  await publish(store, workflow, idsTo(count), 1_500);
  const runs: number[] = [];
  for (let n = 0; n < count; n++) runs.push((await wholeRun(store, workflow, 2_000 + n)).run.id);
  return runs;
}

/** Every page of a list, from the first to the last. */
async function walk<Item>(
  list: (page: PageRequest) => Promise<Page<Item>>,
  limit: number,
  between?: () => Promise<void>,
): Promise<Item[]> {
  const all: Item[] = [];
  let cursor: string | undefined;
  do {
    const page = await list({ limit, ...(cursor === undefined ? {} : { cursor }) });
    expect(page.items.length).toBeLessThanOrEqual(limit);
    all.push(...page.items);
    cursor = page.nextCursor;
    await between?.();
  } while (cursor !== undefined);
  return all;
}

describe("runs", () => {
  test("newest first, with the names of workflow and handler; a page knows where the next begins (L1)", async () => {
    const made = await runsTo(5);
    const all = await walk((page) => pages.runs(namespace, {}, page), 2);
    expect(all.map((one) => one.run.id)).toEqual(made.toReversed());
    expect(all[0]).toMatchObject({ workflow: "orders", handler: "book", run: { status: "committed" } });
  });

  test("paging neither repeats nor leaves out a run while new ones come in (L1)", async () => {
    const made = await runsTo(6);
    await publish(store, workflow, idsTo(20, "n"), 3_000);
    let atMs = 4_000;
    const seen = await walk(
      (page) => pages.runs(namespace, { workflow }, page),
      2,
      async () => void (await wholeRun(store, workflow, atMs++)),
    );
    expect(seen.map((one) => one.run.id)).toEqual(made.toReversed());
  });

  test("each filter keeps what it names and nothing else", async () => {
    const made = await runsTo(3);
    const other = await deployed(store, "other", 1_000);
    const facts = (await store.workflow(workflow)) as WorkflowFacts;
    const of = async (filter: Parameters<Pages["runs"]>[1]) =>
      (await pages.runs(namespace, filter, {})).items.map((one) => one.run.id);
    expect(await of({ workflow })).toHaveLength(3);
    expect(await of({ workflow: other })).toEqual([]);
    expect(await of({ handler: handlerOf(facts, "book").id })).toHaveLength(3);
    expect(await of({ handler: handlerOf(facts, "poll").id })).toEqual([]);
    expect(await of({ status: "committed" })).toHaveLength(3);
    expect(await of({ status: "failed:logic" })).toEqual([]);
    expect(await of({ phase: "committed" })).toHaveLength(3);
    expect(await of({ open: true })).toEqual([]);
    expect(await of({ workflow, open: true })).toEqual([]);
    expect(await of({ open: false })).toHaveLength(3);
    expect(await of({ sinceMs: 2_001 })).toEqual(made.slice(1).toReversed());
  });

  test("a filter that matches almost nothing ends its page early and goes on from there (L2)", async () => {
    await runsTo(1);
    const [only] = store.db.prepare("SELECT id FROM runs").pluck().all() as [number];
    copyRuns(only, 4_500);
    const first = await pages.runs(namespace, { workflow, sinceMs: 2_000, phase: "committed" }, { limit: 1 });
    expect(first).toMatchObject({ items: [], nextCursor: expect.any(String) });
    const all = await walk((page) => pages.runs(namespace, { workflow, sinceMs: 2_000 }, page), 10);
    expect(all.map((one) => one.run.id)).toEqual([only]);
  });

  test("a run in full: chain, ledger row with sends, journal in order, logs", async () => {
    const [id] = (await runsTo(1)) as [number];
    await must(store, {
      verb: "logs",
      workflow,
      atMs: 3_000,
      expect: {},
      writes: [{ do: "logs", run: id, unit: "prepare", lines: '["hello"]' }],
    });
    const run = await pages.run(namespace, id);
    expect(run?.chain.map((one) => one.id)).toEqual([id]);
    expect(run?.mutation).toMatchObject({
      status: "applied",
      tool: "post",
      history: [{ n: 1, answer: "{}" }],
    });
    const journal = await walk((page) => pages.journal(namespace, id, page), 2);
    expect(journal.map((one) => one.verb)[0]).toBe("start");
    expect(journal.at(-1)?.verb).toBe("commit");
    expect(journal.map((one) => one.first)).toEqual(
      journal.map((one) => one.first).toSorted((a, b) => a - b),
    );
    expect((await pages.logs(namespace, id, {})).items).toMatchObject([
      { unit: "prepare", lines: '["hello"]' },
    ]);
    expect((await pages.outputs(namespace, workflow, {})).items).toMatchObject([{ handler: "book" }]);
  });
});

describe("workflows and their parts", () => {
  test("by name, with open run, counts and the newest statuses", async () => {
    await runsTo(2);
    await publish(store, workflow, ["more"], 5_000);
    await deployed(store, "a-first", 1_000);
    const all = await walk(
      (page) => pages.workflows(namespace, { archived: false, sinceMs: 2_001 }, page),
      1,
    );
    expect(all.map((one) => one.name)).toEqual(["a-first", "orders"]);
    expect(all[1]).toMatchObject({
      activeVersion: 1,
      paused: false,
      counts: { pending: 1, reserved: 0, dead: 0, runs24h: 1, failed24h: 0 },
      recent: ["committed", "committed"],
    });
    expect((await pages.workflows(namespace, { archived: true, sinceMs: 0 }, {})).items).toEqual([]);
  });

  test("handlers as declared, with what is pending and the last run", async () => {
    const [id] = await runsTo(1);
    const [poll, book] = await pages.handlers(namespace, workflow);
    expect([poll?.name, book?.name]).toEqual(["poll", "book"]);
    expect(book).toMatchObject({ pending: 0, lastRun: { id, status: "committed" } });
    expect(poll?.declared).toMatchObject({ schedule: { interval: "5m" } });
  });

  test("versions newest first", async () => {
    await deployed(store, "orders", 2_000);
    const all = await walk((page) => pages.versions(namespace, workflow, page), 1);
    expect(all.map((one) => one.number)).toEqual([2, 1]);
  });

  test("slots newest first", async () => {
    const poll = handlerOf((await store.workflow(workflow)) as WorkflowFacts, "poll").id;
    const range = (fromMs: number) => ({ fromMs, toMs: fromMs, count: 1, fate: "ran" as const, run: 1 });
    await must(store, {
      verb: "slots",
      workflow,
      atMs: 3_000,
      expect: {},
      writes: [10, 20, 30].map((fromMs) => ({ do: "slot", handler: poll, range: range(fromMs) })),
    });
    const all = await walk((page) => pages.slots(namespace, poll, page), 2);
    expect(all.map((one) => one.fromMs)).toEqual([30, 20, 10]);
  });
});

describe("events and inputs", () => {
  test("topics with what is pending for whom; events newest first with their deliveries", async () => {
    await runsTo(2);
    await publish(store, workflow, ["x", "y", "z"], 6_000);
    const topics = await pages.topics(namespace, workflow);
    expect(topics.map((one) => one.topic).toSorted()).toEqual(["booked", "order"]);
    expect(topics.find((one) => one.topic === "order")).toMatchObject({
      pending: [{ count: 3, oldestAtMs: 6_000 }],
      newestAtMs: 6_000,
    });
    const all = await walk((page) => pages.events(namespace, workflow, "order", {}, page), 2);
    expect(all.map((one) => one.messageId)).toEqual(["z", "y", "x", "m0001", "m0000"]);
    const status = (which: "pending" | "consumed" | "dead") =>
      walk((page) => pages.events(namespace, workflow, "order", { status: which }, page), 2);
    expect((await status("pending")).map((one) => one.messageId)).toEqual(["z", "y", "x"]);
    expect((await status("consumed")).map((one) => one.messageId)).toEqual(["m0001", "m0000"]);
    expect(await status("dead")).toEqual([]);
  });

  test("inputs with what became of the events they caused", async () => {
    const facts = (await store.workflow(workflow)) as WorkflowFacts;
    const inputs = ["i1", "i2"].map((key) => ({ id: store.newId(), key }));
    await must(store, {
      verb: "inputs",
      workflow,
      atMs: 2_000,
      expect: {},
      writes: inputs.map(({ id, key }) => ({
        do: "input",
        id,
        source: "feed",
        type: "item",
        key,
        title: key,
      })),
    });
    await must(store, {
      verb: "publish",
      workflow,
      atMs: 2_000,
      expect: { generation: facts.generation },
      writes: [
        {
          do: "publish",
          publication: {
            topic: "order",
            messageId: "a",
            payload: "{}",
            inputs: [inputs[0]?.id as number],
            hops: 0,
          },
          subscribers: [handlerOf(facts, "book").id],
        },
      ],
    });
    const all = await walk((page) => pages.inputs(namespace, workflow, page), 1);
    expect(all.map((one) => [one.key, one.became.pending])).toEqual([
      ["i2", 0],
      ["i1", 1],
    ]);
  });
});

/** An input, and an event that it caused. */
async function inputOf(key: string, messageId: string): Promise<number> {
  const facts = (await store.workflow(workflow)) as WorkflowFacts;
  const id = store.newId();
  const publication = { topic: "order", messageId, payload: "{}", inputs: [id], hops: 0 };
  await must(store, {
    verb: "publish",
    workflow,
    atMs: 2_000,
    expect: { generation: facts.generation },
    writes: [
      { do: "input", id, source: "feed", type: "item", key, title: `Item ${key}` },
      { do: "publish", publication, subscribers: [handlerOf(facts, "book").id] },
    ],
  });
  return id;
}

describe("inputs and outputs, both directions", () => {
  test("an input names what was changed because of it, and the change names its input", async () => {
    const [one, two] = [await inputOf("i1", "a"), await inputOf("i2", "b")];
    const runs = [await wholeRun(store, workflow, 3_000), await wholeRun(store, workflow, 3_001)];
    const found = await pages.input(namespace, one);
    expect(found).toMatchObject({
      id: one,
      title: "Item i1",
      workflow,
      became: { consumed: 1 },
      outputs: [{ mutation: { originRun: runs[0]?.run.id, status: "applied" }, causedBy: [{ id: one }] }],
    });
    expect(found?.outputs).toHaveLength(1);
    const all = (await pages.outputs(namespace, workflow, {})).items;
    expect(all.map((output) => output.causedBy.map((input) => input.id))).toEqual([[two], [one]]);
    const run = await pages.run(namespace, runs[1]?.run.id as number);
    expect(run?.mutation?.causedBy).toEqual([
      { id: two, source: "feed", type: "item", key: "i2", title: "Item i2" },
    ]);
  });

  test("outputs of one input page like all outputs (L1)", async () => {
    const input = await inputOf("i1", "a");
    const made: number[] = [];
    for (let n = 0; n < 5; n++) {
      const { run } = await wholeRun(store, workflow, 3_000 + n);
      made.push(run.id);
      const [delivery] = store.db.prepare("SELECT max(id) FROM deliveries").pluck().all() as [number];
      const handler = run.handler;
      await must(store, {
        verb: "again",
        workflow,
        atMs: 3_000 + n,
        expect: {},
        writes: [
          { do: "delivery.renew", id: delivery, how: "reprocess" },
          { do: "handler.set", id: handler, set: { triggered: { reason: "requeued", atMs: 3_000 + n } } },
        ],
      });
    }
    const seen = await walk((page) => pages.outputs(namespace, workflow, page, { input }), 2);
    expect(seen.map((one) => one.mutation.originRun)).toEqual(made.toReversed());
  });

  test("what is there from before is filled in from the journal", async () => {
    const input = await inputOf("i1", "a");
    await wholeRun(store, workflow, 3_000);
    const sql = readFileSync(
      new URL("../../migrations/sqlite/0003-output-causes.sql", import.meta.url),
      "utf8",
    );
    store.db.exec("DELETE FROM output_causes");
    store.db.exec(sql.slice(sql.indexOf("INSERT")));
    expect((await pages.input(namespace, input))?.outputs).toHaveLength(1);
  });
});

describe("inbox and audit", () => {
  test("open items oldest first, by kind, counted; audit newest first", async () => {
    const audited = store.db.prepare("SELECT count(*) FROM audit").pluck().get() as number;
    const items = [1, 2, 3].map(() => store.newId());
    await must(store, {
      verb: "notice",
      workflow,
      atMs: 2_000,
      expect: {},
      writes: [
        ...items.map((id, n) => ({
          do: "inbox.open" as const,
          id,
          kind: n === 1 ? ("orphaned" as const) : ("stale_input" as const),
        })),
        { do: "inbox.close", id: items[2] as number },
        { do: "audit", actor: "ada", action: "look", detail: "{}" },
      ],
    });
    const open = await walk((page) => pages.inbox(namespace, {}, page), 1);
    expect(open.map((one) => one.id)).toEqual(items.slice(0, 2));
    expect((await pages.inbox(namespace, { kind: "orphaned" }, {})).items).toMatchObject([{ id: items[1] }]);
    expect(await pages.inboxCount(namespace)).toBe(2);
    const audit = await walk((page) => pages.audit(namespace, page), 1);
    expect(audit.map((one) => one.seq)).toEqual(
      Array.from({ length: audited + 1 }, (_, n) => audited + 1 - n),
    );
    expect(audit[0]).toMatchObject({ actor: "ada", action: "look" });
  });
});

test("another namespace sees nothing, whichever id it names", async () => {
  const [run] = (await runsTo(2)) as [number];
  await deployed(store, "orders", 1_000, undefined, "tenant");
  const tenant = (await pages.namespace("tenant")) as number;
  const facts = (await store.run(run)) as RunFacts;
  await must(store, {
    verb: "notice",
    workflow,
    atMs: 2_000,
    expect: {},
    writes: [{ do: "inbox.open", id: store.newId(), kind: "orphaned" }],
  });
  expect(await pages.workflowNamed(tenant, "orders")).not.toBe(workflow);
  expect((await pages.runs(tenant, {}, {})).items).toEqual([]);
  expect((await pages.runs(tenant, { workflow }, {})).items).toEqual([]);
  expect((await pages.runs(tenant, { handler: facts.handler.id }, {})).items).toEqual([]);
  expect(await pages.run(tenant, run)).toBeUndefined();
  expect((await pages.journal(tenant, run, {})).items).toEqual([]);
  expect((await pages.logs(tenant, run, {})).items).toEqual([]);
  expect((await pages.outputs(tenant, workflow, {})).items).toEqual([]);
  const input = await inputOf("i1", "more");
  await wholeRun(store, workflow, 3_000);
  expect((await pages.outputs(tenant, workflow, {}, { input })).items).toEqual([]);
  expect(await pages.input(tenant, input)).toBeUndefined();
  expect(await pages.workflow(tenant, workflow, { sinceMs: 0 })).toBeUndefined();
  expect((await pages.workflows(tenant, { archived: false, sinceMs: 0 }, {})).items).toMatchObject([
    { name: "orders", counts: { pending: 0, runs24h: 0 } },
  ]);
  expect(await pages.handlers(tenant, workflow)).toEqual([]);
  expect((await pages.versions(tenant, workflow, {})).items).toEqual([]);
  expect((await pages.slots(tenant, facts.handler.id, {})).items).toEqual([]);
  expect(await pages.topics(tenant, workflow)).toEqual([]);
  expect((await pages.events(tenant, workflow, "order", {}, {})).items).toEqual([]);
  expect((await pages.inputs(tenant, workflow, {})).items).toEqual([]);
  expect((await pages.inbox(tenant, {}, {})).items).toEqual([]);
  expect(await pages.inboxCount(tenant)).toBe(0);
  expect((await pages.audit(tenant, {})).items).toMatchObject([{ seq: 1, action: "deploy" }]);
});

test("a page has at most 200 items, and a cursor that is not of this list is refused", async () => {
  await publish(store, workflow, idsTo(250), 1_500);
  const page = await pages.events(namespace, workflow, "order", {}, { limit: 1_000 });
  expect(page.items).toHaveLength(200);
  await expect(pages.runs(namespace, {}, { cursor: page.nextCursor as string })).rejects.toMatchObject({
    code: "cursor-invalid",
  });
  await expect(pages.runs(namespace, {}, { cursor: "%%%" })).rejects.toMatchObject({
    code: "cursor-invalid",
  });
});

test("the test of plans sees a scan, by the table's own name or another, and a sort", () => {
  for (const text of [
    "SELECT * FROM runs WHERE phase = @phase",
    "SELECT 1 FROM deliveries d JOIN events e ON e.id = d.event",
    "SELECT * FROM runs WHERE workflow = 1 ORDER BY created_at",
    "SELECT * FROM runs WHERE phase = @phase AND id < @before ORDER BY id DESC",
  ])
    expect(slowSteps(store.db, text)).not.toEqual([]);
});

test("every statement of every page runs by an index and sorts nothing", async () => {
  const [run] = (await runsTo(2)) as [number];
  const { handler } = (await store.run(run)) as RunFacts;
  const texts = await statementsOf(store.db, async () => {
    for (const filter of [
      {},
      { workflow },
      { workflow, open: true },
      { status: "failed:logic" as const },
      {
        status: "committed" as const,
        phase: "committed" as const,
        handler: handler.id,
        sinceMs: 1,
        open: false,
      },
    ])
      await pages.runs(namespace, filter, {});
    await pages.run(namespace, run);
    await pages.journal(namespace, run, {});
    await pages.logs(namespace, run, {});
    await pages.outputs(namespace, workflow, {});
    await pages.outputs(namespace, workflow, {}, { input: 1 });
    await pages.input(namespace, await inputOf("i1", "m0000"));
    await pages.workflows(namespace, { archived: false, sinceMs: 0 }, {});
    await pages.workflow(namespace, workflow, { sinceMs: 0 });
    await pages.handlers(namespace, workflow);
    await pages.versions(namespace, workflow, {});
    await pages.slots(namespace, handler.id, {});
    await pages.topics(namespace, workflow);
    for (const filter of [
      {},
      { status: "pending" as const },
      { status: "dead" as const, consumer: handler.id },
      { status: "consumed" as const },
    ])
      await pages.events(namespace, workflow, "order", filter, {});
    await pages.inputs(namespace, workflow, {});
    await pages.inbox(namespace, {}, {});
    await pages.inboxCount(namespace);
    await pages.audit(namespace, {});
  });
  expect(texts.length).toBeGreaterThan(30);
  expect(texts.flatMap((text) => slowSteps(store.db, text).map((step) => `${step}: ${text}`))).toEqual([]);
});

test("a list of runs comes from the narrowest index, whatever else is asked", async () => {
  const indexOf = async (filter: Parameters<Pages["runs"]>[1]): Promise<string[]> => {
    const texts = await statementsOf(store.db, () => pages.runs(namespace, filter, {}));
    return [...new Set(texts.flatMap((text) => indexesOf(store.db, text)))].filter((one) =>
      one.startsWith("runs"),
    );
  };
  expect(await indexOf({})).toEqual(["runs_namespace"]);
  expect(await indexOf({ workflow, phase: "committed", sinceMs: 1 })).toEqual(["runs_page"]);
  expect(await indexOf({ workflow, status: "failed:logic" })).toEqual(["runs_page"]);
  expect(await indexOf({ workflow, open: true })).toEqual(["runs_open"]);
  expect(await indexOf({ status: "failed:logic" })).toEqual(["runs_stopped"]);
});

/** Many runs of one workflow without the work: copies of one, older than any filter asks for. */
function copyRuns(id: number, count: number): void {
  const columns = (store.db.pragma("table_info(runs)") as { name: string }[]).map(({ name }) => name);
  const copied = columns.map((name) =>
    name === "id" || name === "root_id" ? `${id} + n.value` : name === "created_at" ? "1" : name,
  );
  store.db.exec(
    `INSERT INTO runs (${columns.join(", ")}) SELECT ${copied.join(", ")} FROM runs, (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ${count}) SELECT value FROM n) n WHERE id = ${id}`,
  );
}
