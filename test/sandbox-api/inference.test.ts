// What the types infer, checked by the compiler when this file is (`npm run check:types`): `same<A>()(value)` compiles only
// if the value's type is exactly A, and every `@ts-expect-error` must have an error below it. The handlers never run.
import { expect, test } from "vitest";
import {
  consumer,
  type HttpResult,
  type Json,
  type Outcome,
  producer,
  topic,
  workflow,
} from "../../sandbox-api/index.ts";

type Exactly<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same =
  <A>() =>
  <B>(_value: B, ..._differs: Exactly<A, B> extends true ? [] : ["types differ"]): void => {};

interface Order {
  id: string;
  total: number;
}

const flow = workflow({
  name: "inference",
  connections: { shop: "http", mail: "smtp" },
  topics: {
    "order.new": topic<Order>(),
    "order.done": topic<{ id: string }>({ output: true }),
    raw: topic(),
  },
  params: { region: { type: "string", default: "eu" }, limit: { type: "number" }, dry: { type: "boolean" } },
  producers: {
    poll: producer({
      schedule: { interval: "5m" },
      publishes: ["order.new"],
      async handler(ctx, state: { cursor?: string } | undefined) {
        same<string>()(ctx.params.region);
        same<number>()(ctx.params.limit);
        same<boolean>()(ctx.params.dry);
        same<number>()(ctx.now());
        same<HttpResult<Order[]>>()(await ctx.shop.get<Order[]>("/"));
        same<HttpResult<unknown>>()(await ctx.shop.get("/"));
        // @ts-expect-error a producer reads only
        ctx.shop.post("/");
        // @ts-expect-error not in this producer's publishes
        ctx.publish("order.done", { messageId: "1", payload: { id: "1" } });
        return { cursor: state?.cursor };
      },
    }),
    untyped: producer({
      schedule: { cron: "0 8 * * *" },
      handler(_ctx, state) {
        same<Json | undefined>()(state);
        return { seen: [1, 2] };
      },
    }),
  },
  consumers: {
    book: consumer({
      subscribes: ["order.new", "raw"],
      publishes: ["order.done"],
      async prepare(ctx) {
        const [event] = await ctx.peek("order.new", { limit: 1 });
        const [raw] = await ctx.peek("raw");
        if (!event || !raw) return { reservations: [], wakeAt: new Date(ctx.now()).toISOString() };
        same<Order>()(event.payload);
        same<Json>()(raw.payload);
        same<string>()(event.publishedAt);
        // @ts-expect-error prepare does not publish
        ctx.publish("order.done", { messageId: "1", payload: { id: "1" } });
        return {
          reservations: [{ topic: "order.new", ids: [event.id] }],
          data: { order: event.payload, at: ctx.now() },
          ui: { title: "Book" },
        };
      },
      mutate(ctx, prepared) {
        same<{ order: Order; at: number }>()(prepared.data);
        same<void>()(ctx.shop.post("/", { body: prepared.data }));
        // @ts-expect-error mutate does not read
        void ctx.shop.get("/");
        // @ts-expect-error mutate does not look at events
        void ctx.peek("order.new");
      },
      next(ctx, prepared, outcome) {
        same<{ order: Order; at: number }>()(prepared.data);
        same<"applied" | "none" | "skipped">()(outcome.status);
        // @ts-expect-error only an applied change has a result
        void outcome.result;
        // @ts-expect-error next calls no tools
        ctx.mail.send({ to: "a@example.com", subject: "s" });
        ctx.publish("order.done", {
          messageId: prepared.data.order.id,
          payload: { id: prepared.data.order.id },
        });
      },
    }),
    branches: consumer({
      subscribes: ["order.new"],
      async prepare(ctx) {
        const [event] = await ctx.peek("order.new");
        if (!event) return { wakeAt: "2026-01-01T00:00:00Z" };
        if (event.payload.total === 0) return { data: { order: null } };
        return { data: { order: event.payload } };
      },
      mutate(_ctx, prepared) {
        same<Order | null>()(prepared.data.order);
      },
    }),
    claims: consumer({
      subscribes: ["order.new"],
      prepare: () => ({ data: 1 }),
      mutate: (ctx) => ctx.shop.put("/"),
      // Where several connectors could have been called, the author may say which one was.
      next(ctx, _prepared, outcome: Outcome<HttpResult<{ id: string }>>) {
        if (outcome.status === "applied") ctx.log.info(outcome.result?.body.id ?? "confirmed by a person");
      },
    }),
  },
});

test("workflow, producer, consumer and topic tag a copy of what they are given", () => {
  const given = { subscribes: [], prepare: () => ({}) };
  expect(consumer(given)).toEqual({ pawl: "consumer", ...given });
  expect(topic({ output: true })).toEqual({ pawl: "topic", output: true });
  expect(topic()).toEqual({ pawl: "topic" });
  expect(flow).toMatchObject({
    pawl: "workflow",
    name: "inference",
    connections: { shop: "http", mail: "smtp" },
    topics: { raw: { pawl: "topic" } },
    producers: { poll: { pawl: "producer", schedule: { interval: "5m" }, publishes: ["order.new"] } },
    consumers: { book: { pawl: "consumer", subscribes: ["order.new", "raw"] } },
  });
});
