// A host process for the tests that must kill, starve or trace one: opens the store and does as its first argument says.
import { writeSync } from "node:fs";
import { openStore, type StoreOptions } from "../../host/store/open.ts";
import { deployed, publish } from "../support/chain.ts";

const [act, data, more] = process.argv.slice(2) as ["hold" | "publish", string, string];
const options: StoreOptions = { data, nowMs: () => 1_000, ...(JSON.parse(more) as object) };

/** One write to the pipe, at once: what the parent has read was acknowledged before the process died. */
const say = (line: string) => writeSync(1, `${line}\n`);

try {
  const store = openStore(options);
  say("open");
  // The timer holds the store: one that nobody holds is collected, and its lock with it.
  if (act === "hold") setInterval(() => store.fence, 60_000);
  else {
    const workflow = await deployed(store, "orders", 1_000);
    const padding = "x".repeat(2_000);
    for (let i = 0; ; i++) {
      await publish(store, workflow, [`m${i}-${padding}`], 1_000);
      say(`acknowledged m${i}`);
      if (i === 20 && process.env["PAWL_TEST_FEW"]) process.exit(0);
    }
  }
} catch (error) {
  say(`failed ${String((error as { code?: string }).code)}`);
  process.exit(3);
}
