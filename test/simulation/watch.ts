/**
 * The laws that need two states or a moment: looked at with every Change and every send (08). What one state can show is
 * `host/store/doctor.ts`, asked now and then, at every death and at the end. Written from the text of the model, on
 * purpose without the core's own tables.
 */
import type { Database } from "better-sqlite3";
import type { Change, Write } from "../../host/core/change.ts";
import type { RecordedCall } from "../../host/ports/connector.ts";
import type { SandboxCall } from "../../host/ports/sandbox.ts";
import type { Applied } from "../../host/ports/store.ts";
import { inspect } from "../../host/store/doctor.ts";
import type { StandingApproval } from "../../host/core/approval.ts";
import type { Disk } from "./disk.ts";
import type { Behind } from "./sim-access.ts";
import { MUTATIONS, type MutationTool, type SimWorld } from "./sim-world.ts";

type Row = Record<string, unknown>;

const RANK: Record<string, number> = {
  executing: 0,
  preparing: 0,
  prepared: 1,
  mutating: 2,
  mutated: 3,
  emitting: 4,
  committed: 5,
};
const ENDED = ["paused:transient", "failed:logic", "failed:internal", "committed", "crashed"];
const UNKNOWN = ["in_flight", "needs_reconcile", "indeterminate"];
const MAY_CHANGE = ["open", "successor", "ready_at", "pause_reason", "deadline_at", "revision"];
const LEDGER: Record<string, string[]> = {
  proposed: ["in_flight", "failed", "skipped"],
  in_flight: ["applied", "failed", "needs_reconcile", "proposed", "skipped", "indeterminate"],
  needs_reconcile: ["applied", "failed", "indeterminate", "skipped"],
  indeterminate: ["needs_reconcile", "applied", "failed", "skipped"],
  applied: [],
  failed: [],
  skipped: [],
};
/** Hosts and policies act in their own name; everybody else is a person, and is audited. */
const NO_PERSON = ["host", "policy"];
const INSPECT_EVERY = 40;

export class Watch {
  readonly #db: Database;
  readonly #disk: Disk;
  readonly #world: SimWorld;
  /** Run → what its grant was when somebody approved its call. */
  readonly #approvedUnder = new Map<number, number>();
  readonly #slots: number;
  readonly #problem: (message: string) => void;
  /** Ledger row → the write that made it `in_flight`. */
  readonly #inFlight = new Map<number, number>();
  /** Consumer → reasons to look at its events, and how often it looked. */
  readonly #reasons = new Map<number, number>();
  readonly #looks = new Map<number, number[]>();
  readonly #sawUpTo = new Map<number, number>();
  readonly #facts = new Map<string, number[]>();
  #applies = 0;
  incarnation = 0;

  constructor(disk: Disk, world: SimWorld, slots: number, problem: (message: string) => void) {
    this.#disk = disk;
    this.#world = world;
    this.#db = disk.db;
    this.#slots = slots;
    this.#problem = problem;
  }

