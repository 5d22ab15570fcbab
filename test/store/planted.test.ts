/**
 * The suite is itself tested: each of these bugs is planted in a copy of the host, and the model test, with its doctor
 * and `verify`, must catch it. A patch that no longer fits its file fails the test: a bug that is not planted proves
 * nothing.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";

type Patch = [file: string, find: string, replace: string];
type Bug = [what: string, ...patches: Patch[]];

const SEQUENCES = 250;
const SEED = 4_711;
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

const BUGS: readonly Bug[] = [
  [
    "trigger cleared at commit instead of start",
    ["core/start.ts", '{ seenSeq: "now" as const, triggered: null }', '{ seenSeq: "now" as const }'],
    [
      "core/advance.ts",
      "{ wakeAtMs: run.wakeAtMs ?? null,",
      "{ triggered: null, wakeAtMs: run.wakeAtMs ?? null,",
    ],
  ],
  [
    "seenSeq set at commit instead of start",
    ["core/start.ts", '{ seenSeq: "now" as const, triggered: null }', "{ triggered: null }"],
    [
      "core/advance.ts",
      "{ wakeAtMs: run.wakeAtMs ?? null,",
      '{ seenSeq: "now" as const, wakeAtMs: run.wakeAtMs ?? null,',
    ],
  ],
  [
    "successor by phase instead of ledger",
    [
      "core/retry.ts",
      "const phase = startsAt(run, mutation?.status);",
      'const phase = run.kind === "producer" ? "executing" : run.phase === "emitting" ? "emitting" : "preparing";',
    ],
  ],
  [
    "reservations not released on failure",
    [
      "core/fail.ts",
      "if (reserved.length > 0 && !isPastBoundary(mutation) && !inPlace)",
      "if (false as boolean)",
    ],
  ],
  [
    "reservations released past the boundary",
    [
      "core/fail.ts",
      "if (reserved.length > 0 && !isPastBoundary(mutation) && !inPlace)",
      "if (reserved.length > 0 && !inPlace)",
    ],
  ],
  [
    "reservations released twice: at the failure and at the close",
    [
      "core/close.ts",
      'return how === "release" ? reserved : [...reserved, ...released];',
      "return [...reserved, ...released, ...reserved];",
    ],
    [
      "store/sqlite/events.ts",
      "released_by = CASE WHEN @to = 'pending' THEN reserved_by END",
      "attempts = attempts + (@to = 'pending' AND status = 'pending'), released_by = CASE WHEN @to = 'pending' THEN reserved_by END",
    ],
  ],
  [
    "a journal entry is missing",
    [
      "core/journal.ts",
      'return [{ kind: "deliveries.handed-over", run: write.from, to: write.to }];',
      "return [];",
    ],
  ],
  [
    "a unit never ends",
    [
      "core/journal.ts",
      "return [{ kind: `unit.${write.end}`, run: write.run, units: write.units }];",
      'return write.end === "skipped" ? [] : [{ kind: `unit.${write.end}`, run: write.run, units: write.units }];',
    ],
  ],
  [
    "the run's revision is not raised",
    ["store/sqlite/apply.ts", '"revision = revision + 1 WHERE', '"revision = revision WHERE'],
  ],
  [
    "the workflow's revision is not raised",
    ["store/sqlite/apply.ts", "if (cursor.touched) cursor.revision++;", ""],
  ],
  ["no fence check", ["store/open.ts", 'return { ok: false, because: "stale-fence" };', "void 0;"]],
  [
    "audit outside the transaction: also when refused",
    [
      "store/sqlite/apply.ts",
      "    if (refused) return refused;\n",
      '    for (const write of change.writes)\n      if (refused && write.do === "audit") this.#records.write(write, { workflow: cursor.id, namespace: cursor.namespace }, change.atMs);\n    if (refused) return refused;\n',
    ],
  ],
  [
    "publishing again revives what was consumed",
    ["core/event.ts", 'renewed: ids("pending"),', 'renewed: [...ids("pending"), ...ids("consumed")],'],
    [
      "store/sqlite/events.ts",
      '"UPDATE deliveries SET change_seq = ? WHERE id = ?"',
      "\"UPDATE deliveries SET status = 'pending', settled_at = NULL, change_seq = ? WHERE id = ?\"",
    ],
  ],
  [
    "a late revision is lost",
    ["store/sqlite/events.ts", "late = CASE WHEN @to = 'consumed' AND", "late = CASE WHEN @to = 'never' AND"],
  ],
  [
    "a reservation pins no revision",
    [
      "store/sqlite/events.ts",
      "released_by = NULL, revision = (SELECT revision FROM events WHERE events.id = deliveries.event) WHERE",
      "released_by = NULL WHERE",
    ],
  ],
  [
    "wakeAt not cleared by a commit without one",
    [
      "core/advance.ts",
      "{ wakeAtMs: run.wakeAtMs ?? null,",
      "{ ...(run.wakeAtMs ? { wakeAtMs: run.wakeAtMs } : {}),",
    ],
  ],
  [
    "the open flag is left when a chain is closed",
    [
      "core/close.ts",
      "        open: false,\n        readyAtMs: null,\n        resolution,",
      "        readyAtMs: null,\n        resolution,",
    ],
  ],
  [
    "the ledger row is not handed over",
    [
      "core/retry.ts",
      "from: mutation.status, set: { ownerRun: next.id } });",
      "from: mutation.status, set: { ownerRun: mutation.ownerRun } });",
    ],
  ],
  [
    "due_at stale: set once, never moved",
    [
      "store/sqlite/handlers.ts",
      'if (dueAtMs !== row["due_at"]) {',
      'if (dueAtMs !== row["due_at"] && row["due_at"] === null) {',
    ],
  ],
  [
    "a chain that becomes ready is not due",
    [
      "store/sqlite/apply.ts",
      "patch?.status !== undefined || patch?.readyAtMs !== undefined",
      "patch?.status !== undefined",
    ],
  ],
  [
    "recovery makes a second successor",
    ["core/recover.ts", 'if (run.status !== "active") return undefined;', ""],
  ],
  ["a crash is never a loop", ["core/recover.ts", "inARow >= CRASHES_IN_A_ROW", "inARow > CRASHES_IN_A_ROW"]],
  ["a check is believed before the call has settled", ["core/settle.ts", ">= mutation.settleMs;", ">= 0;"]],
  [
    "an unknown outcome counts as failed",
    [
      "core/settle.ts",
      '        status: "needs_reconcile",\n        endedAtMs: atMs,\n        error:',
      '        status: "failed",\n        endedAtMs: atMs,\n        error:',
    ],
  ],
  [
    "copies are not byte-equal",
    [
      "core/retry.ts",
      "prepared === undefined ? {} : { prepared }",
      "prepared === undefined ? {} : { prepared: `${prepared} ` }",
    ],
  ],
  [
    "expected deliveries are not looked at",
    ["store/sqlite/expect.ts", "if (gone.length > 0) return", "if (gone.length < 0) return"],
  ],
  [
    "a consumer with work left is not triggered again",
    [
      "store/sqlite/handlers.ts",
      "if (touched.triggerIfPending &&",
      "if (false as boolean && touched.triggerIfPending &&",
    ],
  ],
  [
    "a new run keeps the old version",
    [
      "core/retry.ts",
      "isPastBoundary(mutation) && (orphaned || !hasNext) ? run.version : workflow.activeVersion",
      "orphaned || hasNext ? run.version : run.version",
    ],
  ],
  [
    "a failed chain does not answer its slot",
    [
      "core/close.ts",
      "  for (const range of ending.slots) writes.push",
      "  for (const range of [] as typeof ending.slots) writes.push",
    ],
  ],
];

const folder = mkdtempSync(join(tmpdir(), "pawl-planted-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let copies = 0;
function plant(patches: readonly Patch[]): string {
  const copy = join(folder, String(++copies));
  for (const part of ["host/core", "host/ports", "host/store", "migrations", "test/support"])
    cpSync(join(ROOT, part), join(copy, part), { recursive: true });
  cpSync(join(ROOT, "package.json"), join(copy, "package.json"));
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"), "junction");
  for (const [file, find, replace] of patches) {
    const path = join(copy, "host", file);
    const text = readFileSync(path, "utf8");
    expect(text.split(find).length - 1, `${file} holds once: ${find}`).toBe(1);
    writeFileSync(
      path,
      text.replace(find, () => replace),
    );
  }
  return copy;
}

function tryModel(copy: string): { by?: string; message?: string } {
  const program = join(copy, "test/support/model-run.ts");
  const args = ["--no-warnings", program, String(SEQUENCES), String(SEED), "first"];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (stdout === "") throw new Error(stderr);
  return JSON.parse(stdout) as { by?: string; message?: string };
}

test("nothing is caught where nothing is planted", () => {
  expect(tryModel(plant([]))).not.toHaveProperty("by");
});

test.each(BUGS.map(([what, ...patches]) => ({ what, patches })))("caught: $what", ({ what, patches }) => {
  const { by, message } = tryModel(plant(patches));
  expect(by, `nobody noticed: ${what}`).toBeDefined();
  const [line] = (message ?? "").split("\n", 1);
  process.stdout.write(`planted "${what}" was caught by ${line}\n`);
});
