// The real binary, killed without a goodbye under load, again and again: at random moments, and at every durable step. The
// world is a server with its own fsynced log. Nothing may be lost, done twice, or done unasked.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { formatId } from "../../host/core/ids.ts";
import { createHost, examine, worlds } from "../../host/host.ts";
import { type EffectServer, effectServer } from "./effect-server.ts";

const proof = process.env["PAWL_PROOF"] === "1";
const KILLS = proof ? 300 : 30;
const SEED = Number(process.env["PAWL_TEST_SEED"] ?? Date.now() % 1_000_000);
/** So long without any effect, and the last host is given up. */
const STUCK_MS = 60_000;
const WORKFLOWS = ["shop-a", "shop-b", "shop-c"];
const bin = fileURLToPath(new URL("../../bin/pawl", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "pawl-crash-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Every order is booked, and what was booked is confirmed: two outside changes, with an event between them. */
const scriptOf = (name: string) => `import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "${name}",
  connections: { shop: "http", ledger: "http" },
  topics: { order: topic<{ id: string }>(), booked: topic<{ id: string }>() },
  producers: { poll: producer({ schedule: { interval: "1s" }, publishes: ["order"],
    async handler(ctx, state: { after: number } | undefined) {
      let after = state?.after ?? 0;
      for (let page = 0; page < 3; page++) {
        const { body } = await ctx.shop.get<{ orders: { id: string }[]; last: number }>("${name}", { query: { after } });
        for (const order of body.orders) ctx.publish("order", { messageId: order.id, payload: order });
        after = body.last;
      }
      return { after };
    } }) },
  consumers: {
    book: consumer({ subscribes: ["order"], publishes: ["booked"],
      async prepare(ctx) {
        const [event] = await ctx.peek("order", { limit: 1 });
        if (!event) return { reservations: [] };
        return { reservations: [{ topic: "order", ids: [event.messageId] }], data: event.payload, ui: { title: "Book " + event.messageId } };
      },
      mutate(ctx, prepared) { ctx.ledger.post("/entries", { body: { order: prepared.data.id } }); },
      next(ctx, prepared, outcome) {
        if (outcome.status === "applied") ctx.publish("booked", { messageId: prepared.data.id, payload: prepared.data });
      } }),
    confirm: consumer({ subscribes: ["booked"],
      async prepare(ctx) {
        const [event] = await ctx.peek("booked", { limit: 1 });
        if (!event) return { reservations: [] };
        return { reservations: [{ topic: "booked", ids: [event.messageId] }], data: event.payload, ui: { title: "Confirm " + event.messageId } };
      },
      mutate(ctx, prepared) { ctx.ledger.put("/confirmations/" + prepared.data.id, { body: { order: prepared.data.id } }); } }),
  },
});
`;

const POLICIES = [
  {
    match: "default",
    policy: {
      maxRetries: 100,
      baseDelayMs: 10,
      maxDelayMs: 100,
      check: { maxAttempts: 1_000, baseDelayMs: 30, maxDelayMs: 100 },
    },
  },
];

/** Every Change that stands on the way of a run, and the call itself. */
const STEPS = [
  "start",
  "prepared",
  "intended",
  "sending",
  "call",
  "emitting",
  "commit",
  "fail",
  "unknown",
  "crashed",
];
const FAILPOINTS = STEPS.flatMap((step) => [`before:${step}`, `after:${step}`]);

function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

interface Life {
  child: ChildProcess;
  ready: Promise<number>;
  ended: Promise<{ code: number | null; signal: string | null }>;
  said: () => string;
}

function serve(world: EffectServer, failpoint?: string): Life {
  const startedMs = performance.now();
  const child = spawn(process.execPath, [bin, "serve", "--scripts", "scripts", "--data", "data"], {
    cwd: folder,
    env: {
      PATH: process.env["PATH"] ?? "",
      PAWL_TEST_WORLD: world.url,
      PAWL_MIN_INTERVAL_MS: "500",
      PAWL_PORT: "0",
      ...(failpoint === undefined ? {} : { PAWL_FAILPOINT: failpoint }),
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  const { promise: ready, resolve } = Promise.withResolvers<number>();
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (piece: Buffer) => {
      text += piece.toString();
      if (/^ready: /m.test(text)) resolve(performance.now() - startedMs);
    });
  const ended = new Promise<{ code: number | null; signal: string | null }>((done) =>
    child.once("exit", (code, signal) => {
      resolve(Number.NaN);
      done({ code, signal });
    }),
  );
  return { child, ready, ended, said: () => text };
}

const passed = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const soundness = () => [
  ...examine(join(folder, "data"), "laws"),
  ...examine(join(folder, "data"), "journal"),
];

/** One life of a host, from its start to its sudden end. */
async function liveAndDie(
  world: EffectServer,
  chance: () => number,
  failpoint: string | undefined,
): Promise<number> {
  world.orders += 4;
  const life = serve(world, failpoint && `${failpoint}:${1 + Math.floor(chance() * 6)}`);
  const readyMs = await life.ready;
  // A failpoint that is never passed, or a random moment: somebody else pulls the plug.
  await Promise.race([life.ended, passed(failpoint === undefined ? chance() * 600 : 800)]);
  life.child.kill("SIGKILL");
  const { signal, code } = await life.ended;
  expect({ signal, said: signal === null ? `${code}: ${life.said()}` : "" }).toEqual({
    signal: "SIGKILL",
    said: "",
  });
  return readyMs;
}

/** Heals the world, lets a last host finish everything, and answers what a crash loop asks a person. */
async function finish(world: EffectServer): Promise<void> {
  world.faulty = false;
  const wanted = WORKFLOWS.length * world.orders * 2;
  await using host = createHost({
    data: join(folder, "data"),
    world: worlds.loopback(world.url),
    policies: [{ level: "host", rules: POLICIES as never }],
  });
  await host.start();
  let seen = { effects: 0, atMs: performance.now() };
  while (performance.now() - seen.atMs < STUCK_MS) {
    const effects = world.effects().length;
    if (effects > seen.effects) seen = { effects, atMs: performance.now() };
    const done = WORKFLOWS.every((name) => world.cursors.get(name) === world.orders);
    if (done && effects >= wanted) break;
    for (const { run } of (await host.runs({ open: true })).items)
      if (run.status !== "active" && run.readyAtMs === undefined)
        await host.decide(formatId("run", run.id), { action: "retry" }, { by: "test" });
    for (const name of WORKFLOWS) await host.runNow(name);
    await passed(50);
  }
  const { items } = await host.runs({ open: true });
  expect(
    items.filter(({ run }) => run.status !== "active").map(({ run }) => [run.status, run.error]),
  ).toEqual([]);
}

describe(`pawl serve, killed ${KILLS} times (seed ${SEED})`, () => {
  test(
    "nothing is lost, done twice or done unasked; the store is sound each time",
    async () => {
      const chance = randomOf(SEED);
      mkdirSync(join(folder, "scripts"), { recursive: true });
      for (const name of WORKFLOWS) writeFileSync(join(folder, "scripts", `${name}.ts`), scriptOf(name));
      writeFileSync(join(folder, "pawl.config.json"), JSON.stringify({ policies: POLICIES }));
      await using world = await effectServer(join(folder, "effects.log"), chance);
      const readyMs: number[] = [];
      const progress: number[] = [];
      for (let life = 0; life < KILLS; life++) {
        const failpoint = life % 2 === 1 ? FAILPOINTS[((life - 1) / 2) % FAILPOINTS.length] : undefined;
        readyMs.push(await liveAndDie(world, chance, failpoint));
        expect({ life, failpoint, findings: soundness() }).toEqual({ life, failpoint, findings: [] });
        progress.push(world.effects().length);
      }
      const alive = readyMs.filter((ms) => !Number.isNaN(ms)).sort((a, b) => a - b);
      await finish(world);
      expect(soundness()).toEqual([]);

      const effects = world.effects();
      const perDecision = Map.groupBy(effects, (one) => one.key);
      const perOrder = Map.groupBy(effects, (one) => `${one.call} ${one.order}`);
      const twice = (groups: Map<string, unknown[]>) =>
        [...groups].filter(([, found]) => found.length > 1).map(([key]) => key);
      expect(twice(perDecision)).toEqual([]);
      expect(twice(perOrder)).toEqual([]);
      expect(effects.filter((one) => !world.handedOut.has(one.order))).toEqual([]);
      const missing = [...world.handedOut].filter(
        (id) => !perOrder.has(`ledger.post ${id}`) || !perOrder.has(`ledger.put ${id}`),
      );
      expect(missing).toEqual([]);
      expect(world.handedOut.size).toBe(WORKFLOWS.length * world.orders);
      expect(progress.at(-1)).toBeGreaterThan(KILLS);
      expect(alive.length).toBeGreaterThan(KILLS / 2);
      expect(alive.at(-1)).toBeLessThan(10_000);
      process.stdout.write(
        `crash: ${KILLS} kills, ${effects.length} effects, ready p50 ${Math.round(alive[alive.length >> 1] ?? 0)} ms, worst ${Math.round(alive.at(-1) ?? 0)} ms\n`,
      );
    },
    proof ? 3_600_000 : 300_000,
  );

  test("doctor and verify of the same folder agree, from the command line", () => {
    const run = (...args: string[]) =>
      execFileSync(process.execPath, [bin, ...args], { cwd: folder, encoding: "utf8" });
    expect(run("doctor", "--data", "data")).toContain("every invariant holds");
    expect(run("verify", "--data", "data")).toContain("tell the same story");
  });
});
