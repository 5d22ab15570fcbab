// What people decide about a run (02 §6): one of two wins and the other is told who and when; approvals execute exactly
// what was shown; what was announced is what happens; every answer with `expect`, note and audit in one transaction.
import type { Database } from "better-sqlite3";
import { describe, expect, test } from "vitest";
import { parseId } from "../../host/core/ids.ts";
import type { Decision } from "../../host/core/resolve.ts";
import {
  ANN,
  harness,
  type Harness,
  HOUR,
  MINUTE,
  MONDAY,
  nothing,
  post,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, gate, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const BOB = { by: "bob" };
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const rows = (h: Harness) =>
  h.store.db.prepare("SELECT status FROM mutations ORDER BY id").pluck().all() as string[];

async function begun(h: Harness, spec = booking()): Promise<void> {
  await h.deploy("w", spec);
  await h.feed("order", "a");
}

/** Each leaves the consumer `book` with an open run that waits. */
const STATES: Record<string, (h: Harness) => Promise<void>> = {
  proposed: async (h) => {
    h.world.tool_ = { grant: "approve" };
    await begun(h);
  },
  needs_reconcile: async (h) => {
    h.world.onSend = () => unknown();
    h.world.onCheck = () => new Promise(() => {});
    await begun(h);
    await h.pass(16_000);
  },
  "asked for auth by a check": async (h) => {
    h.world.onSend = () => unknown();
    h.world.onCheck = () => ({ says: "auth" });
    await begun(h);
  },
  indeterminate: async (h) => {
    h.world.tool_ = { canCheck: false, proof: "none" };
    h.world.onSend = () => unknown();
    await begun(h);
  },
  "indeterminate, and can be checked": async (h) => {
    h.world.onSend = () => unknown();
    await begun(h);
    await h.pass(HOUR);
    h.world.onCheck = () => new Promise(() => {});
  },
  "without auth": async (h) => {
    h.world.onSend = () => failed("auth");
    await begun(h);
  },
  "not granted": async (h) => {
    h.world.tool_ = { grant: "deny" };
    await begun(h);
  },
  "proven failed": async (h) => {
    h.world.onSend = () => failed("logic");
    await begun(h);
  },
  "retries used up": async (h) => {
    h.world.onSend = () => failed("transient");
    await begun(h);
    await h.pass(12 * HOUR);
  },
  "failed before its call": (h) => begun(h, booking({ mutate: [new Error("no"), post] })),
  "failed after its call": (h) => begun(h, booking({ next: [nothing, new Error("no"), nothing] })),
};

const DECISIONS: Decision[] = [
  { action: "approve" },
  { action: "approve", scope: { next: 3 } },
  { action: "approve", scope: { untilMs: MONDAY + 24 * HOUR } },
  { action: "approve", scope: { next: 0 } },
  { action: "reject", deliveries: "skip" },
  { action: "reject", deliveries: "release" },
  { action: "check" },
  { action: "applied" },
  { action: "applied", result: '{"id":7}' },
  { action: "not-applied" },
  { action: "skip" },
  { action: "retry" },
  { action: "close", deliveries: "release" },
  { action: "close", deliveries: "skip" },
  { action: "close", deliveries: "dead" },
  { action: "close", deliveries: "release", force: true },
];
const nameOf = (decision: Decision): string => JSON.stringify(decision);

describe("6 what was announced is what happens", () => {
  const cases = Object.keys(STATES).flatMap((state) => DECISIONS.map((decision) => ({ state, decision })));
  const named = cases.map((one) => ({ ...one, name: `${one.state}: ${nameOf(one.decision)}` }));

  test.each(named)("$name", async ({ state, decision }) => {
    await using h = await harness();
    await STATES[state]?.(h);
    // Paused, so that nothing but the decision itself moves.
    await h.act(h.operator.pause(h.id(), ANN));
    const { id } = h.run("book");
    const audited = auditOf(h.store.db).length;
    const told = await h.operator.consequences(id, decision, BOB);
    const before = snapshot(h.store.db);
    const decided = await h.operator.decide(id, decision, { ...BOB, note: "because" });
    const after = snapshot(h.store.db);
    const newest = auditOf(h.store.db).slice(audited);
    const lines = changed(before, after);
    const announcement =
      "ok" in told
        ? { decided: told, newest: [], lines: [] }
        : {
            decided: { ok: true },
            newest: [{ actor: "bob", action: `run.${decision.action}`, note: "because" }],
            lines: announced(told.rows, before),
          };
    expect({ decided, newest, lines }).toEqual(announcement);
    await h.settle();
  });
});

/** The columns a person hears about, of every row that a decision may touch: "table id" → column → value. */
type Snapshot = Map<string, Record<string, unknown>>;

const TOLD: Record<string, Record<string, string>> = {
  run: {
    status: "status",
    phase: "phase",
    pause_reason: "pauseReason",
    open: "open",
    outcome: "outcome",
    result_json: "result",
    successor: "successor",
    ready_at: "readyAtMs",
    ended_at: "endedAtMs",
  },
  mutation: {
    status: "status",
    checks: "checks",
    next_check_at: "nextCheckAtMs",
    owner_run: "ownerRun",
    not_sent: "notSent",
    result_json: "result",
    ended_at: "endedAtMs",
  },
  delivery: { status: "status" },
};

function snapshot(db: Database): Snapshot {
  const found: Snapshot = new Map();
  for (const [noun, table] of [
    ["run", "runs"],
    ["mutation", "mutations"],
    ["delivery", "deliveries"],
  ] as const)
    for (const row of db.prepare(`SELECT * FROM ${table}`).all() as Record<string, unknown>[])
      found.set(`${noun} ${String(row["id"])}`, row);
  return found;
}

const plain = (value: unknown): unknown =>
  value === "none" || value === null ? null : value === "true" ? 1 : value === "false" ? 0 : value;

/** "run 7 status: crashed" for every column that is another one now. */
function changed(before: Snapshot, after: Snapshot): string[] {
  const lines: string[] = [];
  for (const [key, row] of after) {
    const [noun = ""] = key.split(" ");
    const was = before.get(key);
    for (const [column, field] of Object.entries(TOLD[noun] ?? {}))
      if (!was || was[column] !== row[column]) lines.push(`${key} ${field}: ${String(row[column])}`);
  }
  return lines.toSorted();
}

const KINDS = { run: "run", mut: "mutation", dlv: "delivery" } as const;

/** The same, of what was told; the last word about a column counts, and what is so already is no change. */
function announced(told: readonly { row: string; becomes: string }[], before: Snapshot): string[] {
  const lines = new Map<string, string>();
  for (const { row, becomes } of told) {
    const kind = KINDS[row.split("_", 1)[0] as keyof typeof KINDS] as "run" | undefined;
    if (kind === undefined) continue;
    const key = `${kind} ${parseId(kind, row)}`;
    const text = becomes.includes(": ") ? becomes : `status: ${becomes}`;
    for (const part of text.split(/, (?=[a-zA-Z]+: )/)) {
      const [field = "", ...rest] = part.split(": ");
      const column = Object.entries(TOLD[kind] ?? {}).find(([, name]) => name === field)?.[0];
      if (column === undefined) continue;
      const value = String(plain(rest.join(": ")));
      const line = `${key} ${field}`;
      if (String(before.get(key)?.[column]) === value) lines.delete(line);
      else lines.set(line, `${line}: ${value}`);
    }
  }
  return [...lines.values()].toSorted();
}

const auditOf = (db: Database) =>
  db.prepare("SELECT actor, action, note FROM audit ORDER BY seq").all() as {
    actor: string;
    action: string;
    note: string | null;
  }[];

describe("6 two answers at once", () => {
  /** Both looked at the same; the second comes when the first has been taken. */
  const race = async (h: Harness, first: Decision, second: Decision) => {
    const { id } = h.run("book");
    const seen = h.store.db.prepare("SELECT status, revision FROM runs WHERE id = ?").get(id) as {
      status: string;
      revision: number;
    };
    const both = await Promise.all([
      h.operator.decide(id, first, ANN, seen),
      h.operator.decide(id, second, BOB, seen),
    ]);
    await h.settle();
    return both;
  };

  test.each([
    ["indeterminate", { action: "applied" }, { action: "not-applied" }],
    ["needs_reconcile", { action: "skip" }, { action: "applied" }],
    ["indeterminate, and can be checked", { action: "check" }, { action: "not-applied" }],
    ["proposed", { action: "approve" }, { action: "reject", deliveries: "skip" }],
    ["proven failed", { action: "close", deliveries: "skip" }, { action: "retry" }],
    ["without auth", { action: "retry" }, { action: "close", deliveries: "release" }],
  ] as [string, Decision, Decision][])(
    "%s: one operator wins, the other hears who, what and when",
    async (state, first, second) => {
      await using h = await harness();
      await STATES[state]?.(h);
      const atMs = h.clock.nowMs();
      const [won, lost] = await race(h, first, second);
      expect(won).toEqual({ ok: true });
      expect(lost).toMatchObject({
        ok: false,
        code: "changed",
        first: { by: "ann", action: `run.${first.action}`, atMs },
        message: expect.stringContaining(`(ann: run.${first.action}, ${new Date(atMs).toISOString()})`),
      });
      const audit = auditOf(h.store.db).filter((one) => one.action.startsWith("run."));
      expect(audit).toEqual([{ actor: "ann", action: `run.${first.action}`, note: null }]);
    },
  );

  test("later, and without saying what was looked at: refused with the reason, and who and when", async () => {
    await using h = await harness();
    await STATES["indeterminate"]?.(h);
    const { id } = h.run("book");
    const atMs = h.clock.nowMs();
    await h.decide("book", { action: "applied" });
    await h.pass(MINUTE);
    expect(await h.operator.decide(id, { action: "not-applied" }, BOB)).toMatchObject({
      ok: false,
      code: "wrong_state",
      first: { by: "ann", action: "run.applied", atMs },
    });
  });

  test("an answer to what was looked at a while ago: refused, and who has answered since", async () => {
    await using h = await harness();
    await STATES["indeterminate"]?.(h);
    const { id } = h.run("book");
    const atMs = h.clock.nowMs();
    await h.decide("book", { action: "not-applied" });
    await h.pass(MINUTE);
    const late = await h.operator.decide(id, { action: "skip" }, BOB, { ledger: "indeterminate" });
    expect(late).toMatchObject({ code: "changed", first: { by: "ann", action: "run.not-applied", atMs } });
  });

  test("an operator and a check: the check was first", async () => {
    await using h = await harness();
    const check = gate<{ says: "applied" }>();
    h.world.onSend = () => unknown();
    h.world.onCheck = () => check.promise;
    await begun(h);
    const { id } = h.run("book");
    await h.pass(5_000);
    check.open({ says: "applied" });
    await h.settle();
    const lost = await h.operator.decide(id, { action: "not-applied" }, BOB, { ledger: "needs_reconcile" });
    expect(lost).toMatchObject({
      code: "changed",
      first: { by: "host", action: "applied", atMs: MONDAY + 5_000 },
    });
    expect(rows(h)).toEqual(["applied"]);
  });

  test("an operator and a check: the operator was first, and what the check says is not written", async () => {
    await using h = await harness();
    const check = gate<{ says: "applied" }>();
    h.world.onSend = (_, nth) => (nth === 1 ? unknown() : applied());
    h.world.onCheck = () => check.promise;
    await begun(h);
    await h.decide("book", { action: "skip" });
    check.open({ says: "applied" });
    await h.settle();
    expect(rows(h)).toEqual(["skipped"]);
    expect(h.run("book")).toMatchObject({ status: "committed", outcome: "skipped" });
  });

  test("an operator and a late result: the result was first", async () => {
    await using h = await harness();
    const answer = gate<ReturnType<typeof applied>>();
    h.world.tool_ = { canCheck: false, proof: "none" };
    h.world.onSend = () => answer.promise;
    await begun(h);
    await h.pass(121_000);
    const { id } = h.run("book");
    answer.open(applied());
    await h.settle();
    const lost = await h.operator.decide(id, { action: "not-applied" }, BOB, { ledger: "indeterminate" });
    expect(lost).toMatchObject({ code: "changed", first: { by: "host" } });
    expect(h.world.sent.length).toBe(1);
    expect(rows(h)).toEqual(["applied"]);
  });

  test("while the same bytes leave once more nobody's word settles the row", async () => {
    await using h = await harness();
    h.world.tool_ = { proof: "key", canCheck: false };
    h.world.onSend = (_, nth) => (nth === 1 ? unknown() : new Promise(() => {}));
    await begun(h);
    for (const action of ["applied", "not-applied", "skip"] as const)
      expect(await h.decide("book", { action })).toMatchObject({ ok: false, code: "wrong_state" });
    expect(rows(h)).toEqual(["needs_reconcile"]);
  });
});

describe("3.3, 3.4 an approval executes exactly what was shown, or nothing", () => {
  const shown = async (h: Harness) => {
    h.world.tool_ = { grant: "approve", grantVersion: 1 };
    await begun(h);
  };
  /** Approved while paused, so that something can happen before the claim. */
  const approved = async (h: Harness) => {
    await shown(h);
    await h.act(h.operator.pause(h.id(), ANN));
    expect(await h.decide("book", { action: "approve" })).toEqual({ ok: true });
  };

  test.each([
    ["the grant was taken back and given again", { grantVersion: 3 }],
    ["the alias was bound to another connection", { connection: "other" }],
    ["the connection was configured anew", { configVersion: 2 }],
  ])("between approval and claim %s: void, nothing sent, asked again", async (_, tool) => {
    await using h = await harness();
    await approved(h);
    h.world.tool_ = { ...h.world.tool_, ...tool };
    await h.act(h.operator.resume(h.id(), ANN));
    expect(h.world.sent).toEqual([]);
    expect(rows(h)).toEqual(["failed", "proposed"]);
    expect(h.run("book")).toMatchObject({ status: "paused:approval", reason: "approval", attempt: 2 });
  });

  test("a deploy in between: the call leaves as it was shown, on the version that asked for it", async () => {
    await using h = await harness();
    await approved(h);
    await h.deploy("w", booking({ mutate: (ctx) => void ctx.bank.post({ other: true }) }));
    await h.act(h.operator.resume(h.id(), ANN));
    expect(h.world.args).toEqual([{ ids: ["a"] }]);
    expect(h.runs("book").find((one) => one.outcome === "applied")).toMatchObject({ version: 1 });
  });

  test("a deploy between showing and approving: the same", async () => {
    await using h = await harness();
    await shown(h);
    await h.deploy("w", booking({ mutate: (ctx) => void ctx.bank.post({ other: true }) }));
    await h.decide("book", { action: "approve" });
    expect(h.world.args).toEqual([{ ids: ["a"] }]);
  });

  test("a crash after the approval and before the claim: it leaves once, in the next life", async () => {
    await using h = await harness({ file: true });
    await approved(h);
    await h.restart();
    expect(h.world.sent).toEqual([]);
    await h.act(h.operator.resume(h.id(), ANN));
    expect(h.world.args).toEqual([{ ids: ["a"] }]);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });

  test("a crash after the claim: unknown, checked, never sent again for the same approval", async () => {
    await using h = await harness({ file: true });
    h.world.onSend = () => new Promise(() => {});
    await shown(h);
    await h.decide("book", { action: "approve" });
    await h.restart();
    await h.pass(HOUR);
    expect(rows(h)).toEqual(["indeterminate"]);
    expect(h.world.sent.length).toBe(1);
  });

  test("a recorded call that nobody was asked about waits when its grant asks for a word by now", async () => {
    await using h = await harness();
    h.world.onSend = (_, nth) => (nth === 1 ? failed("auth") : applied());
    await begun(h);
    h.world.tool_ = { grant: "approve" };
    await h.act(h.operator.unblock(h.id(), "auth", ANN));
    expect(h.world.sent.length).toBe(1);
    expect(h.statuses("book").at(-1)).toBe("paused:approval approval");
    expect(h.inbox()).toEqual(["approval"]);
    await h.decide("book", { action: "approve" });
    expect(h.world.sent.length).toBe(2);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });

  test("an approved call that was not let in is not asked about again once reconnected", async () => {
    await using h = await harness();
    h.world.onSend = (_, nth) => (nth === 1 ? failed("auth") : applied());
    await shown(h);
    await h.decide("book", { action: "approve" });
    await h.act(h.operator.unblock(h.id(), "auth", ANN));
    expect(h.world.sent.length).toBe(2);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });
});
