/** `npm run bench [-- --quick]`: every bench, one after another; exits with 1 when any of them missed a limit. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";

let missed = false;
for (const bench of ["sandbox", "store", "engine"]) {
  const program = join(import.meta.dirname, bench, "run.ts");
  const { status } = spawnSync(process.execPath, [program, ...process.argv.slice(2)], { stdio: "inherit" });
  missed ||= status !== 0;
}
process.exitCode = missed ? 1 : 0;
