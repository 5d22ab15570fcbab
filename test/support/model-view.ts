/** One workflow as lines of text, from the oracle and from the tables, in the same words: what the model test compares. */
import type { Database, Statement } from "better-sqlite3";
import type { Oracle } from "./oracle.ts";

type View = Map<string, string>;
type Cell = string | number | null | boolean | undefined;
type Cells = Record<string, Cell>;
type Row = Record<string, Cell>;

function line(cells: Cells): string {
  return Object.entries(cells)
    .map(
      ([name, value]) =>
        `${name}=${value === null || value === undefined || value === "" ? "-" : String(value)}`,
    )
    .join(" ");
}

export function viewOfOracle(oracle: Oracle): View {
  const view: View = new Map();
  const { seq, paused, active, open } = oracle;
  view.set(
    "workflow",
    line({ seq, paused, version: active, open: open?.n, due: dueText(oracle.due(), oracle.now) }),
  );
  for (const one of oracle.handlers) {
    const consumer = one.kind === "consumer";
    const due = open?.handler === one.name ? "?" : dueText(oracle.handlerDue(one), oracle.now);
    const trigger = one.trigger && `${one.trigger.reason}@${one.trigger.at}`;
    const { gone, state, wake, next, seen } = one;
    view.set(
      `handler ${one.name}`,
      line({ gone, state, seen: consumer ? seen : "?", trigger, wake, next, due }),
    );
  }
  for (const { n, handler, version, attempt, retryOf, successor, phase, status, ...run } of oracle.runs) {
    const { reason, outcome, prepared, result, wake, retries, ready } = run;
    const face = {
      handler,
      version,
      attempt,
      retryOf,
      successor,
      phase,
      status,
      reason,
      open: run.open,
      ready,
    };
    view.set(`run ${n}`, line({ ...face, outcome, prepared, result, wake, retries }));
  }
  for (const { n, event, handler, status, holder, changed, attempts, late, pinned } of oracle.deliveries) {
    const what = `${event.topic}/${event.id}`;
    const face = {
      what,
      payload: event.payload,
      revision: event.revision,
      handler,
      status,
      holder,
      changed,
      attempts,
    };
    view.set(`delivery ${n}`, line({ ...face, late, pinned: status === "reserved" ? pinned : "?" }));
  }
  for (const { n, origin, owner, status, sends, checks, nextCheck, result } of oracle.rows)
    view.set(`row ${n}`, line({ origin, owner, status, sends, checks, nextCheck, result }));
  for (const { handler, from, to, count, fate, run } of oracle.slots)
    view.set(`slot ${handler} ${from}`, line({ to, count, fate, run }));
  return view;
}

const known = new WeakMap<Database, Map<string, Statement>>();

function all(db: Database, sql: string, workflow: number): Row[] {
  const statements = known.get(db) ?? new Map<string, Statement>();
  known.set(db, statements);
  const statement = statements.get(sql) ?? db.prepare(sql);
  statements.set(sql, statement);
  return statement.all(workflow) as Row[];
}

/** What is due is due: since when is a matter of order, which `choose` shows. */
const dueText = (at: Cell, nowMs: number): Cell => (typeof at === "number" && at <= nowMs ? "now" : at);

export function viewOfStore(db: Database, workflow: number, nowMs: number): View {
  const view: View = new Map();
  const runs = all(db, "SELECT * FROM runs WHERE workflow = ?+0 ORDER BY id", workflow);
  const runAt = new Map(runs.map(({ id }, n) => [id as number, n]));
  const nth = (id: Cell) => (id === null ? null : (runAt.get(id as number) ?? `unknown run ${String(id)}`));
  const handlers = all(db, "SELECT * FROM handlers WHERE workflow = ?+0 ORDER BY id", workflow);
  const names = new Map(handlers.map(({ id, name }) => [id as number, name as string]));
  const openHandler = runs.find(({ open }) => open === 1)?.["handler"];
  const [one] = all(db, "SELECT * FROM workflows WHERE id = ?+0", workflow);
  if (one)
    view.set(
      "workflow",
      line({
        seq: one["seq"],
        paused: one["paused"] === 1,
        version: one["active_version"],
        open: nth(one["open_run"]),
        due: dueText(one["due_at"], nowMs),
      }),
    );
  for (const {
    id,
    kind,
    name,
    orphaned,
    state_json,
    seen_seq,
    wake_at,
    next_run_at,
    due_at,
    ...row
  } of handlers) {
    const [reason, at] =
      kind === "consumer"
        ? [row["triggered_reason"], row["triggered_at"]]
        : [row["queued_reason"], row["queued_at"]];
    const trigger = at === null ? null : `${reason}@${at}`;
    const seen = kind === "consumer" ? seen_seq : "?";
    const face = { gone: orphaned === 1, state: state_json, seen, trigger, wake: wake_at, next: next_run_at };
    view.set(`handler ${name}`, line({ ...face, due: id === openHandler ? "?" : dueText(due_at, nowMs) }));
  }
  runs.forEach(({ handler, version, attempt, retry_of, successor, phase, status, ...run }, n) => {
    const face = {
      handler: names.get(handler as number),
      version,
      attempt,
      retryOf: nth(retry_of),
      successor: nth(successor),
      phase,
      status,
    };
    const more = { reason: run["pause_reason"], open: run["open"] === 1, ready: run["ready_at"] };
    const outcome = run["outcome"] === "failed" ? null : run["outcome"];
    const { prepared_json: prepared, result_json: result, wake_at: wake, retries } = run;
    view.set(`run ${n}`, line({ ...face, ...more, outcome, prepared, result, wake, retries }));
  });
  const deliveries = all(
    db,
    `SELECT d.*, e.topic, e.message_id, e.payload_json, e.revision AS newest FROM events e
     JOIN deliveries d ON d.event = e.id WHERE e.workflow = ?+0 ORDER BY d.id`,
    workflow,
  );
  deliveries.forEach(
    ({ topic, message_id, payload_json, newest, handler, status, reserved_by, ...row }, n) => {
      const face = {
        what: `${topic}/${message_id}`,
        payload: payload_json,
        revision: newest,
        handler: names.get(handler as number),
        status,
      };
      const { change_seq: changed, attempts, late, revision } = row;
      const pinned = status === "reserved" ? revision : "?";
      view.set(
        `delivery ${n}`,
        line({ ...face, holder: nth(reserved_by), changed, attempts, late: late === 1, pinned }),
      );
    },
  );
  const rows = all(db, "SELECT * FROM mutations WHERE workflow = ?+0 ORDER BY id", workflow);
  rows.forEach(({ origin_run, owner_run, status, sends, checks, next_check_at, result_json }, n) => {
    const face = { origin: nth(origin_run), owner: nth(owner_run), status, sends, checks };
    view.set(`row ${n}`, line({ ...face, nextCheck: next_check_at, result: result_json }));
  });
  const slots = all(
    db,
    "SELECT s.* FROM handlers h JOIN slots s ON s.handler = h.id WHERE h.workflow = ?+0",
    workflow,
  );
  for (const { handler, from_at, to_at, count, fate, run } of slots)
    view.set(
      `slot ${names.get(handler as number)} ${from_at}`,
      line({ to: to_at, count, fate, run: nth(run) }),
    );
  return view;
}
