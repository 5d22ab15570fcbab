import { expect, test } from "vitest";
import { Cursors } from "../../host/store/sqlite/cursors.ts";
import { Statements } from "../../host/store/sqlite/statements.ts";
import { openStore } from "../../host/store/open.ts";
import type { Manifest } from "../../host/core/workflow.ts";
import { deployed, MANIFEST, publish, wholeRun } from "../support/chain.ts";

test("(C1) what housekeeping has written is what the next Change is decided on", async () => {
  await using store = openStore({ data: ":memory:", nowMs: () => 1_000 });
  const workflow = await deployed(store, "orders", 1_000);
  await publish(store, workflow, ["a"], 1_000);
  await store.maintain(() => store.db.prepare("UPDATE workflows SET seq = seq + 100").run());
  const before = await store.workflow(workflow);
  await publish(store, workflow, ["b"], 1_000);
  expect((await store.workflow(workflow))?.seq).toBe((before?.seq ?? 0) + 1);
});

test("(C1) what is kept is what is stored: a store that forgets after every step ends up the same", async () => {
  const tables = async (forgets: boolean) => {
    await using store = openStore({ data: ":memory:", nowMs: () => 1_000 });
    const forget = async () => (forgets ? store.maintain(() => {}) : undefined);
    const { book } = MANIFEST.consumers as { book: Manifest["consumers"][string] };
    const manifests = [MANIFEST, { ...MANIFEST, consumers: { book, again: book } }, MANIFEST];
    for (const [n, manifest] of manifests.entries()) {
      const workflow = await deployed(store, "orders", n * 10_000, manifest);
      await forget();
      await publish(store, workflow, [`a${n}`, `b${n}`], n * 10_000 + 1_000);
      await forget();
      await wholeRun(store, workflow, n * 10_000 + 2_000);
      await forget();
    }
    return ["workflows", "handlers", "journal"].map((table) =>
      store.db.prepare(`SELECT * FROM ${table}`).all(),
    );
  };
  expect(await tables(false)).toEqual(await tables(true));
});

test("(C3) those that came first are read again when there are too many", async () => {
  await using store = openStore({ data: ":memory:", nowMs: () => 1_000 });
  await store.workflowId("default", "first", 1_000);
  await store.flush();
  const insert = store.db.prepare(
    "INSERT INTO workflows (id, namespace, name, created_at, updated_at) SELECT ?, id, 'w' || ?, 0, 0 FROM namespaces",
  );
  const ids = Array.from({ length: 5_001 }, (_, n) => 10_000_000 + n);
  for (const id of ids) insert.run(id, id);
  const cursors = new Cursors(new Statements(store.db));
  const [first] = ids.map((id) => cursors.of(id));
  store.db.prepare("UPDATE workflows SET seq = 7").run();
  expect(first?.seq).toBe(0);
  expect(cursors.of(ids.at(-1) as number)?.seq).toBe(0);
  expect(cursors.of(ids[0] as number)?.seq).toBe(7);
});
