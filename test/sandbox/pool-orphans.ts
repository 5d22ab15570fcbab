// A host to be killed: one child computes, one stands by. Prints their process ids.
import { openPool } from "../../host/sandbox/pool.ts";
import { answered, cpuTicks, jobCall, jobsScript, processTree, until } from "./pool-jobs.ts";

const script = await jobsScript();
const pool = openPool({ maxLevel: Number(process.argv[2]) as 1 | 2 | 3 });
const spin = async (): Promise<void> => {
  await pool.run(jobCall(script, "askThenSpin", 0, { limits: { sectionMs: 2_000 } }), answered);
  return spin();
};
void spin();
const busy = () => pool.stats().pids.some((pid) => cpuTicks(processTree(pid).at(-1) ?? pid) > 20);
await until(() => pool.stats().children === 2 && busy());
process.stdout.write(`${JSON.stringify(pool.stats().pids)}\n`);
