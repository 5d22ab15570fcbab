/** Where hostile scripts meet the real pool: one module that holds every attack, and what the host felt meanwhile. */
import type {
  HostAnswer,
  HostCall,
  Limits,
  SandboxCall,
  SandboxResult,
  Script,
} from "../../host/ports/sandbox.ts";
import type { Pool } from "../../host/sandbox/pool.ts";
import { callFor, compiled, NOW_MS } from "../support/scripts.ts";
import type { Attack, Position } from "./corpus.ts";

/** Small, so that hitting them takes little of the test's time. */
const SMALL_LIMITS: Partial<Limits> = { sectionMs: 100, cpuMs: 400, wallMs: 3_000 };

/** All attacks as functions of one script; `params` says which one a run performs. */
export async function hostileScript(attacks: readonly Attack[]): Promise<Script> {
  const bodies = attacks.map(
    ({ name, body }) =>
      `${JSON.stringify(name)}: async (ctx, phase) => { const say = (text) => ctx.log.info(text);\n${body}\n},`,
  );
  const source = `import { workflow, producer, consumer, topic } from "pawl";
const attacks = {
${bodies.join("\n")}
};
const attack = (ctx, phase) => attacks[ctx.params.attack](ctx, phase);
export default workflow({
  name: "hostile",
  connections: { web: "http", acme: "acme" },
  topics: { inbox: topic(), outbox: topic({ output: true }) },
  params: { attack: { type: "string" } },
  producers: { make: producer({ schedule: { interval: "1h" }, publishes: ["outbox"], handler: (ctx) => attack(ctx, "producer") }) },
  consumers: {
    take: consumer({
      subscribes: ["inbox"],
      publishes: ["outbox"],
      prepare: (ctx) => attack(ctx, "prepare"),
      mutate: (ctx) => attack(ctx, "mutate"),
      next: (ctx) => attack(ctx, "next"),
    }),
  },
});`;
  return compiled(source, { language: "js", file: "hostile.js" });
}

export async function benignScript(): Promise<Script> {
  return compiled(
    `import { workflow, producer, topic } from "pawl";
export default workflow({
  name: "benign",
  topics: { numbers: topic({ output: true }) },
  producers: {
    count: producer({
      schedule: { interval: "1h" },
      publishes: ["numbers"],
      handler: (ctx, state) => {
        ctx.publish("numbers", { messageId: "n", payload: [1, 2, 3].map((n) => n * 2) });
        return { count: (state?.count ?? 0) + 1 };
      },
    }),
  },
});`,
    { language: "js", file: "benign.js" },
  );
}

export function attackCall(script: Script, attack: Attack, position: Position): SandboxCall {
  // A version of its own: its own isolate, its own death budget.
  const version = { ...script, hash: `${script.hash}:${attack.name}:${position}` };
  return callFor(version, position, position === "producer" ? "make" : "take", {
    params: JSON.stringify({ attack: attack.name }),
    limits: { ...SMALL_LIMITS, ...attack.limits },
    ...(attack.scope === undefined ? {} : { scope: attack.scope }),
  });
}

/** Echoes the question; `/silent` is never answered and `/refused` is refused. */
function answerHostile({ name, args }: HostCall): Promise<HostAnswer> {
  const asked = JSON.parse(args) as { path?: string };
  if (asked.path === "/silent") return new Promise(() => {});
  if (asked.path === "/refused")
    return Promise.resolve({ ok: false, class: "permission", code: "bad-call", message: "not granted" });
  const value = name === "peek" || name === "getByIds" ? "[]" : JSON.stringify({ asked: name, args: asked });
  return Promise.resolve({ ok: true, value, nowMs: NOW_MS });
}

export interface Felt {
  result: SandboxResult;
  tookMs: number;
  heartbeatGapMs: number;
  peakRssBytes: number;
}

const BEAT_MS = 10;

/** Runs one call and watches the host's heartbeat and the children's memory from outside while it lasts. */
export async function felt(pool: Pool, call: SandboxCall): Promise<Felt> {
  let last = performance.now();
  let heartbeatGapMs = 0;
  let peakRssBytes = 0;
  const beat = () => {
    const now = performance.now();
    heartbeatGapMs = Math.max(heartbeatGapMs, now - last - BEAT_MS);
    last = now;
    peakRssBytes = Math.max(peakRssBytes, ...pool.stats().rssBytes);
  };
  const timer = setInterval(beat, BEAT_MS);
  const startedMs = performance.now();
  const result = await pool.run(call, answerHostile);
  const tookMs = performance.now() - startedMs;
  beat();
  clearInterval(timer);
  return { result, tookMs, heartbeatGapMs, peakRssBytes };
}
