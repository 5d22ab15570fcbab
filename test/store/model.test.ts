import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { inspect } from "../../host/store/doctor.ts";
import { openStore } from "../../host/store/open.ts";
import { verify } from "../../host/store/verify.ts";
import { measure } from "../support/measure.ts";
import { runModel } from "../support/model-run.ts";

const proof = process.env["PAWL_PROOF"] === "1";
const SEQUENCES = proof ? 20_000 : 1_000;
/** Fixed in the gate, so that a red gate is red again; the proof looks where nobody has looked. */
const SEED = proof ? Date.now() % 2 ** 31 : 20_260_914;

/** Twenty times what they take on a machine of their own. */
const TIMEOUT_MS = proof ? 3_600_000 : 240_000;

test(`${SEQUENCES} random sequences of commands do to the store what 02 says, and break no invariant of 08`, {
  timeout: TIMEOUT_MS,
}, async () => {
  const { caught, seen, commands } = await runModel(SEQUENCES, SEED);
  if (caught) throw new Error(`seed ${SEED}: ${caught.message}`);
  const name = "random sequences against the oracle, no difference";
  if (proof)
    measure({
      suite: "model",
      name,
      value: SEQUENCES,
      unit: "sequences",
      note: `${commands} commands, seed ${SEED}`,
    });
  // A model test that never gets anywhere finds nothing: each of these must have been seen often.
  const rare = MUST_BE_SEEN.filter((what) => (seen.get(what) ?? 0) < SEQUENCES / 200);
  expect(rare).toEqual([]);
});

test("sequences on a file, with a new host on it after every crash", { timeout: TIMEOUT_MS }, async () => {
  const data = mkdtempSync(join(tmpdir(), "pawl-model-"));
  const open = () => openStore({ data, nowMs: () => 0 });
  try {
    const { caught, seen } = await runModel(proof ? 2_000 : 60, SEED, true, open);
    if (caught) throw new Error(`seed ${SEED}: ${caught.message}`);
    expect(seen.get("crash")).toBeGreaterThan(20);
    await using store = open();
    expect([...inspect(store.db), ...verify(store.db)]).toEqual([]);
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
});

const MUST_BE_SEEN = [
  "start",
  "claim goes-on",
  "claim sends",
  "claim new",
  "claim closed",
  "prepared",
  "no call",
  "intent",
  "wait for approval",
  "send",
  "applied",
  "unknown",
  "emitting",
  "commit",
  "publish",
  "deploy",
  "crash",
  "late",
  "check applied",
  "check notApplied",
  "check unsure",
  "check auth",
  "fail producer",
  "fail prepare",
  "fail mutate",
  "fail call",
  "fail next",
  "decide approve",
  "decide reject",
  "decide retry",
  "decide close",
  "decide check",
  "decide applied",
  "decide not-applied",
  "decide skip",
  "decide refused",
  "skip delivery",
  "skip refused",
  "requeue delivery",
  "reprocess delivery",
  "renew refused",
  "run now",
  "run now refused",
  "edit state",
  "pause",
  "resume",
  "stale",
  "redo",
  "abort",
  "unblock",
  "orphans",
];
