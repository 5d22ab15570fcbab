/**
 * A folder of scripts, kept deployed: each file is one workflow, saved means deployed. A file with problems keeps its last
 * good version running; a file that is gone has its workflow paused until it comes back.
 */
import { type FSWatcher, readFileSync, statSync, watch } from "node:fs";
import type { FixtureWorld, Host, ScriptUpload } from "../host.ts";
import { showProblems } from "./commands/check.ts";
import { readFixture } from "./fixture.ts";
import { CliFailure, inert, paint, readScript, type ScriptFile, scriptsIn } from "./render.ts";

/** Editors write in several steps. */
const SETTLE_MS = 25;
const POLL_MS = 1_000;

/** What a workflow of the folder is deployed with. */
export type Terms = Pick<ScriptUpload, "bindings" | "grants">;

export interface FolderOptions {
  world: FixtureWorld | undefined;
  tell: (line: string) => void;
  terms?: (workflow: string) => Terms;
}

interface Known {
  source: string;
  fixture: string;
  /** Once it was deployed. */
  workflow?: string;
  gone?: boolean;
}

export class ScriptFolder {
  readonly #folder: string;
  readonly #host: Host;
  readonly #world: FixtureWorld | undefined;
  readonly #terms: (workflow: string) => Terms;
  readonly #tell: (line: string) => void;
  readonly #known = new Map<string, Known>();
  #busy: Promise<void> = Promise.resolve();
  #closed = false;
  #watcher: FSWatcher | undefined;
  #timer: NodeJS.Timeout | undefined;
  #poll: NodeJS.Timeout | undefined;

  constructor(folder: string, host: Host, { world, tell, terms = () => ({}) }: FolderOptions) {
    this.#folder = folder;
    this.#host = host;
    this.#world = world;
    this.#tell = tell;
    this.#terms = terms;
  }

  /** Refuses what is no folder, before anything is started. */
  static check(folder: string): void {
    const stat = statSync(folder, { throwIfNoEntry: false });
    if (!stat) throw new CliFailure(3, `there is no folder ${inert(folder)}`);
    if (!stat.isDirectory())
      throw new CliFailure(2, `${inert(folder)} is not a folder: give the folder of your scripts`);
    try {
      scriptsIn(folder);
    } catch (error) {
      throw new CliFailure(
        4,
        `${inert(folder)} cannot be read: ${(error as NodeJS.ErrnoException).code ?? ""}`,
      );
    }
  }

  /** Names of the workflows that are deployed and there. */
  get workflows(): string[] {
    return [...this.#known.values()].flatMap((one) =>
      one.workflow !== undefined && !one.gone ? [one.workflow] : [],
    );
  }

  get broken(): number {
    return [...this.#known.values()].filter((one) => !one.gone && one.workflow === undefined).length;
  }

  /** Deploys what is new or changed; one at a time, in the order of the calls. */
  sync(announce = true): Promise<void> {
    this.#busy = this.#busy.then(() => this.#sync(announce));
    return this.#busy;
  }

  watch(): void {
    const soon = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.sync(), SETTLE_MS);
    };
    try {
      this.#watcher = watch(this.#folder, soon);
      this.#watcher.on("error", () => this.#watchByPolling());
    } catch {
      this.#watchByPolling();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#watcher?.close();
    clearTimeout(this.#timer);
    clearInterval(this.#poll);
    await this.#busy;
  }

  /** No watches left on this system, or none on this disk. */
  #watchByPolling(): void {
    this.#watcher?.close();
    this.#poll ??= setInterval(() => void this.sync(), POLL_MS);
  }

  async #sync(announce: boolean): Promise<void> {
    let paths: string[];
    try {
      paths = scriptsIn(this.#folder);
    } catch {
      paths = [];
    }
    for (const path of paths) {
      if (this.#closed) return;
      await this.#load(path, announce);
    }
    for (const [path, known] of this.#known) if (!paths.includes(path)) await this.#lose(path, known);
  }

  async #load(path: string, announce: boolean): Promise<void> {
    const before = this.#known.get(path);
    try {
      const file = readScript(path);
      const fixture = fixtureText(path);
      const isBack = before?.gone === true;
      if (before && !isBack && before.source === file.source && before.fixture === fixture) return;
      const known: Known = { ...before, source: file.source, fixture, gone: false };
      this.#known.set(path, known);
      await this.#deploy(file, known, announce);
      if (isBack && known.workflow !== undefined) await this.#host.resume(known.workflow, { by: "folder" });
    } catch (error) {
      // Whatever is wrong with one file, the others are served.
      const { message } = error as Error;
      const words =
        error instanceof CliFailure ? message : `${inert(path)} cannot be deployed: ${inert(message)}`;
      this.#known.set(path, { source: "", fixture: "", ...before });
      if (before?.source !== "") this.#tell(`${paint("red", "error")}  ${words}`);
    }
  }

  async #deploy(file: ScriptFile, known: Known, announce: boolean): Promise<void> {
    const startedMs = performance.now();
    const compiled = await this.#host.check(file);
    // A Ctrl-C reaches the compiler, too: what it says then is not about the script.
    if (this.#closed) return;
    showProblems(file, compiled.problems, this.#tell);
    const stays = known.workflow === undefined ? "" : `; the last good version of ${known.workflow} stays`;
    if (!compiled.ok) {
      this.#tell(`${paint("red", "not deployed")}  ${inert(file.path)}${stays}`);
      return;
    }
    const name = compiled.script.workflow;
    const other = [...this.#known].find(
      ([path, one]) => path !== file.path && one.workflow === name && !one.gone,
    );
    if (other) {
      this.#tell(
        `${paint("red", "not deployed")}  ${inert(file.path)}: ${inert(other[0])} declares the workflow ${name} already`,
      );
      return;
    }
    this.#world?.use(name, readFixture(file));
    const made = await this.#host.deploy({ ...this.#terms(name), ...file, name, by: "folder" });
    if (!made.ok) {
      showProblems(file, made.problems, this.#tell);
      this.#tell(`${paint("red", "not deployed")}  ${inert(file.path)}${stays}`);
      return;
    }
    known.workflow = name;
    if (made.outcome === "held") {
      const can = (made.adds ?? []).flatMap(({ alias, tools }) => tools.map((tool) => `${alias}.${tool}`));
      this.#tell(
        `${paint("yellow", "held")}  ${inert(file.path)}: version ${made.version} of ${name} may also use ${can.join(", ")} and waits for consent; the version before goes on`,
      );
      return;
    }
    if (!announce || made.outcome === "unchanged") return;
    const tookMs = Math.round(performance.now() - startedMs);
    this.#tell(
      `${paint("green", "deployed")}  ${inert(file.path)}: ${name}, version ${made.version} (${tookMs} ms)`,
    );
  }

  async #lose(path: string, known: Known): Promise<void> {
    if (known.gone) return;
    known.gone = true;
    if (known.workflow === undefined) return;
    await this.#host.pause(known.workflow, { by: "folder", note: `${path} was removed` });
    this.#tell(`${paint("yellow", "paused")}  ${known.workflow}: ${inert(path)} is gone`);
  }
}

function fixtureText(script: string): string {
  try {
    return readFileSync(script.replace(/\.m?[jt]s$/, ".fixture.json"), "utf8");
  } catch {
    return "";
  }
}
