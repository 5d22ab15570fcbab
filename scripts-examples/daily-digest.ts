// Collects support tickets during the day and sends them as one e-mail at a fixed hour (UTC).
//
// Nothing needs a clock of its own: the consumer computes when the oldest waiting ticket is due, and asks to be woken then
// with `wakeAt`. A ticket that arrives in between triggers a run which finds that it is still too early and asks again.
import { consumer, producer, topic, workflow } from "pawl";

interface Ticket {
  id: string;
  subject: string;
  from: string;
  openedAt: string;
}

const dayMs = 24 * 60 * 60 * 1000;
const maxLines = 200;

/** The first moment after `publishedAt` at which the clock shows `hour`. */
function dueAt(publishedAt: string, hour: number): number {
  const due = new Date(publishedAt);
  due.setUTCHours(hour, 0, 0, 0);
  return due.getTime() > Date.parse(publishedAt) ? due.getTime() : due.getTime() + dayMs;
}

export default workflow({
  name: "daily-digest",
  description: "Mails yesterday's support tickets as one digest",
  connections: { desk: "http", mail: "smtp" },
  params: {
    to: { type: "string", default: "team@example.com" },
    hourUtc: { type: "number", default: 8, description: "Hour of the day, 0 to 23" },
  },
  topics: {
    "ticket.opened": topic<Ticket>(),
    "digest.sent": topic<{ tickets: number }>({ output: true }),
  },

  producers: {
    pollTickets: producer({
      schedule: { interval: "10m" },
      publishes: ["ticket.opened"],
      async handler(ctx, state: { since?: string } | undefined) {
        const { body } = await ctx.desk.get<{ tickets: Ticket[] }>("/tickets", {
          query: { openedAfter: state?.since, sort: "openedAt" },
        });
        for (const ticket of body.tickets) {
          const title = `${ticket.from}: ${ticket.subject}`;
          const input = ctx.registerInput({ source: "desk", type: "ticket", id: ticket.id, title });
          ctx.publish("ticket.opened", { messageId: ticket.id, input, payload: ticket });
        }
        return { since: body.tickets.at(-1)?.openedAt ?? state?.since };
      },
    }),
  },

  consumers: {
    digest: consumer({
      subscribes: ["ticket.opened"],
      publishes: ["digest.sent"],
      async prepare(ctx) {
        const tickets = await ctx.peek("ticket.opened", { limit: maxLines });
        const [oldest] = tickets;
        if (!oldest) return { reservations: [] };
        const due = dueAt(oldest.publishedAt, ctx.params.hourUtc);
        if (ctx.now() < due) return { reservations: [], wakeAt: new Date(due).toISOString() };
        const day = new Date(due).toISOString().slice(0, 10);
        return {
          reservations: [{ topic: "ticket.opened", ids: tickets.map((t) => t.messageId) }],
          data: {
            day,
            first: oldest.messageId,
            lines: tickets.map((t) => `${t.payload.from}: ${t.payload.subject}`),
          },
          ui: { title: `Send the digest of ${day} (${tickets.length} tickets)` },
        };
      },
      mutate(ctx, prepared) {
        const { day, lines } = prepared.data;
        ctx.mail.send({
          to: ctx.params.to,
          subject: `${lines.length} new tickets, ${day}`,
          text: lines.map((line, i) => `${i + 1}. ${line}`).join("\n"),
        });
      },
      next(ctx, prepared, outcome) {
        if (outcome.status !== "applied") return;
        const { day, first, lines } = prepared.data;
        // A day with more tickets than fit into one mail has several digests.
        ctx.publish("digest.sent", { messageId: `${day}/${first}`, payload: { tickets: lines.length } });
      },
    }),
  },
});
