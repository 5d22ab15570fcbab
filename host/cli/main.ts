/**
 * The `pawl` command. Stdout is data, stderr is talk; every command has `--json`.
 * Exit codes: 0 ok · 1 failed · 2 usage · 3 not found · 4 not allowed · 5 conflict · 6 problems found · 130 interrupted.
 */
import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { ERRORS, PawlError } from "../core/errors.ts";
import type { ServeFlags } from "./commands/serve.ts";
import { CliFailure, say } from "./render.ts";

export async function main(argv: string[]): Promise<number> {
  let code = 0;
  const end = (with_: number) => {
    code = with_;
  };
  process.stdout.on("error", stopWhenUnread);
  const program = new Command("pawl")
    .description(
      "Runs automation scripts that other people wrote: on time, in a sandbox, each outside change at most once.",
    )
    .version(version(), "-v, --version")
    .exitOverride()
    .showHelpAfterError("(pawl --help lists the commands)");
  addHostCommands(program, end);
  addScriptCommands(program, end);
  addStoreCommands(program, end);
  program
    .command("version")
    .description("print the version")
    .action(() => say(version()));
  try {
    await program.parseAsync(argv, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof PawlError) {
      process.stderr.write(`pawl: ${error.code}: ${error.message}\n${ERRORS[error.code].fix}\n`);
      return error.code === "store-locked" ? 5 : 1;
    }
    if (!(error instanceof CliFailure)) throw error;
    process.stderr.write(`pawl: ${error.message}\n`);
    return error.exitCode;
  }
  return code;
}

type End = (code: number) => void;

/** A command is loaded when it is asked for: `--help` waits for none of them. */
const hosts = () => import("./commands/serve.ts");

function addHostCommands(program: Command, end: End): void {
  const hosting = (command: Command) =>
    command
      .option("--data <folder>", "where everything is kept")
      .option("--slots <count>", "runs at once")
      .option("--config <file>", "instead of pawl.config.ts, .js or .json in this folder")
      .option("--log-level <level>", "silent, error, warn, info or debug; for --json")
      .option("--json", "log lines as JSON on stdout, instead of the live view");
  hosting(program.command("dev"))
    .description("run a folder of scripts to try them: in memory, outside changes faked, redeployed on save")
    .argument("[folder]", "folder of scripts", ".")
    .option(
      "--live",
      "ask the real outside through the connections of pawl.config.ts, instead of the fixtures",
    )
    .action(async (folder: string, flags: ServeFlags) => end(await (await hosts()).dev(folder, flags)));
  hosting(program.command("serve"))
    .description("run a host that takes requests in, until SIGTERM; and a folder of scripts, if one is given")
    .option("--scripts <folder>", "folder of scripts")
    .option("--port <port>", "7420 unless told; 0 takes any that is free")
    .option("--listen <address>", "127.0.0.1 unless told; any other needs one of the next two")
    .option("--public-url <url>", "where clients reach it, for example behind a proxy")
    .option("--allowed-hosts <names>", "further names that it answers to, with commas between")
    .option("--trust-proxy", "believe what a proxy says about who asks, and by which name")
    .action(async (flags: ServeFlags) => end(await (await hosts()).serve(flags)));
}

function addScriptCommands(program: Command, end: End): void {
  program
    .command("preview")
    .description(
      "run scripts in the sandbox on their fixtures; shows what they would publish and change, changes nothing",
    )
    .argument("<path...>", "script files, or folders of them")
    .option("--json", "one JSON document on stdout")
    .action(async (paths: string[], options: { json?: boolean }) => {
      const { preview } = await import("./commands/preview.ts");
      end(await preview(paths, options));
    });
  program
    .command("check")
    .description("validate scripts as an upload would")
    .argument("<path...>", "script files, or folders of them")
    .option("--json", "one JSON document on stdout")
    .action(async (paths: string[], options: { json?: boolean }) => {
      const { check } = await import("./commands/check.ts");
      end(await check(paths, options));
    });
}

function addStoreCommands(program: Command, end: End): void {
  program
    .command("doctor")
    .description(
      "which layers of protection are in force on this machine, and whether a data folder is sound",
    )
    .option("--data <folder>", "check this data folder, too")
    .option("--json", "one JSON document on stdout")
    .action(async (options: { json?: boolean; data?: string }) => {
      const { doctor } = await import("./commands/doctor.ts");
      end(doctor(options));
    });
  program
    .command("verify")
    .description("prove that the journal of a data folder tells the same story as its tables")
    .requiredOption("--data <folder>", "the data folder")
    .option("--json", "one JSON document on stdout")
    .action(async (options: { json?: boolean; data: string }) => {
      const { verify } = await import("./commands/verify.ts");
      end(verify(options));
    });
}

/** `pawl … | head`: nobody reads on, so there is nothing left to do. */
function stopWhenUnread(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE") throw error;
  process.exit(0);
}

function version(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
