// Mistakes the types must catch. Each case is one line put into one place of a correct script: `wrong` must be an error
// on that line, `right` (the same thought, repaired) must not.

export type Place =
  | "connections"
  | "hooks"
  | "publishes"
  | "handler"
  | "subscribes"
  | "prepare"
  | "reservation"
  | "mutate"
  | "next"
  | "applied"
  | "schedule";

export interface Mistake {
  title: string;
  place: Place;
  wrong: string;
  right: string;
  /** The compiler gives up on the whole handler: the first error is on the line, others follow it. */
  cascades?: true;
}

const filler: Record<Place, string> = {
  connections: `connections: { shop: "http", mail: "smtp", news: "feed", disk: "file", other: "workflow", hook: "webhook", crm: "acme" },`,
  hooks: `hooks: { in: { alias: "hook", topic: "order", messageId: "$.id" } },`,
  publishes: `publishes: ["order"],`,
  handler: "",
  subscribes: `subscribes: ["order"],`,
  prepare: "",
  reservation: `reservations: [{ topic: "order", ids: [event.messageId] }],`,
  mutate: "",
  next: "",
  applied: "",
  schedule: `schedule: { interval: "5m" },`,
};

/** The script with `line` in `place`, and the number of that line. */
export function scriptWith(place: Place, line: string): { source: string; line: number } {
  const at = { ...filler, [place]: `${line} // HERE` };
  const source = `
import { consumer, producer, topic, workflow, type HttpResult, type Outcome } from "pawl";
interface Order { id: string; total: number; note?: string }
export type Kept = HttpResult<Outcome>;
export default workflow({
  name: "case",
  ${at.connections}
  topics: { order: topic<Order>(), booked: topic<{ id: string }>({ output: true }), any: topic({ output: true }), both: topic<{ id: string; at: number }>({ output: true }) },
  params: { region: { type: "string", default: "eu" }, limit: { type: "number" }, dry: { type: "boolean" } },
  ${at.hooks}
  producers: {
    poll: producer({
      ${at.schedule}
      ${at.publishes}
      async handler(ctx, state: { cursor?: string } | undefined) {
        ${at.handler}
        return { cursor: state?.cursor };
      },
    }),
    pulse: producer({ schedule: { cron: "0 8 * * *", timezone: "Europe/Berlin" }, handler() {} }),
  },
  consumers: {
    book: consumer({
      ${at.subscribes}
      publishes: ["booked", "any", "both"],
      async prepare(ctx, state: { count: number } | undefined) {
        const [event] = await ctx.peek("order", { limit: 1 });
        if (!event) return { reservations: [] };
        ${at.prepare}
        return {
          ${at.reservation}
          data: { order: event.payload, count: state?.count ?? 0 },
          ui: { title: "Book" },
        };
      },
      mutate(ctx, prepared) {
        ${at.mutate}
      },
      next(ctx, prepared, outcome) {
        ${at.next}
        if (outcome.status === "applied") {
          ${at.applied}
        }
        return { count: prepared.data.count + 1 };
      },
    }),
  },
});
`;
  return { source, line: source.slice(0, source.indexOf("// HERE")).split("\n").length };
}

const event = `{ messageId: "1", payload: { id: "1" } }`;
const order = `{ messageId: "1", payload: { id: "1", total: 2 } }`;
const mail = `{ to: "a@b.c", subject: "s", text: "t" }`;
const input = `{ source: "shop", type: "order", id: "1", title: "Order 1" }`;

