/**
 * The process that is killed: a host on a folder, around one connector, that makes one call and waits. Its job comes in on
 * stdin, because secrets do not belong on a command line.
 */
import { flushCompileCache } from "node:module";
import { text } from "node:stream/consumers";
import type { Connector } from "../connectors/define.ts";
import type { Job } from "./host-cases.ts";
import { Stage } from "./stage.ts";

const job = JSON.parse(await text(process.stdin)) as Job;
const exported = Object.values((await import(job.from)) as Record<string, unknown>);
const isWanted = (value: unknown): value is Connector =>
  typeof value === "object" &&
  value !== null &&
  "tools" in value &&
  (value as Connector).name === job.connector;
const connector = exported.find(isWanted);
if (!connector) throw new Error(`${job.from} exports no connector ${job.connector}`);
const stage = await Stage.open({ ...job, connector }, { data: job.data });
flushCompileCache();
await stage.ask(1, job.input);
setInterval(() => {}, 60_000); // Until it is killed.
