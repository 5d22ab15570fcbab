/** What the engine is made of: the seams that a simulation replaces, and the facts that every file here needs. */
import type { RunFacts } from "../core/facts.ts";
import type { EpochMs } from "../core/ids.ts";
import { type EffectivePolicy, type Unit } from "../core/policy.ts";
import type { Run } from "../core/run.ts";
import type { DownSpan } from "../core/slots.ts";
import type { JsonText } from "../core/workflow.ts";
import type { Clock } from "../ports/clock.ts";
import type { World } from "../ports/connector.ts";
import type { Sandbox, Script } from "../ports/sandbox.ts";
import type { Store } from "../ports/store.ts";
import type { Outside } from "./access.ts";

export interface Parts {
  store: Store;
  sandbox: Sandbox;
  world: World;
  /** Absent where the world is made up: every alias is bound and nothing is asked for. */
  outside?: Outside;
  clock: Clock;
  policies: Policies;
  scripts: Scripts;
  /** When no host kept the schedules, newest last. */
  downtime: readonly DownSpan[];
  /** `prepare` and the intent of `mutate` in one round trip, checkpoints that fall due together in one transaction. */
  fused: boolean;
  hash: (text: string) => string;
  tell: Tell;
  /** Most characters of a unit's transcript; a longer one is recorded without its answers. 0: none is recorded. */
  transcriptChars?: number;
}

/** What just happened, for logs, terminals and metrics; told afterwards, never asked. */
export type Tell = (event: EngineEvent) => void;

export type EngineEvent =
  | { kind: "run.started"; facts: RunFacts }
  | { kind: "run.ended"; facts: RunFacts }
  | { kind: "run.logged"; facts: RunFacts; lines: { level: string; message: string }[] }
  | { kind: "engine.warning"; message: string; atMs: EpochMs };

/** Whose policy: a handler of a workflow and, once it exists, its run with what a person said for it alone. */
export type PolicyOwner = Pick<RunFacts, "workflow" | "handler"> & {
  run?: Pick<Run, "policy" | "resolution">;
};

export interface Policies {
  /** Some rule sets a priority: only then does it pay to ask. */
  readonly hasPriorities: boolean;
  effective<U extends Unit>(unit: U, of: PolicyOwner, tool?: string): EffectivePolicy<U>;
  /** What the next attempt keeps of it, as data: what differs from the built-in defaults. */
  recorded(of: PolicyOwner): JsonText | undefined;
}

/** Versions, ready to run. */
export interface Scripts {
  script(workflow: number, version: number): Promise<Script>;
}