export const mistakes: readonly Mistake[] = [
  // Aliases and connectors.
  {
    title: "an alias nobody declared",
    place: "handler",
    wrong: `await ctx.store.get("/");`,
    right: `await ctx.shop.get("/");`,
  },
  {
    title: "a tool the connector lacks",
    place: "handler",
    wrong: `await ctx.shop.fetch("/");`,
    right: `await ctx.news.fetch();`,
  },
  {
    title: "an option the tool lacks",
    place: "handler",
    wrong: `await ctx.shop.get("/", { retries: 3 });`,
    right: `await ctx.shop.get("/", { accept: [404] });`,
  },
  {
    title: "an alias that hides a member of ctx",
    place: "connections",
    wrong: filler.connections.replace("{", `{ log: "http",`),
    right: filler.connections.replace("{", `{ journal: "http",`),
  },
  {
    title: "a hook on an alias that is no webhook",
    place: "hooks",
    wrong: filler.hooks.replace(`"hook"`, `"shop"`),
    right: filler.hooks,
  },
  {
    title: "a hook into an undeclared topic",
    place: "hooks",
    wrong: filler.hooks.replace(`"order"`, `"orders"`),
    right: filler.hooks,
  },
  {
    title: "a body claimed and used as another type",
    place: "handler",
    wrong: `const n: number = (await ctx.shop.get<{ id: string }>("/")).body.id;`,
    right: `const n: string = (await ctx.shop.get<{ id: string }>("/")).body.id;`,
  },
  {
    title: "a body used without a claim",
    place: "handler",
    wrong: `ctx.log.info((await ctx.shop.get("/")).body.id);`,
    right: `ctx.log.info((await ctx.shop.get<{ id: string }>("/")).body.id);`,
  },
  // The producer.
  {
    title: "a mutation tool in a producer",
    place: "handler",
    wrong: `ctx.shop.post("/");`,
    right: `await ctx.shop.query("/", { body: {} });`,
  },
  {
    title: "sending mail in a producer",
    place: "handler",
    wrong: `ctx.mail.send(${mail});`,
    right: `await ctx.disk.list();`,
  },
  { title: "peek in a producer", place: "handler", wrong: `await ctx.peek("order");`, right: `ctx.now();` },
  {
    title: "a producer publishing to a topic it does not name",
    place: "handler",
    wrong: `ctx.publish("booked", ${event});`,
    right: `ctx.publish("order", ${order});`,
  },
  {
    title: "a payload that lacks a property",
    place: "handler",
    wrong: `ctx.publish("order", ${event});`,
    right: `ctx.publish("order", ${order});`,
  },
  {
    title: "an event without messageId",
    place: "handler",
    wrong: `ctx.publish("order", { payload: { id: "1", total: 2 } });`,
    right: `ctx.publish("order", ${order});`,
  },
  {
    title: "an input nobody registered",
    place: "handler",
    wrong: `ctx.publish("order", { ...${order}, input: { source: "shop" } });`,
    right: `ctx.publish("order", { ...${order}, input: ctx.registerInput(${input}) });`,
  },
  {
    title: "an input without a title",
    place: "handler",
    wrong: `ctx.registerInput({ source: "shop", type: "order", id: "1" });`,
    right: `ctx.registerInput(${input});`,
  },
  {
    title: "publishes naming an undeclared topic",
    place: "publishes",
    wrong: `publishes: ["order", "orders"],`,
    right: `publishes: ["order", "any"],`,
  },
  {
    title: "interval and cron together",
    place: "schedule",
    wrong: `schedule: { interval: "5m", cron: "* * * * *" },`,
    right: `schedule: { cron: "* * * * *" },`,
  },
  {
    title: "state of the wrong type",
    place: "handler",
    wrong: `const c: number | undefined = state?.cursor;`,
    right: `const c: string | undefined = state?.cursor;`,
  },
  // prepare
  {
    title: "publish in prepare",
    place: "prepare",
    wrong: `ctx.publish("booked", ${event});`,
    right: `ctx.log.info("booked");`,
  },
  {
    title: "a mutation tool in prepare",
    place: "prepare",
    wrong: `ctx.shop.put("/");`,
    right: `await ctx.shop.head("/");`,
  },
  {
    title: "writing a file in prepare",
    place: "prepare",
    wrong: `ctx.disk.write({ path: "a", content: "b" });`,
    right: `await ctx.disk.read({ path: "a" });`,
  },
  {
    title: "registerInput in prepare",
    place: "prepare",
    wrong: `ctx.registerInput(${input});`,
    right: `ctx.run.attempt.toFixed();`,
  },
  {
    title: "peek into a topic not subscribed",
    place: "prepare",
    wrong: `await ctx.peek("booked");`,
    right: `await ctx.peek("order");`,
  },
  {
    title: "getByIds from a topic not subscribed",
    place: "prepare",
    wrong: `await ctx.getByIds("any", ["1"]);`,
    right: `await ctx.getByIds("order", ["1"]);`,
  },
  {
    title: "a payload property that does not exist",
    place: "prepare",
    wrong: `ctx.log.info(event.payload.customer);`,
    right: `ctx.log.info(event.payload.id);`,
  },
  {
    title: "peek without await",
    place: "prepare",
    wrong: `ctx.log.info("n", ctx.peek("order").length);`,
    right: `ctx.log.info("n", (await ctx.peek("order")).length);`,
  },
  {
    title: "the first event used unchecked",
    place: "prepare",
    wrong: `ctx.log.info((await ctx.peek("order"))[0].id);`,
    right: `ctx.log.info((await ctx.peek("order"))[0]?.id ?? "none");`,
  },
  {
    title: "subscribing to an undeclared topic",
    place: "subscribes",
    wrong: `subscribes: ["order", "orders"],`,
    right: `subscribes: ["order", "any"],`,
    cascades: true,
  },
  // mutate
  {
    title: "a read tool in mutate",
    place: "mutate",
    wrong: `ctx.shop.get("/");`,
    right: `ctx.shop.delete("/");`,
  },
  {
    title: "reading a file in mutate",
    place: "mutate",
    wrong: `ctx.disk.read({ path: "a" });`,
    right: `ctx.disk.write({ path: "a", content: "b" });`,
  },
  {
    title: "peek in mutate",
    place: "mutate",
    wrong: `ctx.peek("order");`,
    right: `ctx.shop.patch("/", { body: prepared.data.order });`,
  },
  {
    title: "publish in mutate",
    place: "mutate",
    wrong: `ctx.publish("booked", ${event});`,
    right: `ctx.other.publish({ workflow: "w", topic: "t", messageId: "1", payload: 1 });`,
  },
  {
    title: "the result of a mutation used in mutate",
    place: "mutate",
    wrong: `const r: object = ctx.shop.post("/");`,
    right: `const r: void = ctx.shop.post("/");`,
  },
  {
    title: "a verify recipe without notAppliedIf",
    place: "mutate",
    wrong: `ctx.shop.post("/", { verify: { url: "/", appliedIf: { status: 200 } } });`,
    right: `ctx.shop.post("/", { verify: { url: "/{key}", appliedIf: { status: 200 }, notAppliedIf: { path: "$.n", equals: 0 } } });`,
  },
  {
    title: "mail without a subject",
    place: "mutate",
    wrong: `ctx.mail.send({ to: "a@b.c", text: "t" });`,
    right: `ctx.mail.send(${mail});`,
  },
  {
    title: "prepared data that prepare never returned",
    place: "mutate",
    wrong: `ctx.log.info(prepared.data.order.customer);`,
    right: `ctx.log.info(prepared.data.order.id);`,
  },
  {
    title: "a webhook has no tools",
    place: "mutate",
    wrong: `ctx.hook.send();`,
    right: `ctx.crm.send({ n: 1 });`,
  },
  // next
  {
    title: "a mutation tool in next",
    place: "next",
    wrong: `ctx.shop.post("/");`,
    right: `ctx.publish("any", { messageId: "1", payload: [1, null] });`,
  },
  {
    title: "a read tool in next",
    place: "next",
    wrong: `ctx.shop.get("/");`,
    right: `ctx.log.warn("x", { region: ctx.params.region });`,
  },
  {
    title: "an untyped connector in next",
    place: "next",
    wrong: `ctx.crm.find({});`,
    right: `ctx.log.debug("x");`,
  },
  {
    title: "peek in next",
    place: "next",
    wrong: `ctx.peek("order");`,
    right: `ctx.log.debug(prepared.data.order.id);`,
  },
  {
    title: "registerInput in next",
    place: "next",
    wrong: `ctx.registerInput(${input});`,
    right: `ctx.log.error("x");`,
  },
  {
    title: "naming an input in next",
    place: "next",
    wrong: `ctx.publish("booked", { messageId: "1", payload: { id: "1" }, input: "1" });`,
    right: `ctx.publish("booked", ${event});`,
  },
  {
    title: "publishing to a topic the consumer does not name",
    place: "next",
    wrong: `ctx.publish("order", ${order});`,
    right: `ctx.publish("booked", ${event});`,
  },
  {
    title: "one of several topics not named",
    place: "next",
    wrong: `ctx.publish(["booked", "order"], ${order});`,
    right: `ctx.publish(["booked", "any"], ${event});`,
  },
  {
    title: "one payload that does not fit all its topics",
    place: "next",
    wrong: `ctx.publish(["booked", "both"], ${event});`,
    right: `ctx.publish(["booked", "both"], { messageId: "1", payload: { id: "1", at: 2 } });`,
  },
  {
    title: "a payload of the wrong type",
    place: "next",
    wrong: `ctx.publish("booked", { messageId: "1", payload: { id: 1 } });`,
    right: `ctx.publish("booked", ${event});`,
  },
  {
    title: "a payload that is not JSON",
    place: "next",
    wrong: `ctx.publish("any", { messageId: "1", payload: { at: new Date() } });`,
    right: `ctx.publish("any", { messageId: "1", payload: { at: new Date().toISOString() } });`,
  },
  {
    title: "the result before the status is known",
    place: "next",
    wrong: `ctx.log.info("r", outcome.result);`,
    right: `if (outcome.status === "applied") ctx.log.info("r", outcome.result);`,
  },
  {
    title: "the result without a null check",
    place: "applied",
    wrong: `ctx.log.info("r", outcome.result.status);`,
    right: `if (outcome.result && "status" in outcome.result) ctx.log.info("r", outcome.result.status);`,
  },
  {
    title: "a status that does not exist",
    place: "next",
    wrong: `if (outcome.status === "failed") return null;`,
    right: `if (outcome.status === "skipped") return null;`,
  },
  {
    title: "state that prepare does not expect",
    place: "next",
    wrong: `const bad: { count: number } = { count: prepared.data.order.id };`,
    right: `const bad: { count: number } = { count: prepared.data.order.total };`,
  },
  // What every phase has.
  {
    title: "a parameter nobody declared",
    place: "next",
    wrong: `ctx.log.info(ctx.params.zone);`,
    right: `ctx.log.info(ctx.params.region);`,
  },
  {
    title: "a parameter of another type",
    place: "handler",
    wrong: `const s: string = ctx.params.limit;`,
    right: `const s: number = ctx.params.limit;`,
  },
  {
    title: "a boolean parameter used as text",
    place: "mutate",
    wrong: `ctx.log.info(ctx.params.dry);`,
    right: `ctx.log.info("dry", ctx.params.dry);`,
  },
  {
    title: "now() taken for a Date",
    place: "prepare",
    wrong: `ctx.now().toISOString();`,
    right: `new Date(ctx.now()).toISOString();`,
  },
  {
    title: "a log level that does not exist",
    place: "mutate",
    wrong: `ctx.log.fatal("x");`,
    right: `ctx.log.error("x", { why: 1 });`,
  },
];
