// A process of its own, so that its memory is the guard's alone: makes the requests it is told on stdin, one after the
// other, and says how each ended and by how much its resident memory grew at the most.
import { text } from "node:stream/consumers";
import { guardedRequest, RequestFailed } from "../../host/connectors/egress-request.ts";

export interface FloodReport {
  name: string;
  outcome: string;
  tookMs: number;
}

const { url, floods } = JSON.parse(await text(process.stdin)) as {
  url: string;
  floods: { name: string; totalMs: number }[];
};
const rule = { hosts: [new URL(url).host], allowPrivateNetwork: true };

async function request(name: string, totalMs: number): Promise<FloodReport> {
  const startedMs = performance.now();
  let outcome: string;
  try {
    const target = new URL(`/${encodeURIComponent(name)}`, url);
    const { problem, bytes } = await guardedRequest({
      method: "GET",
      url: target,
      rule,
      limits: { totalMs },
    });
    outcome = problem ?? `${bytes.byteLength} bytes`;
  } catch (error) {
    outcome = error instanceof RequestFailed ? error.why : `${String(error)}: not a RequestFailed`;
  }
  return { name, outcome, tookMs: performance.now() - startedMs };
}

// What a host takes for ordinary answers of the size that it allows is not growth: modules, and room for what comes and goes.
for (let n = 0; n < 60; n++) await request(`ordinary ${n}`, 5_000);
const baseline = process.memoryUsage.rss();
let peak = baseline;
const look = (): void => void (peak = Math.max(peak, process.memoryUsage.rss()));
const timer = setInterval(look, 2);
const reports: FloodReport[] = [];
for (const { name, totalMs } of floods) {
  reports.push(await request(name, totalMs));
  look();
}
clearInterval(timer);
process.stdout.write(JSON.stringify({ reports, growthBytes: peak - baseline }));
