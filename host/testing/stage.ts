/**
 * A whole host around one connector: a real store, a real sandbox with a script that makes the sample call, and a clock
 * that skips the waits. Knows how to let things happen until they come to rest, and nothing about faults.
 *
 * S1. Time is skipped only while nothing moves: no run is active, no call is under way unless the outside holds it.
 */
import { ConnectorWorld } from "../connectors/world.ts";
import type { AnyTool, Connector } from "../connectors/define.ts";
import { formatId } from "../core/ids.ts";
import type { Decision } from "../core/resolve.ts";
import { createHost, type Host } from "../host.ts";
import type { ConnectionRow, Connections } from "../ports/connections.ts";
import type { RunDetail } from "../ports/records.ts";
import { type ConnectorSpec, demand } from "./spec.ts";
import { SkippingClock } from "./skipping-clock.ts";

const WORKFLOW = "conformance";
/** Polls in a row without a movement that count as rest; each is a few turns of the real event loop. */
const QUIET = 4;
/** Real time; a case takes well under a second where nothing is stuck. */
const STUCK_MS = 30_000;

export type Cast = Pick<ConnectorSpec, "connector" | "tool"> & { config: unknown; secrets: unknown };

export class Stage implements AsyncDisposable {
  readonly clock = new SkippingClock();
  readonly #host: Host;
  #moves = 0;
  /** Calls and checks of the connector that have not ended. */
  #underWay = 0;
  /** Newest run when the last call was asked for. */
  #mark = 0;

  private constructor(cast: Cast, data: string | undefined) {
    const connector = this.#watched(cast.connector);
    let { secrets } = cast;
    const world = new ConnectorWorld({
      connections: connectionsOf(cast),
      registry: { get: () => connector },
      open: () => secrets,
      replace: async (_, changed) => {
        secrets = changed;
      },
      defaultGrant: "allow",
    });
    this.#host = createHost({
      clock: this.clock,
      world,
      observe: () => this.#moves++,
      ...(data === undefined ? {} : { data }),
    });
  }

  /** With `data` on a folder; one that is there already goes on where it stopped. */
  static async open(
    cast: Cast,
    { data, isNew = true }: { data?: string; isNew?: boolean } = {},
  ): Promise<Stage> {
    const stage = new Stage(cast, data);
    await stage.#host.start();
    if (!isNew) return stage;
    const made = await stage.#host.deploy({ source: scriptOf(cast), language: "js", file: "conformance.js" });
    if (!made.ok) throw new Error(`the kit's own script is refused: ${JSON.stringify(made)}`);
    await stage.until((run) => run?.run.status === "committed", "the host's first run");
    return stage;
  }

  /** The script is asked to make this call. */
  async ask(n: number, input: Record<string, unknown>): Promise<void> {
    this.#mark = (await this.#newest()) ?? 0;
    const event = { topic: "wish", messageId: `wish-${n}`, payload: JSON.parse(JSON.stringify(input)) };
    const published = await this.#host.publish(WORKFLOW, event);
    if (!published.ok) throw new Error(published.message);
  }

  /** Lets time pass until the run that makes the call is as asked. */
  async until(
    reached: (run: RunDetail | undefined) => boolean,
    what: string,
    isHeld: () => boolean = () => false,
  ): Promise<RunDetail> {
    const startedMs = performance.now();
    for (let quiet = 0, seen = -1; ; ) {
      const run = await this.#current();
      if (run && reached(run)) return run;
      const stuck = `${what} does not come: ${run ? inWords(run) : "no run"}`;
      demand(performance.now() - startedMs < STUCK_MS, stuck);
      const resting = run?.run.status !== "active" && this.#underWay === 0;
      quiet = seen === this.#moves && (resting || isHeld()) ? quiet + 1 : 0;
      seen = this.#moves;
      if (quiet >= QUIET) {
        this.clock.skip(); // (S1)
        quiet = 0;
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }

  async decide({ run }: RunDetail, decision: Decision): Promise<void> {
    const decided = await this.#host.decide(formatId("run", run.id), decision, { by: "conformance kit" });
    demand(decided.ok, `a person may not say ${decision.action}: ${JSON.stringify(decided)}`);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#host.stop();
  }

  async #newest(): Promise<number | undefined> {
    return (await this.#host.runs({ workflow: WORKFLOW }, { limit: 1 })).items[0]?.run.id;
  }

  /** The run that is open; else the newest since the call was asked for. */
  async #current(): Promise<RunDetail | undefined> {
    const { items } = await this.#host.runs({ workflow: WORKFLOW }, { limit: 20 });
    const found = items.find(({ run }) => run.open) ?? items.find(({ run }) => run.id > this.#mark);
    return found && this.#host.run(formatId("run", found.run.id));
  }

  /** The same connector; who calls it is counted. */
  #watched(connector: Connector): Connector {
    const counted =
      <Args extends unknown[], Result>(work: (...args: Args) => Promise<Result>) =>
      async (...args: Args): Promise<Result> => {
        this.#moves++;
        this.#underWay++;
        try {
          return await work(...args);
        } finally {
          this.#underWay--;
          this.#moves++;
        }
      };
    // oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
    const watch = (tool: AnyTool<any, any>): AnyTool<any, any> => {
      if (tool.kind === "read") return { ...tool, run: counted(tool.run) };
      const { run, reconcile, before } = tool;
      return {
        ...tool,
        run: counted(run),
        ...(reconcile ? { reconcile: counted(reconcile) } : {}),
        ...(before ? { before: counted(before) } : {}),
      };
    };
    const tools = Object.entries(connector.tools).map(([name, tool]) => [name, watch(tool)] as const);
    return { ...connector, tools: Object.fromEntries(tools) };
  }
}

/** One connection, behind every alias. */
function connectionsOf({ connector, config }: Cast): Connections {
  const row = {
    id: 1,
    namespace: 1,
    name: "outside",
    connector: connector.name,
    config: JSON.stringify(config),
    configVersion: 1,
    sealed: "in memory",
    sealedVersion: 1,
    createdAtMs: 0,
    updatedAtMs: 0,
  } as ConnectionRow;
  const namespace = { id: 1, name: "default" };
  const few: Pick<Connections, "behind" | "named"> = {
    behind: async () => ({ namespace, connector: connector.name, connection: row, grants: [] }),
    named: async () => row,
  };
  return few as Connections; // The world asks for nothing else.
}

function scriptOf({ connector, tool }: Cast): string {
  const call =
    connector.name === "http"
      ? `const { path, ...options } = data; ctx.outside.${tool}(path, options);`
      : `ctx.outside.${tool}(data);`;
  return `import { consumer, topic, workflow } from "pawl";
export default workflow({
  name: "${WORKFLOW}",
  connections: { outside: "${connector.name}" },
  topics: { wish: topic({ output: true }) },
  consumers: {
    act: consumer({
      subscribes: ["wish"],
      async prepare(ctx) {
        const [wish] = await ctx.peek("wish", { limit: 1 });
        if (!wish) return { reservations: [] };
        return { reservations: [{ topic: "wish", ids: [wish.messageId] }], data: wish.payload };
      },
      mutate(ctx, { data }) { ${call} },
      next() {},
    }),
  },
});`;
}

export function inWords({ run, mutation }: RunDetail): string {
  const why = run.error ? ` (${run.error.code}: ${run.error.message})` : "";
  return `${run.status} ${run.pauseReason ?? ""}${why}, the call is ${mutation?.status ?? "not made"}`;
}
