/**
 * The `pawl` command. Stdout is data, stderr is talk; every command has `--json`.
 * Exit codes: 0 ok · 1 failed · 2 usage · 3 not found · 4 not allowed · 6 problems found.
 */
import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { ERRORS, PawlError } from "../core/errors.ts";
import { check } from "./commands/check.ts";
import { doctor } from "./commands/doctor.ts";
import { preview } from "./commands/preview.ts";
import { CliFailure, say } from "./render.ts";

export async function main(argv: string[]): Promise<number> {
  let code = 0;
  process.stdout.on("error", stopWhenUnread);
  const program = new Command("pawl")
    .description(
      "Runs automation scripts that other people wrote: on time, in a sandbox, each outside change at most once.",
    )
    .version(version(), "-v, --version")
    .exitOverride()
    .showHelpAfterError("(pawl --help lists the commands)");
  program
    .command("preview")
    .description(
      "run scripts in the sandbox on their fixtures; shows what they would publish and change, changes nothing",
    )
    .argument("<path...>", "script files, or folders of them")
    .option("--json", "one JSON document on stdout")
    .action(async (paths: string[], options: { json?: boolean }) => {
      code = await preview(paths, options);
    });
  program
    .command("check")
    .description("validate scripts as an upload would")
    .argument("<path...>", "script files, or folders of them")
    .option("--json", "one JSON document on stdout")
    .action(async (paths: string[], options: { json?: boolean }) => {
      code = await check(paths, options);
    });
  program
    .command("doctor")
    .description("which layers of protection are in force on this machine")
    .option("--json", "one JSON document on stdout")
    .action((options: { json?: boolean }) => {
      code = doctor(options);
    });
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
      return 1;
    }
    if (!(error instanceof CliFailure)) throw error;
    process.stderr.write(`pawl: ${error.message}\n`);
    return error.exitCode;
  }
  return code;
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
