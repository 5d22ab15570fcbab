// Joins orders with the payments that name them, and releases an order for shipping when its money has arrived.
//
// Either side may come first: what has no partner simply stays pending. A payment that found no order for too long is
// taken out of the way without an outside change and published for a person to look at.
import { consumer, producer, topic, workflow } from "pawl";

interface Order {
  id: string;
  totalCents: number;
}

interface Payment {
  id: string;
  reference: string;
  amountCents: number;
}

const hourMs = 60 * 60 * 1000;

export default workflow({
  name: "correlate-two-topics",
  description: "Releases orders once they are paid",
  connections: { shop: "http", bank: "http" },
  params: { strayAfterHours: { type: "number", default: 48 } },
  topics: {
    order: topic<Order>(),
    payment: topic<Payment>(),
    "order.released": topic<{ orderId: string; paymentId: string }>({ output: true }),
    "payment.stray": topic<Payment>({ output: true }),
  },

  producers: {
    pollOrders: producer({
      schedule: { interval: "5m" },
      publishes: ["order"],
      async handler(ctx) {
        const { body } = await ctx.shop.get<{ orders: Order[] }>("/orders", { query: { status: "unpaid" } });
        for (const order of body.orders) {
          const input = ctx.registerInput({
            source: "shop",
            type: "order",
            id: order.id,
            title: `Order ${order.id}`,
          });
          ctx.publish("order", { messageId: order.id, input, payload: order });
        }
      },
    }),
    pollPayments: producer({
      schedule: { interval: "15m" },
      publishes: ["payment"],
      async handler(ctx, state: { after?: string } | undefined) {
        const { body } = await ctx.bank.get<{ payments: Payment[] }>("/payments", {
          query: { after: state?.after },
        });
        for (const payment of body.payments) {
          const title = `Payment ${payment.id} for ${payment.reference}`;
          const input = ctx.registerInput({ source: "bank", type: "payment", id: payment.id, title });
          ctx.publish("payment", { messageId: payment.id, input, payload: payment });
        }
        return { after: body.payments.at(-1)?.id ?? state?.after };
      },
    }),
  },

  consumers: {
    match: consumer({
      subscribes: ["order", "payment"],
      publishes: ["order.released", "payment.stray"],
      async prepare(ctx) {
        const payments = await ctx.peek("payment", { limit: 1000 });
        const references = [...new Set(payments.map((p) => p.payload.reference))];
        const orders = new Map(
          (await ctx.getByIds("order", references)).map((o) => [o.payload.id, o.payload]),
        );

        for (const { messageId, payload: payment } of payments) {
          const order = orders.get(payment.reference);
          if (!order || payment.amountCents < order.totalCents) continue;
          return {
            reservations: [
              { topic: "order", ids: [order.id] },
              { topic: "payment", ids: [messageId] },
            ],
            data: { payment, order },
            ui: { title: `Release order ${order.id}, paid by ${payment.id}` },
          };
        }

        const [oldest] = payments;
        if (!oldest) return { reservations: [], data: null };
        const strayAt = Date.parse(oldest.publishedAt) + ctx.params.strayAfterHours * hourMs;
        if (ctx.now() < strayAt)
          return { reservations: [], data: null, wakeAt: new Date(strayAt).toISOString() };
        return {
          reservations: [{ topic: "payment", ids: [oldest.messageId] }],
          data: { payment: oldest.payload, order: null },
          ui: { title: `Set stray payment ${oldest.payload.id} aside` },
        };
      },
      mutate(ctx, prepared) {
        const order = prepared.data?.order;
        if (!order) return;
        ctx.shop.post(`/orders/${encodeURIComponent(order.id)}/release`, {
          body: { order: order.id, payment: prepared.data?.payment.id },
          verify: {
            url: "/orders/{args.body.order}",
            appliedIf: { path: "$.status", equals: "released" },
            notAppliedIf: { path: "$.status", equals: "unpaid" },
          },
        });
      },
      next(ctx, prepared, outcome) {
        if (!prepared.data) return;
        const { order, payment } = prepared.data;
        if (!order) ctx.publish("payment.stray", { messageId: payment.id, payload: payment });
        else if (outcome.status === "applied")
          ctx.publish("order.released", {
            messageId: order.id,
            payload: { orderId: order.id, paymentId: payment.id },
          });
        else ctx.log.warn(`order ${order.id} was not released`, { payment: payment.id });
      },
    }),
  },
});