  /** Before a Change is applied; what it returns looks at what became of it. */
  change(change: Change): (applied: Applied, write: number) => void {
    const runs = new Map<number, Row | undefined>();
    const rows = new Map<number, Row | undefined>();
    for (const write of change.writes)
      if (write.do === "run.set") runs.set(write.id, this.#row("runs", write.id));
      else if (write.do === "mutation.set") rows.set(write.id, this.#row("mutations", write.id));
      else if (write.do === "run.create" && write.run.retryOf !== undefined)
        runs.set(write.run.retryOf, this.#row("runs", write.run.retryOf));
    const forbidden = this.#startProblem(change);
    const expected = change.expect.run;
    const found = expected && this.#row("runs", expected.id)?.["revision"];
    const allowed = this.#allowed(change.workflow);
    return (_, write) => {
      this.#asked(change, runs, allowed);
      this.#believed(change, rows);
      if (expected && found !== expected.revision)
        this.#problem(`invariant 24: ${change.verb} knew another revision of run ${expected.id}`);
      if (forbidden !== undefined) this.#problem(`invariant 20: ${forbidden}`);
      this.#audited(change);
      for (const [id, before] of runs) this.#run(id, before, this.#row("runs", id));
      for (const [id, before] of rows) this.#ledger(id, before, this.#row("mutations", id), write);
      for (const one of change.writes) this.#write(one, change, runs, write);
      this.#looked(change, write);
      this.#seen(change);
      this.#remember(change, write);
      this.#whole(change.workflow);
    };
  }

  /** What is approved beforehand in the workflow. */
  #allowed(workflow: number): StandingApproval[] {
    const text = this.#get("SELECT approvals_json AS list FROM workflows WHERE id = ?", workflow)?.["list"];
    return JSON.parse((text ?? "[]") as string) as StandingApproval[];
  }

  /** 02 §3.3, 3.4, 6: a call leaves as it is granted now, and where that takes a word, with a word for exactly this call. */
  #asked(change: Change, runs: Map<number, Row | undefined>, before: StandingApproval[]): void {
    const uses = change.writes.filter((one) => one.do === "audit" && one.action === "approval.use").length;
    const left = (list: StandingApproval[]) => list.reduce((sum, one) => sum + (one.remaining ?? 0), 0);
    for (const write of change.writes) {
      if (change.verb === "approve" && write.do === "run.set") this.#wasApproved(write.id);
      if (write.do !== "send.create") continue;
      const row = this.#row("mutations", write.mutation) as Row;
      const tool = row["tool"] as MutationTool;
      const told = this.#world.access.told(change.workflow, tool) as Behind;
      const label = `${change.verb} of row ${write.mutation} (${tool})`;
      if (row["connection"] !== told.connection || row["config_version"] !== told.configVersion)
        this.#problem(`invariant 8: ${label} left although its connection is another one`);
      if (change.verb === "resending") continue;
      const { grant, grantVersion } = this.#world.access.behind(change.workflow, tool, MUTATIONS[tool].grant);
      if (grant === "deny") this.#problem(`invariant 8: ${label} left although it is denied`);
      if (uses > 0) {
        const given = before.find((one) => one.tool === tool);
        const holds =
          given?.connection === told.connection &&
          given.configVersion === told.configVersion &&
          given.grantVersion === grantVersion &&
          (given.untilMs === undefined || given.untilMs > change.atMs);
        if (!holds) this.#problem(`${label} used an approval that does not hold`);
        if (given?.remaining !== undefined && left(before) - left(this.#allowed(change.workflow)) !== uses)
          this.#problem(`${label} used an approval without using it up`);
      } else if (runs.get(write.run)?.["pause_reason"] === "approval") {
        if (this.#approvedUnder.get(write.run) !== grantVersion)
          this.#problem(`${label} left by an approval that was given under another grant`);
      } else if (grant === "approve" && !this.#hasWord(write.run, row))
        this.#problem(`${label} left without anybody's approval`);
    }
  }

  #wasApproved(run: number): void {
    const row = this.#get("SELECT workflow, tool FROM mutations WHERE owner_run = ? ORDER BY id DESC", run);
    const told = row && this.#world.access.told(row["workflow"] as number, row["tool"] as string);
    if (told) this.#approvedUnder.set(run, told.grantVersion);
  }

  /** Of this chain, for the same call through the same connection as it is configured. */
  #hasWord(run: number, row: Row): boolean {
    const said = this.#get(
      `SELECT 1 AS said FROM runs r JOIN mutations m ON m.origin_run = r.id JOIN journal j ON j.run = r.id
       WHERE r.root_id = (SELECT root_id FROM runs WHERE id = ?) AND m.tool = ? AND m.args_json = ?
         AND m.connection = ? AND m.config_version = ?
         AND (j.verb = 'approve' OR j.entries_json LIKE '%approval.use%')`,
      run,
      ...(["tool", "args_json", "connection", "config_version"].map((one) => row[one]) as (
        | string
        | number
      )[]),
    );
    return said !== undefined;
  }

  /** 9: that nothing happened is believed late enough, and of the config that the call left under. */
  #believed({ verb, atMs }: Change, rows: Map<number, Row | undefined>): void {
    if (verb !== "check-not-applied") return;
    for (const before of rows.values()) {
      if (!before) continue;
      const { id, ended_at: endedAt, settle_ms: settleMs, config_version: version } = before;
      if (atMs - (endedAt as number) < (settleMs as number))
        this.#problem(`invariant 9: notApplied about row ${String(id)} was believed too early`);
      if (this.#world.answeredUnder.get(before["idempotency_key"] as string) !== version)
        this.#problem(`invariant 9: notApplied about row ${String(id)} was said of another config`);
      if (before["proof"] === "key")
        this.#problem(`invariant 9: a re-send of row ${String(id)} was taken for proof`);
    }
  }

  #run(id: number, before: Row | undefined, after: Row | undefined): void {
    if (!before || !after) return this.#problem(`run ${id} is set, but is not there`);
    const [from, to] = [before["phase"] as string, after["phase"] as string];
    if ((RANK[to] ?? -1) < (RANK[from] ?? 9))
      this.#problem(`invariant 1: run ${id} went from ${from} to ${to}`);
    if (before["version"] !== after["version"]) this.#problem(`invariant 25: run ${id} changed its version`);
    this.#givenBack(id, after);
    if (!ENDED.includes(before["status"] as string)) return;
    for (const [column, value] of Object.entries(before))
      if (after[column] !== value && !MAY_CHANGE.includes(column) && !column.startsWith("resol"))
        this.#problem(`invariant 2: the ended run ${id} changed its ${column}`);
  }

  /** 5: an attempt that is over, and may be made again from its beginning, holds nothing. */
  #givenBack(id: number, { status, open, phase }: Row): void {
    if (open !== 1 || phase === "committed" || !ENDED.includes(status as string)) return;
    const row = this.#get("SELECT status FROM mutations WHERE owner_run = ?", id)?.["status"];
    if (row !== undefined && row !== "failed") return;
    if (this.#get("SELECT 1 AS held FROM deliveries WHERE reserved_by = ? AND status = 'reserved'", id))
      this.#problem(`invariant 13: run ${id} is ${String(status)} and still holds its events`);
  }

  #ledger(id: number, before: Row | undefined, after: Row | undefined, write: number): void {
    if (!after) return this.#problem(`row ${id} is set, but is not there`);
    const from = (before?.["status"] ?? "proposed") as string;
    const to = after["status"] as string;
    if (from !== to && !LEDGER[from]?.includes(to))
      this.#problem(`invariant 6: row ${id} went from ${from} to ${to}`);
    if (to === "in_flight" && from !== "in_flight") this.#inFlight.set(id, write);
  }

