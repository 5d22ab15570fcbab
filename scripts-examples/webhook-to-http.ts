// Receives a support desk's webhooks and posts a chat message for every urgent ticket.
//
// The host checks the signature, answers the sender and stores the event before any of this runs, so a chat that is down
// costs nothing but time. Events that are of no interest are reserved and consumed without an outside change.
import { consumer, topic, workflow } from "pawl";

interface DeskEvent {
  /** The sender's id of the delivery: a repeated delivery is the same event. */
  id: string;
  type: "ticket.created" | "ticket.updated" | "ticket.closed";
  ticket: { number: number; subject: string; priority: "low" | "normal" | "urgent"; url: string };
}

export default workflow({
  name: "webhook-to-http",
  description: "Announces urgent tickets in the chat",
  connections: { desk: "webhook", chat: "http" },
  params: { channel: { type: "string", default: "#support" } },
  topics: {
    "desk.event": topic<DeskEvent>({
      schema: {
        type: "object",
        required: ["id", "type", "ticket"],
        properties: { id: { type: "string" }, type: { type: "string" }, ticket: { type: "object" } },
      },
    }),
    "ticket.announced": topic<{ number: number; message: string | null }>({ output: true }),
  },
  hooks: {
    tickets: { alias: "desk", topic: "desk.event", messageId: "$.id" },
  },

  consumers: {
    announce: consumer({
      subscribes: ["desk.event"],
      publishes: ["ticket.announced"],
      async prepare(ctx) {
        const events = await ctx.peek("desk.event");
        const urgent = events.find(
          ({ payload }) => payload.type === "ticket.created" && payload.ticket.priority === "urgent",
        );
        if (urgent)
          return {
            reservations: [{ topic: "desk.event", ids: [urgent.messageId] }],
            data: urgent.payload.ticket,
            ui: { title: `Announce ticket ${urgent.payload.ticket.number}` },
          };
        // No urgent one is left: the rest goes in one run, without a call.
        return {
          reservations: [{ topic: "desk.event", ids: events.map((event) => event.messageId) }],
          data: null,
          ui: { title: `Pass over ${events.length} desk events` },
        };
      },
      mutate(ctx, prepared) {
        const ticket = prepared.data;
        if (!ticket) return;
        ctx.chat.post("/messages", {
          body: {
            channel: ctx.params.channel,
            text: `Urgent: #${ticket.number} ${ticket.subject}\n${ticket.url}`,
          },
          timeoutMs: 10_000,
        });
      },
      next(ctx, prepared, outcome) {
        const ticket = prepared.data;
        if (!ticket || outcome.status !== "applied") return;
        const message: string | null = outcome.result?.body.id ?? null;
        ctx.publish("ticket.announced", {
          messageId: String(ticket.number),
          payload: { number: ticket.number, message },
        });
      },
    }),
  },
});
