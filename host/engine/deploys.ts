/**
 * Upload → validate → version → activate, and what that does to handlers, schedules and the open chain, in one
 * transaction (02 §1.10). Identical content is recognised by its hash; activating an older version is the same verb.
 */
import { deploy } from "../core/deploy.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { WorkflowId } from "../core/ids.ts";
import type { Compilation, Upload } from "../ports/sandbox.ts";
import type { Parts } from "./parts.ts";

export interface Deployment {
  namespace: string;
  name: string;
  upload: Omit<Upload, "nowMs" | "name">;
  by: string;
  note?: string;
  orphans?: "keep" | "skip" | { moveTo: string };
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

const TRIES = 5;

export class Deploys {
  readonly #parts: Parts;
  readonly #compile: (upload: Upload) => Promise<Compilation>;

  constructor(parts: Parts, compile: (upload: Upload) => Promise<Compilation>) {
    this.#parts = parts;
    this.#compile = compile;
  }

  async deploy(deployment: Deployment): Promise<Deployed> {
    const { store, clock } = this.#parts;
    const { namespace, name, upload } = deployment;
    const made = await this.#compile({ ...upload, name, nowMs: clock.nowMs() });
    if (!made.ok) return { ok: false, problems: made.problems };
    const workflow = await store.workflowId(namespace, name, clock.nowMs());
    for (let tries = 0; tries < TRIES; tries++) {
      const facts = (await store.workflow(workflow)) as WorkflowFacts;
      const { same: known, newest } = await store.versionNumbers(workflow, made.script.hash);
      const done = { ok: true as const, workflow, warnings: made.problems };
      if (known !== undefined && known === facts.activeVersion)
        return { ...done, outcome: "unchanged", version: known };
      const number = known ?? newest + 1;
      const open = facts.openRun && ((await store.run(facts.openRun.id)) as RunFacts);
      const { script } = made;
      const change = deploy(
        facts,
        open,
        {
          number,
          manifest: script.manifest,
          by: deployment.by,
          orphans: deployment.orphans ?? "keep",
          newId: () => store.newId(),
          ...(deployment.note === undefined ? {} : { note: deployment.note }),
          ...(known === undefined
            ? {
                version: {
                  number,
                  hash: script.hash,
                  language: upload.language,
                  source: script.source,
                  code: script.code,
                  manifest: script.manifest,
                  scope: script.scope,
                  ...(script.sourceMap === undefined ? {} : { sourceMap: script.sourceMap }),
                },
              }
            : {}),
        },
        clock.nowMs(),
      );
      const result = await store.apply(change, { level: "durable", fence: store.fence });
      if (result.ok)
        return { ...done, outcome: known === undefined ? "created" : "activated", version: number };
    }
    throw new Error(`workflow ${name} changed while it was deployed, ${TRIES} times in a row`);
  }
}
