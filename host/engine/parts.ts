/** What the engine is made of: the seams that a simulation replaces, and the facts that every file here needs. */
import type { RunFacts } from "../core/facts.ts";
import type { EpochMs } from "../core/ids.ts";
import { type EffectivePolicy, type Unit } from "../core/policy.ts";
import type { DownSpan } from "../core/slots.ts";
import type { Clock } from "../ports/clock.ts";
import type { World } from "../ports/connector.ts";
import type { Sandbox, Script } from "../ports/sandbox.ts";
import type { Store } from "../ports/store.ts";

export interface Parts {
  store: Store;
  sandbox: Sandbox;
  world: World;
  clock: Clock;
  policies: Policies;
  scripts: Scripts;
  /** When no host kept the schedules, newest last. */
  downtime: readonly DownSpan[];
  /** `prepare` and the intent of `mutate` in one round trip, checkpoints that fall due together in one transaction. */
  fused: boolean;
  hash: (text: string) => string;
  tell: Tell;
}

/** What just happened, for logs, terminals and metrics; told afterwards, never asked. */
export type Tell = (event: EngineEvent) => void;

export type EngineEvent =
  | { kind: "run.started"; facts: RunFacts }
  | { kind: "run.ended"; facts: RunFacts }
  | { kind: "run.logged"; facts: RunFacts; lines: { level: string; message: string }[] }
  | { kind: "engine.warning"; message: string; atMs: EpochMs };

export interface Policies {
  effective<U extends Unit>(unit: U, facts: RunFacts, tool?: string): EffectivePolicy<U>;
}

/** Versions, ready to run. */
export interface Scripts {
  script(workflow: number, version: number): Promise<Script>;
}
