/** The part of the composition that reaches the outside: connectors, connections, their keys, who is told, what hooks verify. */
import type { Connector } from "./connectors/define.ts";
import { Keys } from "./connectors/key-rotation.ts";
import { KnownConnectors } from "./connectors/known-connectors.ts";
import type { Opening } from "./connectors/opening.ts";
import { Registry } from "./connectors/registry.ts";
import { ConnectionTeller } from "./connectors/teller.ts";
import { verifyStored } from "./connectors/webhook.ts";
import { workflowConnector } from "./connectors/workflow.ts";
import { ConnectorWorld } from "./connectors/world.ts";
import type { Engine, EngineOptions } from "./engine/engine.ts";
import type { Parts } from "./engine/parts.ts";
import type { GrantMode } from "./core/change.ts";
import type { Clock } from "./ports/clock.ts";
import type { ConnectionRow } from "./ports/connections.ts";
import type { World } from "./ports/connector.ts";
import type { Teller } from "./ports/notices.ts";
import type { SqliteStore } from "./store/open.ts";
import { SqliteConnections } from "./store/sqlite/connections.ts";
import type { SqliteNotices } from "./store/sqlite/notices.ts";
import { systemClock } from "./system/clock.ts";
import type { Redactor } from "./system/redactor.ts";

export interface OutsideOptions {
  /** A folder; without it the host keeps everything in memory and forgets it with its end. */
  data?: string;
  /** Instead of connectors and connections: a world that is made up. */
  world?: World;
  /** Further connectors, beside those built in. */
  connectors?: readonly Connector[];
  /** What a mutation may do that nobody granted, where its namespace does not say: `approve` unless told. */
  defaultGrant?: GrantMode;
  /** Opens stored secrets; behind a comma, older ones. Without it the host keeps one in a file. */
  masterKey?: string;
  /** Where it keeps it, instead of `<data>.key`. */
  keyFile?: string;
  /** Start although the keys of stored secrets are lost: they have to be entered again. */
  withoutLostKeys?: boolean;
  clock?: Clock;
}

/** What a host reaches the outside by. */
export interface Outside {
  world: World;
  known?: NonNullable<Parts["outside"]>;
  keys?: Keys;
  teller?: Teller;
  engine: (notices: SqliteNotices) => Partial<EngineOptions>;
}

const STOPPED = { ok: false, why: "busy", message: "the host is stopping" } as const;
const ownerOf = ({ namespace, name }: ConnectionRow): string => `${namespace}/${name}`;

/** Connectors and connections, unless a world was given. */
export async function openOutside(
  options: OutsideOptions,
  store: SqliteStore,
  { redactor, passing }: { redactor: Redactor; passing: () => Engine["passingOn"] },
): Promise<Outside> {
  const { data, world, connectors = [], defaultGrant = "approve", clock = systemClock } = options;
  if (world) return { world, engine: () => ({}) };
  const connections = new SqliteConnections(store);
  const hide = (value: unknown, owner: string) => redactor.registerAll(value, owner);
  const keys = await Keys.open(connections, {
    ...keyOptions(options),
    ...(data === undefined ? {} : { data }),
    onSecrets: hide,
  });
  const registry = new Registry([
    ...connectors,
    workflowConnector({
      publish: async (origin, event) => (await passing()?.publish(origin, event)) ?? STOPPED,
      find: async (from, event) => (await passing()?.find(from, event)) ?? "other",
    }),
  ]);
  const opening: Opening = {
    open: (row) => keys.vault.open({ ...row, sealed: row.sealed ?? "" }),
    hide: (value, row) => redactor.register(value, `${ownerOf(row)} obtained`),
    replace: async (row, secrets) => {
      const sealed = (version: number) => ({
        text: keys.vault.seal({ ...row, version, secrets }),
        version,
      });
      if (!(await connections.reseal(row.id, row.sealedVersion, sealed(row.sealedVersion + 1))))
        throw new Error(`the secrets of ${row.name} were changed meanwhile`);
    },
  };
  const known = { connections, connectors: new KnownConnectors(registry, keys.vault, opening) };
  const teller: Teller = new ConnectionTeller({ connections, registry, ...opening });
  return {
    world: new ConnectorWorld({ connections, registry, defaultGrant, ...opening }),
    known,
    keys,
    teller,
    engine: (notices) => ({
      notifying: { notices, teller },
      verifyHook: (row, request, nowMs) =>
        verifyStored(row, request, { nowMs: nowMs ?? clock.nowMs(), opening }),
    }),
  };
}

function keyOptions({ masterKey, keyFile, withoutLostKeys }: OutsideOptions) {
  return {
    ...(masterKey === undefined ? {} : { masterKey }),
    ...(keyFile === undefined ? {} : { keyFile }),
    ...(withoutLostKeys === undefined ? {} : { withoutLostKeys }),
  };
}
