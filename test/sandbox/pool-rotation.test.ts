// More workflows than fit, in rotation: memory, processes and open files stay where they were after the warm-up.
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openPool } from "../../host/sandbox/pool.ts";
import { noAnswers } from "../support/scripts.ts";
import { asWorkflow, jobCall, jobsScript, openFiles, processTree, said, until } from "./pool-jobs.ts";

const proof = process.env["PAWL_PROOF"] === "1";
const WORKFLOWS = proof ? 1_000 : 60;
const RUNS = proof ? 20_000 : 1_200;
const LOOK_EVERY = proof ? 50 : 10;
const DRIFT = proof ? 0.05 : 0.3;
/** In CI few isolates per child, so that few workflows already rotate. */
const OPTIONS = { childrenPerNamespace: 2, ...(proof ? {} : { isolatesPerChild: 12 }) };

const mean = (values: number[]): number => values.reduce((sum, one) => sum + one, 0) / values.length;

test.runIf(process.platform === "linux")(
  `${WORKFLOWS} workflows in rotation over ${RUNS} runs leave memory, processes and files as they were`,
  async () => {
    const script = await jobsScript();
    await using pool = openPool(OPTIONS);
    const workflows = Array.from({ length: WORKFLOWS }, (_, i) => asWorkflow(script, `workflow-${i}`));
    const rss: number[] = [];
    const files = (): number[] => {
      const inner = pool.stats().pids.map((pid) => processTree(pid).at(-1) ?? pid);
      return [openFiles("self"), ...inner.map(openFiles)];
    };
    const settled = () => pool.stats().rssBytes.filter((bytes) => bytes > 0).length === 3;
    const outcomes = new Set<string>();
    let [filesBefore, childrenBefore] = [[] as number[], 0];
    const warmUp = RUNS / 4;
    for (let n = 0; n < RUNS; n++) {
      if (n === warmUp) {
        await until(settled);
        [filesBefore, childrenBefore] = [files(), pool.stats().children];
      }
      const one = workflows[n % WORKFLOWS];
      if (one) outcomes.add(said(await pool.run(jobCall(one, "echo"), noAnswers)));
      if (n >= warmUp && n % LOOK_EVERY === 0)
        rss.push(pool.stats().rssBytes.reduce((sum, bytes) => sum + bytes, 0));
    }
    await until(() => settled() && String(files()) === String(filesBefore)).catch(() => {});
    const third = Math.floor(rss.length / 3);
    const [first, last] = [mean(rss.slice(0, third)), mean(rss.slice(-third))];
    const drift = (last - first) / first;
    const { spawned, loads, children } = pool.stats();
    if (proof) record(drift, { runs: RUNS, rssFirst: first, rssLast: last, spawned, loads, children });
    expect(outcomes).toEqual(new Set(["done 0"]));
    expect(loads).toBeGreaterThan(RUNS / 4); // it did rotate
    expect(drift).toBeLessThan(DRIFT);
    expect(children).toBe(childrenBefore);
    expect(files()).toEqual(filesBefore);
  },
);

function record(drift: number, more: object): void {
  const folder = join(import.meta.dirname, "../../test-results");
  mkdirSync(folder, { recursive: true });
  const name = `rotation of ${WORKFLOWS} workflows: drift of the pool's RSS after warm-up`;
  const line = { suite: "rotation", name, value: Number((drift * 100).toFixed(2)), unit: "%" };
  appendFileSync(
    join(folder, "measurements.jsonl"),
    `${JSON.stringify({ ...line, note: JSON.stringify(more), ...more })}\n`,
  );
}
