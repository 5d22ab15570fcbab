/**
 * Upload → validate → version → activate, and what that does to handlers, schedules and the open chain, in one
 * transaction (02 §1.10). Identical content is recognised by its hash; activating an older version is the same verb.
 *
 * D1. What is acknowledged is on disk, and the scheduler knows.
 * D2. A deploy that was decided on old facts is decided again, a few times.
 * D3. Bindings, grants, params and labels that come with it take effect with it or not at all.
 * D4. A version with an alias that nothing stands behind is not activated; one that can change more than the active one is
 *     kept until somebody consents. Nobody consents for a machine, and no machine grants.
 */
import { type Capability, hold, type MutationsOf, widened } from "../core/capability.ts";
import type { VersionRow, Write } from "../core/change.ts";
import { deploy, deployProblem } from "../core/deploy.ts";
import type { WorkflowFacts } from "../core/facts.ts";
import type { WorkflowId } from "../core/ids.ts";
import { schemaProblem } from "../core/json-schema.ts";
import type { Json, Manifest } from "../core/workflow.ts";
import type { Compilation, CompiledScript, Problem, Upload } from "../ports/sandbox.ts";
import { accessChange, type AccessProblem, type GivenAccess, resolveAccess } from "./access.ts";
import type { Parts } from "./parts.ts";

/** What may come with a version that becomes the active one. */
export interface Terms extends GivenAccess {
  by: string;
  note?: string;
  orphans?: "keep" | "skip" | { moveTo: string };
  params?: Record<string, Json>;
  labels?: Record<string, string>;
  /** Made by a program that repairs scripts (D4). */
  automatic?: boolean;
  /** `false`: a new version is stored and nothing else; the active one goes on. */
  activate?: boolean;
}

export interface Deployment extends Terms {
  namespace: string;
  name: string;
  upload: Omit<Upload, "nowMs" | "name">;
}

export interface Activation extends Terms {
  workflow: WorkflowId;
  version: number;
}

export type Deployed =
  | {
      ok: true;
      /**
       * `held`: stored, and active once somebody consents to what it can do beyond the active one. `stored`: only that was
       * asked for.
       */
      outcome: "created" | "activated" | "unchanged" | "held" | "stored";
      workflow: WorkflowId;
      version: number;
      warnings: Compilation["problems"];
      adds?: readonly Capability[];
    }
  | { ok: false; problems: Compilation["problems"] };

