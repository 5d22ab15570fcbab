/**
 * `pawl serve` and `pawl dev`: a host until a signal. `serve` takes requests in, and runs a folder of scripts if it is
 * given one; `dev` needs the folder. They differ in what they keep and in how short an interval may be; both show every
 * run as it ends.
 */
import { flushCompileCache } from "node:module";
import { type Config, type ConfigFields, ConfigProblem, loadConfig } from "../../config.ts";
import {
  createHost,
  type FixtureWorld,
  type Host,
  type HostOptions,
  type Started,
  worlds,
} from "../../host.ts";
import { ScriptFolder, type Terms } from "../folder.ts";
import { LiveView } from "../live.ts";
import { CliFailure, inert, paint, remark, say } from "../render.ts";

export interface ServeFlags {
  scripts?: string;
  data?: string;
  slots?: string;
  logLevel?: string;
  config?: string;
  json?: boolean;
  live?: boolean;
  port?: string;
  listen?: string;
  publicUrl?: string;
  allowedHosts?: string;
  trustProxy?: boolean;
}

export async function serve(flags: ServeFlags): Promise<number> {
  const config = await configOf(flags, {});
  return run(config, { json: flags.json ?? false, data: config.data, isDev: false, isLive: true });
}

export async function dev(scripts: string, flags: ServeFlags): Promise<number> {
  const config = await configOf({ ...flags, scripts }, { minIntervalMs: 1_000 });
  // A throw-away store, unless this very command names one.
  const { json = false, data, live: isLive = false } = flags;
  return run({ ...config, scripts }, { json, data, isDev: true, isLive });
}

async function configOf(flags: ServeFlags, fixed: ConfigFields): Promise<Config> {
  const { config: _, json: __, live: ___, ...named } = flags;
  const given = { ...fixed, ...named } as ConfigFields;
  try {
    return await loadConfig({ flags: given, env: process.env, cwd: process.cwd(), file: flags.config });
  } catch (error) {
    if (error instanceof ConfigProblem) throw new CliFailure(2, inert(error.message, 600));
    throw error;
  }
}

interface Mode {
  json: boolean;
  data: string | undefined;
  isDev: boolean;
  /** Connectors instead of fixtures. */
  isLive: boolean;
}

async function run(config: Config, { json, data, isDev, isLive }: Mode): Promise<number> {
  const { scripts } = config;
  if (scripts !== undefined) ScriptFolder.check(scripts);
  const view = new LiveView();
  const fixtures = config.testWorld === undefined && !isLive ? worlds.fixtures() : undefined;
  const broken = Promise.withResolvers<Error>();
  const host = createHost({
    ...optionsOf(config, data),
    // Whoever tries a script out has asked for it.
    ...(isDev ? { defaultGrant: config.defaultGrant ?? "allow" } : {}),
    ...worldOf(config, fixtures),
    observe: (event) => {
      if (event.kind === "run.started")
        fixtures?.begin(event.facts.workflow.id, event.facts.workflow.name, event.facts.handler.name);
      if (!json) view.show(event);
    },
    onBroken: broken.resolve,
    ...(json ? { log: { level: config.logLevel, write: say } } : {}),
  });
  const signals = listen();
  const { recovered, restored } = await host.start();
  const tell = json ? remark : say;
  if (isLive && config.testWorld === undefined) await connect(host, config, tell);
  const folder =
    scripts === undefined
      ? undefined
      : new ScriptFolder(scripts, host, { world: fixtures, tell, terms: termsOf(config) });
  const ended = Promise.race([signals.stopped, broken.promise]);
  const loaded = await Promise.race([(folder?.sync(false) ?? Promise.resolve()).then(() => true), ended]);
  if (loaded === true) {
    try {
      if (!isDev) await takeRequests(host, config, tell);
    } catch (error) {
      // Nothing of it may keep the process alive.
      await folder?.close();
      signals.close();
      throw error;
    }
    folder?.watch();
    if (restored) remark(gapWords(restored));
    greet(config, folder, { recovered, data, isDev, json, isFaked: fixtures !== undefined });
    view.open(folder?.workflows ?? []);
    // A host that is killed has no end at which it could be kept: the next start is quicker for it.
    flushCompileCache();
  }
  const keys =
    isDev && folder ? listenToKeys(() => void runProducers(host, folder), signals.stop) : undefined;
  const failure = await ended;
  keys?.close();
  if (failure === undefined) remark("stopping: what runs finishes first (again to stop at once)");
  await folder?.close();
  if (failure) {
    remark(`pawl: store-broken: ${inert(failure.message, 300)}`);
    await host.stop().catch(() => {});
    return 1;
  }
  await host.stop();
  const { runs, events, changes } = view.counts;
  if (!json)
    say(
      `stopped: ${runs} runs, ${events} events published, ${changes} outside changes${fixtures ? " (faked)" : ""}`,
    );
  signals.close();
  return 0;
}

/** Says where, once requests are taken in; and the first admin's token, this one time. */
async function takeRequests(host: Host, config: Config, tell: (line: string) => void): Promise<void> {
  const { port, listen, publicUrl, allowedHosts, trustProxy, adminToken } = config;
  const listening = await host
    .listen({
      port,
      listen,
      trustProxy,
      ...(publicUrl === undefined ? {} : { publicUrl }),
      ...(allowedHosts === undefined ? {} : { allowedHosts }),
      ...(adminToken === undefined ? {} : { adminToken }),
    })
    .catch(async (error: unknown) => {
      await host.stop();
      throw error;
    });
  tell(`listening: ${listening.url}`);
  // Not on stdout: that may be a log that is kept.
  if (listening.adminToken !== undefined)
    remark(`the first admin's token, shown this once: ${listening.adminToken}`);
}

