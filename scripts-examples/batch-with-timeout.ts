// Loads meter readings into a warehouse in batches: as soon as a batch is full, or when its oldest reading has waited long
// enough, whichever comes first.
//
// The batch is named after its first and last reading and written with PUT, so the warehouse can be asked whether it
// has it if the answer to the write is lost.
import { consumer, producer, topic, workflow } from "pawl";

interface Reading {
  id: string;
  meter: string;
  kwh: number;
  takenAt: string;
}

interface Totals {
  batches: number;
  rows: number;
}

const minuteMs = 60 * 1000;

export default workflow({
  name: "batch-with-timeout",
  description: "Loads meter readings into the warehouse in batches",
  connections: { meters: "http", warehouse: "http" },
  params: {
    batchSize: { type: "number", default: 500, description: "At most 1000" },
    maxWaitMinutes: { type: "number", default: 15 },
  },
  topics: {
    reading: topic<Reading>({
      schema: {
        type: "object",
        required: ["id", "meter", "kwh", "takenAt"],
        properties: { kwh: { type: "number", minimum: 0 } },
      },
    }),
  },

  producers: {
    pollReadings: producer({
      schedule: { interval: "1m" },
      publishes: ["reading"],
      async handler(ctx, state: { after?: string } | undefined) {
        const { body } = await ctx.meters.get<{ readings: Reading[] }>("/readings", {
          query: { after: state?.after, limit: 500 },
        });
        for (const reading of body.readings) {
          const title = `Meter ${reading.meter} at ${reading.takenAt}`;
          const input = ctx.registerInput({ source: "meters", type: "reading", id: reading.id, title });
          ctx.publish("reading", { messageId: reading.id, input, payload: reading });
        }
        return { after: body.readings.at(-1)?.id ?? state?.after };
      },
    }),
  },

  consumers: {
    load: consumer({
      subscribes: ["reading"],
      async prepare(ctx, state: Totals | undefined) {
        const waiting = await ctx.peek("reading", { limit: ctx.params.batchSize });
        const [first] = waiting;
        const last = waiting.at(-1);
        if (!first || !last) return { reservations: [] };
        const deadline = Date.parse(first.publishedAt) + ctx.params.maxWaitMinutes * minuteMs;
        const isFull = waiting.length >= ctx.params.batchSize;
        if (!isFull && ctx.now() < deadline)
          return { reservations: [], wakeAt: new Date(deadline).toISOString() };
        return {
          reservations: [{ topic: "reading", ids: waiting.map((event) => event.messageId) }],
          data: {
            batch: `${first.messageId}..${last.messageId}`,
            rows: waiting.map(({ payload }) => ({
              meter: payload.meter,
              kwh: payload.kwh,
              takenAt: payload.takenAt,
            })),
            // `next` does not see the state, so what it adds to travels with the data.
            before: state ?? { batches: 0, rows: 0 },
          },
          ui: { title: `Load ${waiting.length} readings${isFull ? "" : " (waited long enough)"}` },
        };
      },
      mutate(ctx, prepared) {
        const { batch, rows } = prepared.data;
        ctx.warehouse.put(`/batches/${encodeURIComponent(batch)}`, {
          body: { batch, rows },
          verify: {
            url: "/batches/{args.body.batch}",
            appliedIf: { status: 200 },
            notAppliedIf: { status: 404 },
          },
        });
      },
      next(ctx, prepared, outcome) {
        if (outcome.status !== "applied") return;
        const { before, rows } = prepared.data;
        const totals: Totals = { batches: before.batches + 1, rows: before.rows + rows.length };
        ctx.log.info("batch loaded", totals);
        return totals;
      },
    }),
  },
});