/** One version on its way to become the active one. */
interface Candidate {
  number: number;
  manifest: Manifest;
  /** Absent when it is stored already. */
  version?: VersionRow;
  /** It was active before, or somebody has agreed to it now. */
  isAgreed?: boolean;
  consented?: boolean;
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
      if (same) return { number: same.number, manifest, isAgreed: same.activatedAtMs !== undefined };
      const number = ((await store.version(workflow, "newest"))?.number ?? 0) + 1;
      return { number, manifest, version: versionRow(script, deployment, number) };
    };
    return this.#activate(workflow, deployment, candidate, made.problems);
  }

  /** An older version becomes the active one. */
  activate(activation: Activation): Promise<Deployed> {
    return this.#stored(activation, false);
  }

  /** A person agrees to what a version can do beyond the active one: this is its deploy. */
  consent(activation: Omit<Activation, "automatic">): Promise<Deployed> {
    return this.#stored(activation, true);
  }

  /** What a stored version can change outside that another, or the active one, cannot. */
  async adds(workflow: WorkflowId, version: number, than?: number): Promise<Capability[] | undefined> {
    const { store } = this.#parts;
    const before = await store.version(
      workflow,
      than ?? (await store.workflow(workflow))?.activeVersion ?? 0,
    );
    const after = await store.version(workflow, version);
    return after && widened(before?.manifest ?? NOTHING, after.manifest, this.#mutationsOf);
  }

  async #stored(activation: Activation, consented: boolean): Promise<Deployed> {
    const { workflow, version: number, orphans } = activation;
    const version = await this.#parts.store.version(workflow, number);
    if (!version) return { ok: false, problems: [problem("no-version", `there is no version ${number}`)] };
    const { manifest, activatedAtMs } = version;
    const refused = problemsOf(manifest, orphans);
    if (refused.length > 0) return { ok: false, problems: refused };
    const isAgreed = consented || activatedAtMs !== undefined;
    const candidate = async (facts: WorkflowFacts) =>
      facts.activeVersion === number ? undefined : { number, manifest, isAgreed, consented };
    return this.#activate(workflow, activation, candidate, []);
  }

  async #activate(
    workflow: WorkflowId,
    terms: Terms,
    candidate: (facts: WorkflowFacts) => Promise<Candidate | undefined>,
    warnings: Problem[],
  ): Promise<Deployed> {
    const { store, clock } = this.#parts;
    const { by, note, orphans = "keep" } = terms;
    for (let tries = 0; tries < TRIES; tries++) {
      const facts = await store.workflow(workflow);
      if (!facts) return { ok: false, problems: [problem("no-workflow", "there is no such workflow")] };
      const next = await candidate(facts);
      if (terms.activate === false && next) {
        if (next.version && !(await this.#keep(facts, next.version, terms))) continue; // (D2)
        return { ok: true, outcome: "stored", workflow, version: next.number, warnings };
      }
      const access = await this.#access(facts, next?.manifest, terms);
      if ("problems" in access) return { ok: false, problems: access.problems };
      if (!next) {
        const version = facts.activeVersion;
        if (access.writes.length > 0) await this.#configure(workflow, access.writes, terms);
        return { ok: true, outcome: "unchanged", workflow, version, warnings };
      }
      const adds = next.isAgreed ? [] : await this.#added(facts, next.manifest);
      if (adds.length > 0) {
        if (next.version && !(await this.#hold(facts, next.version, adds, terms))) continue; // (D2)
        return { ok: true, outcome: "held", workflow, version: next.number, warnings, adds };
      }
      const open = facts.openRun && (await store.run(facts.openRun.id));
      const with_ = {
        ...next,
        by,
        orphans,
        access: access.writes, // (D3)
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

  /** What comes with the version, as writes; `manifest` is absent when the active one stays. */
  async #access(
    facts: WorkflowFacts,
    manifest: Manifest | undefined,
    terms: Terms,
  ): Promise<{ writes: Write[] } | { problems: Problem[] }> {
    const { outside, store } = this.#parts;
    const { bindings, grants, params, labels, automatic } = terms;
    if (automatic && (bindings !== undefined || grants !== undefined))
      return { problems: [problem("grant-invalid", "a repair by a program binds and grants nothing")] };
    const declared = manifest ?? (await store.version(facts.id, facts.activeVersion))?.manifest;
    const wrong = params && declared && paramProblem(declared, params);
    if (wrong) return { problems: [problem("param-invalid", wrong)] };
    const set = {
      ...(params && JSON.stringify(params) !== facts.params ? { params: JSON.stringify(params) } : {}),
      ...(labels ? { labels: JSON.stringify(labels) } : {}),
    };
    const writes: Write[] = Object.keys(set).length > 0 ? [{ do: "workflow.set", set }] : [];
    if (!outside || !declared) return { writes };
    const of = { workflow: facts.id, namespace: facts.namespace, manifest: declared };
    const resolved = await resolveAccess(outside, of, terms);
    const problems = resolved.problems.filter((one) => manifest || one.code !== "binding-missing");
    if (problems.length > 0)
      return { problems: problems.map((one) => problem(one.code, one.message, HINTS[one.code])) }; // (D4)
    return { writes: [...writes, ...resolved.writes] };
  }

  async #configure(workflow: WorkflowId, writes: Write[], { by, note }: Terms): Promise<void> {
    const { store, clock } = this.#parts;
    const person = { by, ...(note === undefined ? {} : { note }), atMs: clock.nowMs() };
    await store.apply(accessChange(workflow, writes, person), { level: "durable", fence: store.fence });
  }

  /** Version 1 follows the default grants: there is nothing yet that it could do more than. */
  async #added({ id, activeVersion }: WorkflowFacts, manifest: Manifest): Promise<Capability[]> {
    const { outside, store } = this.#parts;
    const active = activeVersion === 0 || !outside ? undefined : await store.version(id, activeVersion);
    return active ? widened(active.manifest, manifest, this.#mutationsOf) : [];
  }

  async #hold(facts: WorkflowFacts, version: VersionRow, adds: Capability[], terms: Terms): Promise<boolean> {
    const { store, clock } = this.#parts;
    const { by, note } = terms;
    const held = { version, adds, by, inbox: store.newId(), ...(note === undefined ? {} : { note }) };
    const change = hold(facts, held, clock.nowMs());
    return (await store.apply(change, { level: "durable", fence: store.fence })).ok;
  }

  /** Stored, and nothing else. */
  async #keep(facts: WorkflowFacts, version: VersionRow, { by, note }: Terms): Promise<boolean> {
    const { store, clock } = this.#parts;
    const detail = JSON.stringify({ version: version.number });
    const writes: Write[] = [
      { do: "version.create", version },
      { do: "audit", actor: by, action: "version.store", detail, ...(note === undefined ? {} : { note }) },
    ];
    const expect = { workflowRevision: facts.revision };
    const change = { verb: "store", workflow: facts.id, atMs: clock.nowMs(), expect, writes };
    return (await store.apply(change, { level: "durable", fence: store.fence })).ok;
  }

  /** Params and labels, all of them; the version stays. */
  configure(workflow: WorkflowId, terms: Omit<Terms, "orphans" | "automatic">): Promise<Deployed> {
    return this.#activate(workflow, terms, async () => undefined, []);
  }

  readonly #mutationsOf: MutationsOf = (connector) => {
    const tools = this.#parts.outside?.connectors.toolsOf(connector);
    return tools && Object.keys(tools).filter((name) => tools[name] === "mutation");
  };
}

function paramProblem({ params: declared }: Manifest, given: Record<string, Json>): string | undefined {
  for (const [name, value] of Object.entries(given)) {
    const param = Object.hasOwn(declared, name) ? declared[name] : undefined;
    if (!param) return `the script has no param ${name}`;
    if (typeof value !== param.type) return `the param ${name} is a ${param.type}`;
  }
  return undefined;
}

const HINTS: Record<AccessProblem["code"], string> = {
  "binding-missing":
    "Make a connection with the alias's name and connector, or bind the alias to another one.",
  "binding-invalid": "Bind an alias of the script to a connection of its connector.",
  "grant-invalid": "Grant a tool of the connector, or `*`.",
  "unknown-connector":
    "Use a connector of this host, or give the host that one (`connectors` of pawl.config.ts).",
};

const NOTHING: Pick<Manifest, "consumers" | "connections"> = { consumers: {}, connections: {} };

function versionRow(script: CompiledScript, { upload, note }: Deployment, number: number): VersionRow {
  const { hash, source, code, manifest, scope, sourceMap } = script;
  return {
    number,
    hash,
    language: upload.language,
    source,
    code,
    manifest,
    scope,
    ...(sourceMap === undefined ? {} : { sourceMap }),
    ...(note === undefined ? {} : { note }),
  };
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

/** One that has no place in the script. */
export const problem = (code: string, message: string, hint = ""): Problem => ({
  severity: "error",
  code: code as Problem["code"],
  message,
  hint,
  location: { line: 1, column: 1 },
});
