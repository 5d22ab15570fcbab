import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openStore } from "../../host/store/open.ts";
import { begin, deployed, publish, wholeRun } from "../support/chain.ts";

test("a consumer run from trigger to commit", async () => {
  const data = mkdtempSync(join(tmpdir(), "pawl-"));
  await using store = openStore({ data, nowMs: () => 1_000 });
  const workflow = await deployed(store, "orders", 1_000);
  await publish(store, workflow, ["a", "b"], 1_000);
  const done = await wholeRun(store, workflow, 2_000);
  expect(done.run).toMatchObject({ phase: "committed", status: "committed", open: false });
  const second = await begin(store, workflow, 3_000);
  expect(second.run.trigger.reason).toBe("more");
});
