// Pays approved payouts by bank transfer, each at most once.
//
// A transfer whose answer was lost must not be repeated on suspicion. The verify recipe lets the host ask the bank for the
// payout's reference; if the bank cannot tell, a person decides, and this script sees what they decided as the outcome.
import { consumer, producer, topic, workflow } from "pawl";

interface Payout {
  id: string;
  name: string;
  iban: string;
  amountCents: number;
}

interface Settled {
  payoutId: string;
  transferId: string | null;
  how: "transferred" | "confirmed by a person" | "found at the bank";
}

const hourMs = 60 * 60 * 1000;

export default workflow({
  name: "transfer-with-reconcile",
  description: "Transfers approved payouts",
  connections: { payroll: "http", bank: "http" },
  params: { account: { type: "string", default: "main", description: "Account to pay from" } },
  topics: {
    "payout.approved": topic<Payout>(),
    "payout.settled": topic<Settled>({ output: true }),
    "payout.cancelled": topic<{ payoutId: string }>({ output: true }),
  },

  producers: {
    pollPayouts: producer({
      schedule: { cron: "*/15 6-20 * * 1-5", timezone: "Europe/Berlin" },
      publishes: ["payout.approved"],
      async handler(ctx) {
        const { body } = await ctx.payroll.get<{ payouts: Payout[] }>("/payouts", {
          query: { status: "approved" },
        });
        for (const payout of body.payouts) {
          const title = `Payout ${payout.id} to ${payout.name}`;
          const input = ctx.registerInput({ source: "payroll", type: "payout", id: payout.id, title });
          ctx.publish("payout.approved", { messageId: payout.id, input, payload: payout });
        }
      },
    }),
  },

  consumers: {
    pay: consumer({
      subscribes: ["payout.approved"],
      publishes: ["payout.settled", "payout.cancelled"],
      async prepare(ctx) {
        const [event] = await ctx.peek("payout.approved", { limit: 1 });
        if (!event) return { reservations: [], data: null };
        const payout = event.payload;
        const reservations = [{ topic: "payout.approved" as const, ids: [event.messageId] }];

        // Someone may have paid it at the bank's own counter.
        const existing = await ctx.bank.get<{ count: number; transfers: { id: string }[] }>("/transfers", {
          query: { reference: payout.id },
        });
        const [found] = existing.body.transfers;
        if (found)
          return {
            reservations,
            data: { payout, found: found.id },
            ui: { title: `Payout ${payout.id} is already paid` },
          };

        const account = await ctx.bank.get<{ balanceCents: number }>(
          `/accounts/${encodeURIComponent(ctx.params.account)}`,
        );
        if (account.body.balanceCents < payout.amountCents) {
          ctx.log.warn(`not enough money for payout ${payout.id}`, {
            balanceCents: account.body.balanceCents,
          });
          return { reservations: [], data: null, wakeAt: new Date(ctx.now() + hourMs).toISOString() };
        }
        const amount = (payout.amountCents / 100).toFixed(2);
        return {
          reservations,
          data: { payout, found: null },
          ui: { title: `Transfer ${amount} EUR to ${payout.name}` },
        };
      },
      mutate(ctx, prepared) {
        if (!prepared.data || prepared.data.found !== null) return;
        const { id, name, iban, amountCents } = prepared.data.payout;
        ctx.bank.post("/transfers", {
          body: { reference: id, from: ctx.params.account, name, iban, amountCents },
          verify: {
            url: "/transfers?reference={args.body.reference}",
            appliedIf: { path: "$.count", equals: 1 },
            notAppliedIf: { path: "$.count", equals: 0 },
          },
          timeoutMs: 30_000,
        });
      },
      next(ctx, prepared, outcome) {
        // Nothing was reserved: there is nothing to report.
        if (!prepared.data) return;
        const { payout, found } = prepared.data;
        const settle = (how: Settled["how"], transferId: string | null): void =>
          ctx.publish("payout.settled", {
            messageId: payout.id,
            payload: { payoutId: payout.id, transferId, how },
          });
        switch (outcome.status) {
          case "applied":
            if (outcome.result) settle("transferred", outcome.result.body.id);
            else settle("confirmed by a person", null);
            break;
          case "none":
            settle("found at the bank", found);
            break;
          case "skipped":
            ctx.publish("payout.cancelled", { messageId: payout.id, payload: { payoutId: payout.id } });
            break;
        }
      },
    }),
  },
});
