/**
 * What a version may change outside, as far as stored data tells: the aliases it can mutate through. From the second version
 * on, more than before needs a person's consent (06; docs/decisions/0014).
 *
 * P1. A version without a `mutate` changes nothing, whatever it declares.
 * P2. A connector that this host does not know may do anything.
 * P3. A version that waits for consent is stored and nothing else: what runs goes on as it was.
 */
import type { Change, VersionRow } from "./change.ts";
import type { WorkflowFacts } from "./facts.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import type { Manifest } from "./workflow.ts";

export interface Capability {
  alias: string;
  connector: string;
  /** The tools of the connector that change something. */
  tools: readonly string[];
}

/** Names of a connector's mutation tools; absent where nobody knows. */
export type MutationsOf = (connector: string) => readonly string[] | undefined;

/** What of a manifest decides about it. */
type Declares = Pick<Manifest, "consumers" | "connections">;

function capabilities(manifest: Declares, mutationsOf: MutationsOf): Capability[] {
  if (!Object.values(manifest.consumers).some((one) => one.hasMutate)) return []; // (P1)
  return Object.entries(manifest.connections)
    .map(([alias, connector]) => ({ alias, connector, tools: mutationsOf(connector) ?? ["*"] })) // (P2)
    .filter((one) => one.tools.length > 0);
}

/** What `after` can do that `before` could not. */
export function widened(before: Declares, after: Declares, mutationsOf: MutationsOf): Capability[] {
  const had = capabilities(before, mutationsOf);
  const knew = (one: Capability) =>
    had.some((old) => old.alias === one.alias && old.connector === one.connector);
  return capabilities(after, mutationsOf).filter((one) => !knew(one));
}

export interface Held {
  version: VersionRow;
  adds: readonly Capability[];
  by: string;
  note?: string;
  inbox: InboxId;
}

/** (P3) A newer version that waits takes the place of an older one in the inbox. */
export function hold(workflow: WorkflowFacts, held: Held, atMs: EpochMs): Change {
  const { version, adds, by, note, inbox } = held;
  const detail = JSON.stringify({ version: version.number, adds });
  return {
    verb: "hold",
    workflow: workflow.id,
    atMs,
    expect: { workflowRevision: workflow.revision },
    writes: [
      { do: "version.create", version },
      { do: "inbox.close", kind: "capability" },
      { do: "inbox.open", id: inbox, kind: "capability", detail },
      { do: "audit", actor: by, action: "version.held", detail, ...(note === undefined ? {} : { note }) },
    ],
  };
}
