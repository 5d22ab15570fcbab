/** What every desk is given: a running host, and who acts. */
import type { Change } from "../core/change.ts";
import type { NamespaceId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import type { PolicyLayer, PolicyRule } from "../core/policy-resolve.ts";
import type { Engine } from "../engine/engine.ts";
import type { EngineEvent, Parts } from "../engine/parts.ts";
import type { ActedBy } from "../ports/connections.ts";
import type { Notices, Teller } from "../ports/notices.ts";
import type { Kept } from "../ports/principals.ts";
import type { Records } from "../ports/records.ts";
import type { Compilation, Upload } from "../ports/sandbox.ts";

/** A running host, as far as a desk needs it. */
export interface Open {
  engine: Engine;
  parts: Parts;
  records: Records;
  notices: Notices;
  /** Absent where the outside is made up. */
  teller?: Teller;
  compile: (upload: Upload) => Promise<Compilation>;
  kept: Kept;
  rules: Rules;
  upkeep: Upkeep;
}

/** Stored policy rules, by the store's key of their scope. */
export interface Rules {
  get(scope: string): { rules: readonly PolicyRule[]; updatedAtMs?: number };
  change(
    scope: string,
    make: (known: readonly PolicyRule[]) => readonly PolicyRule[],
    namespace: NamespaceId,
    by: ActedBy,
  ): Promise<void>;
  layersOf(workflow: { id: number; namespace: NamespaceId }): PolicyLayer[];
}

/** What an operator does with the store as a whole. */
export interface Upkeep {
  /** `undefined` where everything is in memory. */
  backup(): Promise<{ file: string; bytes: number } | undefined>;
  verify(): Promise<{ invariant: number; message: string }[]>;
}

/** What happened, for whoever looks on; told after it did. */
export type Happening =
  | { kind: "applied"; change: Change; published: readonly Published[] }
  | Extract<EngineEvent, { kind: "run.logged" | "run.ended" | "run.started" }>;

/** Who acts; `by` is written into the audit. */
export interface Acting {
  by?: string;
  note?: string;
}

export const person = ({ by = "library", note }: Acting): { by: string; note?: string } => ({
  by,
  ...(note === undefined ? {} : { note }),
});