function optionsOf(config: Config, data: string | undefined): HostOptions {
  const { slots, minIntervalMs, durability, failpoint, policies } = config;
  const { masterKey, keyFile, defaultGrant, connectors } = config;
  return {
    ...(masterKey === undefined ? {} : { masterKey }),
    ...(keyFile === undefined ? {} : { keyFile }),
    ...(defaultGrant === undefined ? {} : { defaultGrant }),
    connectors: connectors as NonNullable<HostOptions["connectors"]>,
    ...(data === undefined ? {} : { data }),
    ...(failpoint === undefined ? {} : { failpoint }),
    slots,
    minIntervalMs,
    durability,
    policies: policies.length === 0 ? [] : [{ level: "host", rules: policies }],
  };
}

/** The connections of the config file. One that is refused is named; the host runs on without it. */
async function connect(host: Host, { connections }: Config, tell: (line: string) => void): Promise<void> {
  for (const [name, { secrets, ...given }] of Object.entries(connections)) {
    const known = secrets === undefined ? {} : { secrets };
    const put = await host.connections.put({ name, ...given, ...known }, { by: "config" });
    if (!put.ok) tell(`${paint("red", "error")}  connection ${inert(put.message, 400)}`);
  }
}

const termsOf =
  ({ bindings, grants }: Config) =>
  (workflow: string): Terms => ({
    ...(Object.hasOwn(bindings, workflow) ? { bindings: bindings[workflow] ?? {} } : {}),
    ...(Object.hasOwn(grants, workflow) ? { grants: grants[workflow] ?? [] } : {}),
  });

function worldOf({ testWorld }: Config, fixtures: FixtureWorld | undefined): HostOptions {
  if (testWorld !== undefined) return { world: worlds.loopback(testWorld) };
  return fixtures ? { world: fixtures, params: (workflow) => fixtures.paramsOf(workflow) } : {};
}

function greet(
  { scripts }: Pick<Config, "scripts">,
  folder: ScriptFolder | undefined,
  how: { recovered: number; data: string | undefined; isDev: boolean; json: boolean; isFaked: boolean },
): void {
  const count = folder?.workflows.length ?? 0;
  const words =
    scripts === undefined
      ? "scripts are deployed by requests"
      : `${count} ${count === 1 ? "workflow" : "workflows"} from ${inert(scripts)}`;
  const store = how.data === undefined ? "kept in memory" : `kept in ${inert(how.data)}`;
  const broken = folder && folder.broken > 0 ? `, ${folder.broken} not deployed` : "";
  const recovered = how.recovered > 0 ? `, ${how.recovered} interrupted runs recovered` : "";
  const line = `ready: ${words}${broken}${recovered}, ${store}`;
  if (how.json) remark(line);
  else say(paint("bold", line));
  if (how.isFaked)
    remark(
      "no outside change is made: the fixtures beside the scripts answer (--live asks the real outside)",
    );
  if (!how.isDev || scripts === undefined) return;
  const example =
    count === 0
      ? "save a script there, for example a copy of one from scripts-examples"
      : "change a script and save it";
  remark("try next:");
  remark(`  ${example}: it is checked and deployed at once, problems are shown at their lines`);
  if (process.stdin.isTTY) remark("  press r to run every producer now, q to quit");
  remark(`  in another terminal: npx pawl preview ${inert(scripts)}    what would each handler do?`);
}

function gapWords({ backedUpAtMs, workflows }: NonNullable<Started["restored"]>): string {
  const since = new Date(backedUpAtMs).toISOString();
  return (
    `restored: the data is a backup of ${since}. What happened since is known outside and nowhere here: all ` +
    `${workflows} workflows are paused until somebody resumes them, approvals are asked for again, and calls that ` +
    "were on their way are checked"
  );
}

async function runProducers(host: Host, folder: ScriptFolder): Promise<void> {
  for (const workflow of folder.workflows) {
    const answer = await host.runNow(workflow, { by: "keyboard" });
    if (!answer.ok && answer.code !== "wrong_state") say(`${workflow}: ${inert(answer.message)}`);
  }
}

/** The first signal asks to stop, the second does not wait: what is on disk is safe either way. */
function listen(): { stopped: Promise<undefined>; stop: () => void; close: () => void } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  let asked = false;
  const stop = () => {
    if (asked) process.exit(130);
    asked = true;
    resolve(undefined);
  };
  const names = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const name of names) process.on(name, stop);
  return { stopped: promise, stop, close: () => names.forEach((name) => process.off(name, stop)) };
}

function listenToKeys(onRun: () => void, onQuit: () => void): { close: () => void } | undefined {
  const { stdin } = process;
  if (!stdin.isTTY) return undefined;
  stdin.setRawMode(true);
  stdin.resume();
  const pressed = (keys: Buffer) => {
    for (const key of keys.toString("latin1")) {
      if (key === "r") onRun();
      if (key === "q" || key === "\u0003" || key === "\u0004") onQuit();
    }
  };
  stdin.on("data", pressed);
  return {
    close: () => {
      // Ctrl-C is a signal again: the second one does not wait.
      stdin.off("data", pressed);
      stdin.setRawMode(false);
      stdin.pause();
    },
  };
}
