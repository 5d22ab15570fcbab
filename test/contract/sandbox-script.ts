/** The script of the sandbox contract: one handler per behaviour. Adapters run this file, compiled or as it stands. */
import { consumer, producer, topic, workflow } from "pawl";

type Loose = Record<string, (...args: unknown[]) => unknown> &
  Record<string, Record<string, (...args: unknown[]) => unknown>>;
/** For calls that the types forbid. */
const loose = (ctx: unknown) => ctx as Loose;
const hourly = { interval: "1h" };
const loop: Record<string, unknown> = {};
loop["self"] = loop;

export default workflow({
  name: "contract",
  connections: { shop: "http", mail: "smtp" },
  topics: {
    "order.new": topic<{ n: number }>(),
    "order.other": topic<{ n: number }>({ output: true }),
    "order.done": topic<unknown>({ output: true }),
  },
  params: { region: { type: "string", default: "eu" } },
  producers: {
    echo: producer({
      schedule: hourly,
      handler: (ctx, state: unknown) =>
        ({ state: state ?? "none", params: ctx.params, run: ctx.run, now: ctx.now() }) as never,
    }),
    keeps: producer({ schedule: hourly, handler: () => undefined }),
    clears: producer({ schedule: hourly, handler: () => null }),
    publishes: producer({
      schedule: hourly,
      publishes: ["order.new", "order.other"],
      handler(ctx) {
        const input = ctx.registerInput({ source: "shop", type: "order", id: "7", title: "Order 7" });
        ctx.publish("order.new", { messageId: "b", input, payload: { n: 1 } });
        ctx.publish(["order.new", "order.other"], { messageId: "a", payload: { n: 2 } });
      },
    }),
    reads: producer({
      schedule: hourly,
      async handler(ctx) {
        const before = ctx.now();
        const answer = await ctx.shop.get<unknown>("/orders", { query: { after: "x", gone: undefined } });
        return { body: answer.body, before, after: ctx.now() } as never;
      },
    }),
    readsMany: producer({
      schedule: hourly,
      async handler(ctx) {
        const paths = Array.from({ length: 12 }, (_, i) => `/${i}`);
        const all = await Promise.all(paths.map((path) => ctx.shop.get<number>(path)));
        return all.map(({ body }) => body) as never;
      },
    }),
    catches: producer({
      schedule: hourly,
      publishes: ["order.other"],
      async handler(ctx) {
        try {
          await ctx.shop.get("/");
        } catch {
          ctx.publish("order.other", { messageId: "caught", payload: { n: 1 } });
        }
        return "went on";
      },
    }),
    throws: producer({
      schedule: hourly,
      handler(ctx) {
        ctx.log.warn("about to throw", { n: 1 });
        throw new RangeError("out of orders");
      },
    }),
    throwsText: producer({
      schedule: hourly,
      async handler() {
        await Promise.resolve();
        throw "just text";
      },
    }),
    wrongPhase: producer({
      schedule: hourly,
      handler(ctx) {
        try {
          loose(ctx)["shop"]?.["post"]?.("/orders");
        } catch {}
        return "went on";
      },
    }),
    foreignTopic: producer({
      schedule: hourly,
      publishes: ["order.other"],
      handler(ctx) {
        loose(ctx)["publish"]?.("order.done", { messageId: "a", payload: 1 });
      },
    }),
    badState: producer({
      schedule: hourly,
      handler: (_, kind: unknown) =>
        ({
          list: [
            1,
            { cycle: loop, nan: Number.NaN, big: 1n, call: () => 1, date: new Map() }[kind as string] ??
              "fine",
          ],
        }) as never,
    }),
    badPayload: producer({
      schedule: hourly,
      publishes: ["order.other"],
      handler(ctx) {
        ctx.publish("order.other", { messageId: "a", payload: { n: Number.POSITIVE_INFINITY } });
      },
    }),
    badId: producer({
      schedule: hourly,
      publishes: ["order.other"],
      handler(ctx) {
        ctx.publish("order.other", { messageId: "a\0b", payload: { n: 1 } });
      },
    }),
    large: producer({ schedule: hourly, handler: () => "x".repeat(2_000) }),
    publishesMany: producer({
      schedule: hourly,
      publishes: ["order.other"],
      handler(ctx) {
        for (let n = 0; n < 20; n++) ctx.publish("order.other", { messageId: `m${n}`, payload: { n } });
      },
    }),
    logs: producer({
      schedule: hourly,
      async handler(ctx) {
        ctx.log.debug("one");
        ctx.log.info("two", { a: [1] });
        await ctx.shop.get("/");
        ctx.log.warn("three ".repeat(50));
        ctx.log.error("four", null);
      },
    }),
    logsMany: producer({
      schedule: hourly,
      handler(ctx) {
        for (let i = 0; i < 30; i++) ctx.log.info(`line ${i}`);
      },
    }),
    waitsForEver: producer({ schedule: hourly, handler: () => new Promise<never>(() => {}) }),
    waitsForHost: producer({
      schedule: hourly,
      async handler(ctx) {
        await ctx.shop.get("/slow");
        return "went on";
      },
    }),
    spoils: producer({
      schedule: hourly,
      handler(ctx, state: { list: number[] } | undefined) {
        state?.list.push(9);
        (ctx.params as { region: string }).region += "!";
        return { list: state?.list ?? [], region: ctx.params.region } as never;
      },
    }),
  },
  consumers: {
    book: consumer({
      subscribes: ["order.new"],
      publishes: ["order.done"],
      prepare: (_, state: unknown) => ({
        reservations: [
          { topic: "order.new", ids: ["a", "b", "a"] },
          { topic: "order.new", ids: ["c"] },
        ],
        data: { total: 5, state: state ?? "none", gone: undefined },
        ui: { title: "Book 3 orders" },
        wakeAt: "2026-01-03T00:00:00Z",
      }),
      mutate(ctx, prepared) {
        const data = prepared.data as { total: number };
        data.total += 1;
        ctx.shop.post("/entries", { body: { total: data.total } });
      },
      next(ctx, prepared, outcome) {
        ctx.publish("order.done", { messageId: "done", payload: [prepared.data, outcome] });
        return { booked: true } as never;
      },
    }),
    idle: consumer({
      subscribes: ["order.new"],
      prepare: () => ({ wakeAt: "2026-01-03T00:00:00Z" }),
      mutate: (ctx) => ctx.shop.post("/never"),
    }),
    abstains: consumer({
      subscribes: ["order.new"],
      prepare: () => ({ reservations: [{ topic: "order.new", ids: ["a"] }] }),
      mutate: () => {},
    }),
    twice: consumer({
      subscribes: ["order.new"],
      prepare: () => ({ reservations: [{ topic: "order.new", ids: ["a"] }] }),
      mutate(ctx) {
        ctx.shop.post("/1");
        try {
          ctx.mail.send({ to: "a@b.example", subject: "2", text: "2" });
        } catch {}
      },
    }),
    readsLate: consumer({
      subscribes: ["order.new"],
      prepare: () => ({ reservations: [{ topic: "order.new", ids: ["a"] }] }),
      async mutate(ctx) {
        await loose(ctx)["shop"]?.["get"]?.("/late");
      },
    }),
    peeks: consumer({
      subscribes: ["order.new"],
      async prepare(ctx, limit: unknown) {
        const options = typeof limit === "number" ? { limit } : undefined;
        return { data: await ctx.peek("order.new", options) };
      },
    }),
    finds: consumer({
      subscribes: ["order.new"],
      async prepare(ctx) {
        return { data: await ctx.getByIds("order.new", ["x", "y"]) };
      },
    }),
    peeksForeign: consumer({
      subscribes: ["order.new"],
      async prepare(ctx) {
        return { data: await loose(ctx)["peek"]?.("order.other") };
      },
    }),
    reservesForeign: consumer({
      subscribes: ["order.new"],
      prepare: () => ({ reservations: [{ topic: "order.other" as "order.new", ids: ["a"] }] }),
    }),
    wrongResult: consumer({ subscribes: ["order.new"], prepare: () => "nothing" as never }),
    wrongWake: consumer({ subscribes: ["order.new"], prepare: () => ({ wakeAt: 5 as never }) }),
  },
});
