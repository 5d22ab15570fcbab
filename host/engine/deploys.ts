/**
 * Upload → validate → version → activate, and what that does to handlers, schedules and the open chain, in one
 * transaction (02 §1.10). Identical content is recognised by its hash; activating an older version is the same verb.
 *
 * D1. What is acknowledged is on disk, and the scheduler knows.
 * D2. A deploy that was decided on old facts is decided again, a few times.
 */
import type { VersionRow } from "../core/change.ts";
import { deploy, deployProblem } from "../core/deploy.ts";
import type { WorkflowFacts } from "../core/facts.ts";
import type { WorkflowId } from "../core/ids.ts";
import { schemaProblem } from "../core/json-schema.ts";
import type { Manifest } from "../core/workflow.ts";
import type { Compilation, CompiledScript, Problem, Upload } from "../ports/sandbox.ts";
import type { Parts } from "./parts.ts";

export interface Deployment {
  namespace: string;
  name: string;
  upload: Omit<Upload, "nowMs" | "name">;
  by: string;
  note?: string;
  orphans?: "keep" | "skip" | { moveTo: string };
}

export interface Activation extends Pick<Deployment, "by" | "note" | "orphans"> {
  workflow: WorkflowId;
  version: number;
}

export type Deployed =
  | {
      ok: true;
      outcome: "created" | "activated" | "unchanged";
      workflow: WorkflowId;
      version: number;
      warnings: Compilation["problems"];
    }
  | { ok: false; problems: Compilation["problems"] };

/** One version on its way to become the active one. */
interface Candidate {
  number: number;
  manifest: Manifest;
  /** Absent when it is stored already. */
  version?: VersionRow;
}

const TRIES = 5;

export class Deploys {
  readonly #parts: Parts;
  readonly #compile: (upload: Upload) => Promise<Compilation>;
  readonly #poke: () => void;

  constructor(parts: Parts, compile: (upload: Upload) => Promise<Compilation>, poke: () => void) {
    this.#parts = parts;
    this.#compile = compile;
    this.#poke = poke;
  }

  async deploy(deployment: Deployment): Promise<Deployed> {
    const { store, clock } = this.#parts;
    const { namespace, name, upload } = deployment;
    const made = await this.#compile({ ...upload, name, nowMs: clock.nowMs() });
    if (!made.ok) return { ok: false, problems: made.problems };
    const { script } = made;
    const refused = problemsOf(script.manifest, deployment.orphans);
    if (refused.length > 0) return { ok: false, problems: refused };
    const workflow = await store.workflowId(namespace, name, clock.nowMs());
    const candidate = async (facts: WorkflowFacts): Promise<Candidate | undefined> => {
      const same = await store.version(workflow, { hash: script.hash });
      if (same?.number === facts.activeVersion) return undefined;
      const { manifest } = script;
      if (same) return { number: same.number, manifest };
      const number = ((await store.version(workflow, "newest"))?.number ?? 0) + 1;
      return { number, manifest, version: versionRow(script, upload.language, number) };
    };
    return this.#activate(workflow, deployment, candidate, made.problems);
  }

  /** An older version, or a stored one that is not active yet, becomes the active one. */
  async activate(activation: Activation): Promise<Deployed> {
    const { workflow, version: number, orphans } = activation;
    const version = await this.#parts.store.version(workflow, number);
    if (!version) return { ok: false, problems: [problem("no-version", `there is no version ${number}`)] };
    const { manifest } = version;
    const refused = problemsOf(manifest, orphans);
    if (refused.length > 0) return { ok: false, problems: refused };
    const candidate = async (facts: WorkflowFacts) =>
      facts.activeVersion === number ? undefined : { number, manifest };
    return this.#activate(workflow, activation, candidate, []);
  }

  async #activate(
    workflow: WorkflowId,
    { by, note, orphans = "keep" }: Pick<Deployment, "by" | "note" | "orphans">,
    candidate: (facts: WorkflowFacts) => Promise<Candidate | undefined>,
    warnings: Problem[],
  ): Promise<Deployed> {
    const { store, clock } = this.#parts;
    for (let tries = 0; tries < TRIES; tries++) {
      const facts = await store.workflow(workflow);
      if (!facts) return { ok: false, problems: [problem("no-workflow", "there is no such workflow")] };
      const next = await candidate(facts);
      if (!next) return { ok: true, outcome: "unchanged", workflow, version: facts.activeVersion, warnings };
      const open = facts.openRun && (await store.run(facts.openRun.id));
      const with_ = {
        ...next,
        by,
        orphans,
        newId: () => store.newId(),
        ...(note === undefined ? {} : { note }),
      };
      const change = deploy(facts, open, with_, clock.nowMs());
      const result = await store.apply(change, { level: "durable", fence: store.fence }); // (D1)
      if (!result.ok) continue; // (D2)
      this.#poke();
      const outcome = next.version ? "created" : "activated";
      return { ok: true, outcome, workflow, version: next.number, warnings };
    }
    throw new Error(`workflow ${workflow} changed while it was deployed, ${TRIES} times in a row`);
  }
}

function versionRow(script: CompiledScript, language: Upload["language"], number: number): VersionRow {
  const { hash, source, code, manifest, scope, sourceMap } = script;
  const row = { number, hash, language, source, code, manifest, scope };
  return sourceMap === undefined ? row : { ...row, sourceMap };
}

/** What compiling cannot know: which events would be orphaned, and whether schemas can be checked. */
function problemsOf(manifest: Manifest, orphans: Deployment["orphans"] = "keep"): Problem[] {
  const problems = Object.entries(manifest.topics).flatMap(([topic, { schema }]) => {
    const why = schema === undefined ? undefined : schemaProblem(schema, `topics.${topic}.schema`);
    return why === undefined ? [] : [problem("bad-declaration", why)];
  });
  const lost = deployProblem({ manifest, orphans });
  return lost === undefined ? problems : [...problems, problem("unknown-consumer", lost)];
}

const problem = (code: string, message: string): Problem => ({
  severity: "error",
  code: code as Problem["code"],
  message,
  hint: "",
  location: { line: 1, column: 1 },
});
