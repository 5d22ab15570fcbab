// Takes new orders from a shop, page by page, and books each one in a ledger.
//
// The producer keeps the shop's cursor as its state. State, events and inputs are stored in one commit, so a crash
// between two pages repeats the pages and the known messageIds make the repetition harmless. The consumer books one order
// per run, so that one order that cannot be booked is one decision for a person.
import { consumer, producer, topic, workflow } from "pawl";

interface Order {
  id: string;
  customer: string;
  totalCents: number;
}

interface Page {
  orders: Order[];
  next?: string;
}

const maxPagesPerRun = 5;

export default workflow({
  name: "poll-http-with-cursor",
  description: "Books every new shop order in the ledger",
  connections: { shop: "http", ledger: "http" },
  params: {
    pageSize: { type: "number", default: 50, description: "Orders per request" },
    account: { type: "string", default: "revenue", description: "Ledger account that is credited" },
  },
  topics: {
    "order.new": topic<Order>(),
    "order.booked": topic<{ orderId: string; entry: string }>({ output: true }),
  },

  producers: {
    pollOrders: producer({
      schedule: { interval: "5m" },
      publishes: ["order.new"],
      async handler(ctx, state: { cursor?: string } | undefined) {
        let cursor = state?.cursor;
        for (let pages = 0; pages < maxPagesPerRun; pages++) {
          const { body } = await ctx.shop.get<Page>("/orders", {
            query: { after: cursor, limit: ctx.params.pageSize },
          });
          for (const order of body.orders) {
            const title = `Order ${order.id} from ${order.customer}`;
            const input = ctx.registerInput({ source: "shop", type: "order", id: order.id, title });
            ctx.publish("order.new", { messageId: order.id, input, payload: order });
          }
          // The last page has no cursor of its own; the next poll asks again from here.
          if (body.next === undefined) break;
          cursor = body.next;
        }
        return { cursor };
      },
    }),
  },

  consumers: {
    book: consumer({
      subscribes: ["order.new"],
      publishes: ["order.booked"],
      async prepare(ctx) {
        const [event] = await ctx.peek("order.new", { limit: 1 });
        if (!event) return { reservations: [] };
        return {
          reservations: [{ topic: "order.new", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Book order ${event.payload.id}` },
        };
      },
      mutate(ctx, prepared) {
        const { id, totalCents } = prepared.data;
        ctx.ledger.post("/entries", {
          body: { reference: id, account: ctx.params.account, amountCents: totalCents },
          verify: {
            url: "/entries/by-reference/{args.body.reference}",
            appliedIf: { status: 200 },
            notAppliedIf: { status: 404 },
          },
        });
      },
      next(ctx, prepared, outcome) {
        if (outcome.status !== "applied") return;
        const orderId = prepared.data.id;
        const entry: string = outcome.result?.body.id ?? "confirmed by hand";
        ctx.publish("order.booked", { messageId: orderId, payload: { orderId, entry } });
      },
    }),
  },
});
