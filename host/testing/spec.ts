/** What a test says about one changing tool of a connector, and how the kit says that a promise was broken. */
import type { AnyTool, Connector, MutationTool, OpenConnection } from "../connectors/define.ts";
import type { ProofClass } from "../core/mutation.ts";
import type { Fault, Outside } from "./faults.ts";

export interface ConnectorSpec {
  /** The connector's and the tool's name unless told. */
  title?: string;
  connector: Connector;
  /** A mutation. */
  tool: string;
  /** Sample calls, as a script would make them: another change for each number. */
  input: (n: number) => Record<string, unknown>;
  /** Starts what the connector will talk to. */
  outside: () => Promise<Outside>;
  /** The module that exports the connector, for the process that is killed. Without it nobody is killed. */
  from?: URL | string;
  /** Real time that a call may take to end once it is called off; 20 s unless told. */
  patienceMs?: number;
  /** Faults that this outside cannot have, each with the reason; they are reported as not run. */
  cannot?: Partial<Record<Fault, string>>;
}

/** One promise, put to the test. `run` throws a `Breach` when it is broken. */
export interface ContractCase {
  name: string;
  /** Not run, and why. */
  skipped?: string;
  run: () => Promise<void>;
}

export class Breach extends Error {
  override readonly name = "Breach";
}

export function demand(holds: boolean, broken: string): asserts holds {
  if (!holds) throw new Breach(broken);
}

// oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
export type AnyMutation = MutationTool<any, any, any, any>;

export function toolOf({ connector, tool: name }: ConnectorSpec): AnyMutation {
  // oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
  const tool: AnyTool<any, any> | undefined = connector.tools[name];
  if (tool?.kind !== "mutation") throw new Error(`${connector.name} has no mutation ${name}`);
  return tool;
}

export const labelOf = ({ connector, tool }: ConnectorSpec): string => `${connector.name}.${tool}`;

/** The connection as the host would open it. */
export function openOn({ connector }: ConnectorSpec, { config, secrets }: Outside): OpenConnection {
  const connection: OpenConnection = {
    namespace: "default",
    name: "outside",
    config: connector.config.parse(config),
    secrets: connector.secrets.parse(secrets ?? {}),
    configVersion: 1,
    hide: () => {},
    replaceSecrets: async (changed) => {
      connection.secrets = connector.secrets.parse(changed);
    },
  };
  return connection;
}

/** What the tool says about itself; without a word it is `lookup` if it can reconcile. */
export function proofOf(spec: ConnectorSpec, connection: OpenConnection, n: number): ProofClass {
  const { proof, reconcile, input } = toolOf(spec);
  if (typeof proof === "function") return proof(input.parse(spec.input(n)), connection);
  return proof ?? (reconcile ? "lookup" : "none");
}

/** Every text of some length in the secrets; none of them may appear anywhere. */
export function secretsOf({ secrets }: Pick<Outside, "secrets">): string[] {
  return leavesOf(secrets).filter((leaf) => leaf.length >= 6);
}

export function leavesOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (typeof value === "number") return [String(value)];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(leavesOf) : [];
}
