/** Bugs that the simulation must catch: what is wrong, and the patches of `host/` that make it so. */
import type { Patch } from "../support/planted.ts";

export const BUGS: readonly (readonly [what: string, ...patches: Patch[]])[] = [
  [
    "reset by phase instead of ledger",
    [
      "core/retry.ts",
      "const phase = startsAt(run, mutation?.status);",
      'const phase: Phase = run.kind === "producer" ? "executing" : run.phase === "emitting" ? "emitting" : "preparing";',
    ],
  ],
  [
    "trigger cleared at commit",
    [
      "core/advance.ts",
      "{ wakeAtMs: run.wakeAtMs ?? null,",
      '{ seenSeq: "now" as const, wakeAtMs: run.wakeAtMs ?? null,',
    ],
  ],
  [
    "missing fence: a run is set whatever its revision",
    ["store/sqlite/apply.ts", "WHERE id = ? AND revision = ?", "WHERE id = ? AND ? > 0"],
  ],
  [
    "audit outside the transaction",
    [
      "core/resolve.ts",
      "writes: [...change.writes, audit] }; // (O2)\n}\n\nfunction effect",
      "writes: [...change.writes] };\n}\n\nfunction effect",
    ],
  ],
  [
    "reservations not released",
    [
      "core/fail.ts",
      "if (reserved.length > 0 && !isPastBoundary(mutation) && !inPlace)",
      "if (false as boolean)",
    ],
  ],
  [
    "reservations not released by recovery",
    ["core/recover.ts", "if (reserved.length > 0 && !isPastBoundary(mutation))", "if (false as boolean)"],
  ],
  [
    "a second successor: the predecessor stays open",
    ["core/retry.ts", "        open: false,\n        successor: next.id,", "        successor: next.id,"],
  ],
  ["lost trigger on crash", ["core/recover.ts", ": { readyAtMs: atMs };", ": {};"]],
  [
    "a decision makes a run active without a slot",
    [
      "core/resolve.ts",
      "set: { readyAtMs: resolution.atMs, resolution } }, // (O3)",
      'set: { status: isEnded(run.status) ? run.status : "active", readyAtMs: resolution.atMs, resolution } },',
    ],
  ],
  [
    "notApplied believed at once",
    ["core/settle.ts", "return atMs - (mutation.endedAtMs ?? atMs) >= mutation.settleMs;", "return true;"],
  ],
  [
    "recovery takes an unknown outcome for a failure",
    [
      "core/recover.ts",
      "return mutation && isUnknown(mutation.status)\n    ?",
      "return mutation && (false as boolean)\n    ?",
    ],
  ],
  [
    "deliveries given back instead of taken over",
    [
      "core/retry.ts",
      '{ do: "deliveries.handover", from: run.id, to: next.id },',
      '{ do: "deliveries", ids: facts.reserved, to: "pending", run: run.id },',
    ],
  ],
  ["a successor without its copies", ["core/retry.ts", "...(fresh ? {} : copies(run)), // (N1)", ""]],
  [
    "an empty reservation triggers again",
    [
      "core/advance.ts",
      "...(reserved.length > 0 ? { triggerIfPending: true } : {})",
      "triggerIfPending: true",
    ],
  ],
  ["wakeAt lost at commit", ["core/advance.ts", "wakeAtMs: run.wakeAtMs ?? null,", "wakeAtMs: null,"]],
  [
    "no trigger for what is left after a commit",
    ["core/advance.ts", "...(reserved.length > 0 ? { triggerIfPending: true } : {})", ""],
  ],
  [
    "a server's wish ignored",
    [
      "core/failure.ts",
      "const readyAtMs = nowMs + Math.max(failure.delayMs, failure.retryAfterMs ?? 0);",
      "const readyAtMs = nowMs + failure.delayMs;",
    ],
  ],
  [
    "a pause that does not hold",
    ["core/trigger.ts", 'if (workflow.paused || workflow.archived) return { next: "nothing" };', ""],
    ["core/trigger.ts", "if (workflow.paused || workflow.archived) return undefined;", ""],
  ],
  [
    "a redo moves seenSeq for a later unit",
    ["core/advance.ts", 'const looks = run.phase === "preparing";', 'const looks = run.kind === "consumer";'],
  ],
  [
    "points of a schedule without a fate",
    [
      "core/slots.ts",
      "const older = run === undefined ? newest",
      "if (firstDueMs < newestDueMs) return [];\n  const older = run === undefined ? newest",
    ],
  ],
  [
    "a commit that consumes nothing",
    [
      "core/advance.ts",
      'writes.push({ do: "deliveries", ids: reserved, to: "consumed", run: run.id });',
      ";",
    ],
  ],
  [
    "ledger row after the call",
    [
      "engine/mutator.ts",
      'const flying = await apply(fuse(recorded, leaving), "durable"); // (Y2)',
      'await this.#parts.world.send(recordedCall(proposed, mutation));\n    const flying = await apply(fuse(recorded, leaving), "durable");',
    ],
  ],
  [
    "barrier not awaited before the call",
    [
      "engine/mutator.ts",
      'const flying = await apply(fuse(recorded, leaving), "durable"); // (Y2)',
      'const flying = await apply(fuse(recorded, leaving), "committed");',
    ],
  ],
  [
    "barrier not awaited before an approved call",
    ["engine/scheduler.ts", 'level: called ? "durable" : "committed",', 'level: "committed",'],
  ],
  [
    "an approval beforehand that is never used up",
    ["core/approval.ts", "const remaining = found.remaining - 1;", "const { remaining } = found;"],
  ],
  [
    "a call for which nobody was asked",
    ["core/approval.ts", "if (!found) return NONE;", "if (!found) return { allowed: true, writes: [] };"],
  ],
  [
    "next is given none after an applied mutation",
    ["engine/unit.ts", 'if (run.outcome !== "applied")', 'if (run.phase !== "preparing")'],
  ],
  [
    "a decision acknowledged before it is durable",
    [
      "engine/operator.ts",
      '{ level: "durable", fence: store.fence }); // (P1)',
      '{ level: "applied", fence: store.fence });',
    ],
  ],
  ["an event acknowledged before it is durable", ["engine/feed.ts", 'level: "durable"', 'level: "applied"']],
  [
    "an unknown outcome taken for a failure",
    [
      "engine/mutator.ts",
      'if (answer.outcome === "unknown")\n      return this.#unknown(',
      "if (false as boolean)\n      return this.#unknown(",
    ],
  ],
  [
    "a late refusal taken for proof about a later re-send",
    [
      "engine/mutator.ts",
      'if (answer.outcome === "failed" && facts.mutation.sends !== mutation.sends) return;',
      "",
    ],
  ],
  [
    "more runs than slots",
    ["engine/scheduler.ts", "const free = this.#slots - this.#running.size;", "const free = this.#slots;"],
  ],
  [
    "no recovery at the start",
    ["engine/engine.ts", "const recovered = await recoverInterrupted(this.#parts);", "const recovered = 0;"],
  ],
  ["a call out of its phase", ["engine/bridge.ts", 'if (tool.kind !== "read")', "if (false as boolean)"]],
  [
    "an approval that outlives a new config of its connection",
    [
      "core/retry.ts",
      "    call.connection === mutation.connection &&\n    call.configVersion === mutation.configVersion;",
      "    call.connection === mutation.connection;",
    ],
  ],
  [
    "an approval that outlives another connection behind the alias",
    ["core/retry.ts", "    call.connection === mutation.connection &&\n", ""],
  ],
  [
    "an approval that outlives a grant which was taken back and given again",
    [
      "core/retry.ts",
      "    call.grantVersion === (run.resolution?.grantVersion ?? call.grantVersion) &&\n",
      "",
    ],
  ],
  [
    "an approval beforehand that outlives a new config or grant",
    [
      "core/approval.ts",
      "const why = voidedBy(found, behind); // (S1)",
      "const why = undefined as string | undefined;",
    ],
  ],
  [
    "a recorded call leaves through another connection",
    ["engine/mutator.ts", " ?? rebound(tool as Tool, mutation)", ""],
  ],
  [
    "a check's trouble with auth taken for notApplied",
    [
      "core/settle.ts",
      'if (answer.says === "auth")',
      'if (answer.says === "auth") return disproved(facts, policy, inbox, atMs);\n  if (false as boolean)',
    ],
  ],
  [
    "the second of two operators overwrites the first",
    ["engine/operator.ts", "revision !== run.revision;", "false;"],
  ],
  [
    "who is too late does not hear who was first",
    ["engine/operator.ts", "if (now) return this.#tooLate(now); // (P2)", ""],
    [
      "engine/operator.ts",
      "if (isStale(facts, expect)) return this.#tooLate(facts);",
      'if (isStale(facts, expect)) return { ok: false, code: "changed", message: "look again" };',
    ],
  ],
];