  #write(write: Write, change: Change, runs: Map<number, Row | undefined>, at: number): void {
    if (
      write.do === "mutation.create" &&
      this.#row("mutations", write.mutation.id)?.["status"] === "in_flight"
    )
      this.#inFlight.set(write.mutation.id, at);
    if (write.do !== "run.create" || write.run.retryOf === undefined) return;
    const { id, retryOf, status } = write.run;
    const last = runs.get(retryOf);
    if (last?.["successor"] !== null)
      this.#problem(`invariant 4: run ${retryOf} has a second successor ${id}`);
    const recovers = status === "paused:reconciliation";
    const readyAt = last?.["ready_at"] as number | null;
    if (!recovers && (readyAt === null || readyAt > change.atMs))
      this.#problem(`invariant 21: run ${retryOf} was tried again at ${change.atMs}, ready at ${readyAt}`);
    const row = this.#get("SELECT status FROM mutations WHERE owner_run = ?", id)?.["status"];
    if (!recovers && UNKNOWN.includes(row as string))
      this.#problem(`invariant 9: run ${id} goes on although the outcome is ${String(row)}`);
  }

  /** 20: nothing starts in a workflow that is paused, put away or blocked. */
  #startProblem({ verb, workflow, writes }: Change): string | undefined {
    const starts = writes.some(
      (one) =>
        (one.do === "run.create" && one.run.status === "active") ||
        (one.do === "run.set" && one.set.status === "active"),
    );
    if (!starts) return undefined;
    const row = this.#get("SELECT paused, archived, open_run FROM workflows WHERE id = ?", workflow);
    if (row?.["paused"] === 1 || row?.["archived"] === 1)
      return `${verb} in workflow ${workflow}, which is paused`;
    if (verb === "start" && row?.["open_run"] !== null)
      return `${verb} in workflow ${workflow}, which is blocked`;
    return undefined;
  }

  /** 24: whoever decides is on record, in the same Change. */
  #audited({ verb, writes }: Change): void {
    const acts = writes.some(
      (one) =>
        (one.do === "run.set" && one.set.resolution && !NO_PERSON.includes(one.set.resolution.by)) ||
        one.do === "delivery.renew" ||
        (one.do === "deliveries" && one.reason === "operator") ||
        (one.do === "workflow.set" &&
          (one.set.paused !== undefined || one.set.archived !== undefined || one.set.deployed)),
    );
    if (acts && !writes.some((one) => one.do === "audit"))
      this.#problem(`invariant 24: ${verb} is not in the audit`);
  }

  /** 17: what arrived after the last look makes the consumer due again; only a run that prepares has looked. */
  #seen({ workflow, writes }: Change): void {
    for (const write of writes) {
      if (write.do !== "handler.set") continue;
      const run = this.#get(
        "SELECT phase, status FROM runs WHERE handler = ? ORDER BY id DESC LIMIT 1",
        write.id,
      );
      if (write.set.seenSeq !== undefined && run?.["phase"] === "preparing")
        this.#sawUpTo.set(
          write.id,
          this.#get("SELECT seq FROM workflows WHERE id = ?", workflow)?.["seq"] as number,
        );
      const upTo = this.#sawUpTo.get(write.id);
      if (upTo === undefined || run?.["status"] !== "committed") continue;
      const missed = this.#get(
        `SELECT d.id FROM deliveries d JOIN handlers h ON h.id = d.handler
         WHERE d.handler = ? AND d.status = 'pending' AND d.change_seq > ? AND h.due_at IS NULL AND h.orphaned = 0`,
        write.id,
        upTo,
      );
      if (missed)
        this.#problem(`invariant 17: consumer ${write.id} will not look at ${String(missed["id"])}`);
    }
  }

  /** Which write holds what somebody may be told about. */
  #remember({ workflow, writes }: Change, at: number): void {
    const add = (key: string) => this.#facts.set(key, [...(this.#facts.get(key) ?? []), at]);
    for (const write of writes)
      if (write.do === "audit" && write.note !== undefined) add(write.note);
      else if (write.do === "publish")
        add(`${workflow}/${write.publication.topic}/${write.publication.messageId}`);
  }

  /** 30: somebody is told that this is done; then it must be on disk. */
  acknowledged(fact: string): void {
    if (!this.#facts.get(fact)?.some((write) => this.#disk.isDurable(write)))
      this.#problem(`invariant 30: ${fact} was acknowledged before it was on disk`);
  }

  /** What was lost with the host is looked at anew. */
  died(): void {
    this.#sawUpTo.clear();
    this.inspect();
  }

  /** 18: a consumer looks once per reason at most; looks that a crash took away do not count. */
  #looked(change: Change, at: number): void {
    for (const write of change.writes) this.#reasonsIn(write);
    if (change.verb !== "start") return;
    for (const write of change.writes) {
      if (write.do !== "run.create" || write.run.kind !== "consumer") continue;
      const { handler } = write.run;
      const looks = [...(this.#looks.get(handler) ?? []), at].filter((one) => !this.#disk.isLost(one));
      this.#looks.set(handler, looks);
      if (looks.length > (this.#reasons.get(handler) ?? 0))
        this.#problem(
          `invariant 18: consumer ${handler} looked ${looks.length} times without as many reasons`,
        );
    }
  }

  #reasonsIn(write: Write): void {
    if (write.do === "delivery.renew") {
      const row = this.#get("SELECT handler FROM deliveries WHERE id = ?", write.id);
      this.#reason(row?.["handler"] as number);
    }
    if (write.do === "orphans.move") this.#reason(write.to);
    if (write.do === "publish") for (const handler of write.subscribers) this.#reason(handler);
    if (write.do !== "handler.set" && write.do !== "handler.create") return;
    const { triggered, triggerIfPending, wakeAtMs } = write.set;
    if (triggered) this.#reason(write.id);
    if (triggerIfPending) this.#reason(write.id);
    if (typeof wakeAtMs === "number") this.#reason(write.id);
  }

  #reason(handler: number): void {
    this.#reasons.set(handler, (this.#reasons.get(handler) ?? 0) + 1);
  }

  #whole(workflow: number): void {
    const active = this.#get(
      "SELECT count(*) AS n FROM runs WHERE status = 'active' AND host = ?",
      this.incarnation,
    )?.["n"] as number;
    if (active > this.#slots) this.#problem(`${active} runs are active in ${this.#slots} slots`);
    const open = this.#get("SELECT count(*) AS n FROM runs WHERE workflow = ? AND open = 1", workflow)?.["n"];
    if ((open as number) > 1)
      this.#problem(`invariant 3: workflow ${workflow} has ${String(open)} open runs`);
    if (++this.#applies % INSPECT_EVERY === 0) this.inspect(workflow);
  }

  inspect(workflow?: number): void {
    const scope = { quick: true, ...(workflow === undefined ? {} : { workflow }) };
    for (const { invariant, message } of inspect(this.#db, scope))
      this.#problem(`invariant ${invariant}: ${message}`);
  }

  /** 8: nothing leaves unless its row is in flight, on disk, and of this host. Gives the ledger row. */
  send(call: RecordedCall): number {
    const row = this.#get(
      `SELECT m.id, m.status, m.resending, r.status AS run_status, r.host FROM mutations m JOIN runs r ON r.id = m.owner_run
       WHERE m.idempotency_key = ? AND m.workflow = ? ORDER BY m.id DESC LIMIT 1`,
      call.idempotencyKey,
      call.workflow,
    );
    if (!row) {
      this.#problem(`invariant 8: ${call.tool} left without a ledger row`);
      return 0;
    }
    const id = row["id"] as number;
    // The answer to an earlier send may come while the same bytes leave once more: with a key that is no second effect.
    const again = ["needs_reconcile", "applied"].includes(row["status"] as string) && row["resending"] === 1;
    if (row["status"] !== "in_flight" && !again)
      this.#problem(`invariant 8: row ${id} left while it was ${String(row["status"])}`);
    if (!again && (row["run_status"] !== "active" || row["host"] !== this.incarnation))
      this.#problem(`invariant 8: row ${id} left for a run that is not this host's`);
    const write = this.#inFlight.get(id);
    if (write === undefined || !this.#disk.isDurable(write))
      this.#problem(`invariant 8: row ${id} left before it was durable`);
    return id;
  }

  /** 11, X1: a unit runs only for an active run of this host whose dispatch is on record. */
  unit(call: SandboxCall): void {
    const row = this.#get("SELECT status, host, phase FROM runs WHERE id = ?", Number(call.run.id));
    if (row?.["status"] !== "active" || row["host"] !== this.incarnation)
      this.#problem(
        `${call.unit} of run ${call.run.id} executes while the run is ${String(row?.["status"])}`,
      );
  }

  #row(table: "runs" | "mutations", id: number): Row | undefined {
    return this.#get(`SELECT * FROM ${table} WHERE id = ?`, id);
  }

  #get(sql: string, ...args: (number | string)[]): Row | undefined {
    return this.#disk.statement(sql).get(...args) as Row | undefined;
  }
}
