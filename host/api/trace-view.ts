/** A run's journal and ledger as timed spans: what a trace viewer draws. */
import { formatId } from "../core/ids.ts";
import type { Json } from "../core/workflow.ts";
import type { JournalRecord, RunDetail } from "../ports/records.ts";
import type { AnswerOf } from "./contract.ts";
import { iso, isoOr, parsed } from "./run-view.ts";

type Trace = AnswerOf<"getTrace">;

export function traceView(detail: RunDetail, journal: readonly JournalRecord[]): Trace {
  const { run, mutation } = detail;
  const whole: Trace["spans"][number] = {
    name: `${detail.workflow}/${detail.handler}`,
    kind: "run",
    startedAt: iso(run.createdAtMs),
    endedAt: isoOr(run.endedAtMs),
    detail: { attempt: run.attempt, status: run.status, phase: run.phase },
  };
  // A step lasts from the one before it: the journal tells when each was written.
  const steps = journal.map(({ verb, atMs, first }, at): Trace["spans"][number] => ({
    name: verb,
    kind: "step",
    startedAt: iso(journal[at - 1]?.atMs ?? run.createdAtMs),
    endedAt: iso(atMs),
    detail: { seq: first },
  }));
  const sends = (mutation?.history ?? []).map((send): Trace["spans"][number] => ({
    name: `${mutation?.alias}.${mutation?.tool}`,
    kind: "send",
    startedAt: iso(send.atMs),
    endedAt: isoOr(send.endedAtMs),
    detail: { n: send.n, answer: parsed(send.answer) } satisfies Record<string, Json>,
  }));
  return {
    run: formatId("run", run.id),
    rootId: formatId("run", run.rootId),
    spans: [whole, ...steps, ...sends],
  };
}
