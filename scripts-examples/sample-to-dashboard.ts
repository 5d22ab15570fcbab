// Samples the depth of a queue every half minute and puts each sample on a dashboard.
//
// A sample has no id of its own at the source, so the moment it was taken is its messageId. Samples that pile up while the
// dashboard is down go in one call, oldest first. What follows from a sample that is too high is other consumers' matter:
// it is published.
import { consumer, producer, topic, workflow } from "pawl";

interface Sample {
  at: string;
  depth: number;
}

export default workflow({
  name: "sample-to-dashboard",
  description: "Puts the depth of the job queue on the dashboard",
  connections: { jobs: "http", dashboard: "http" },
  params: { alarmAbove: { type: "number", default: 100, description: "Jobs that wait" } },
  topics: {
    sample: topic<Sample>(),
    "depth.alarm": topic<Sample>({ output: true }),
  },

  producers: {
    takeSample: producer({
      schedule: { interval: "30s" },
      publishes: ["sample"],
      async handler(ctx) {
        const { body } = await ctx.jobs.get<{ waiting: number }>("/queue");
        const at = new Date(ctx.now()).toISOString();
        ctx.publish("sample", { messageId: at, payload: { at, depth: body.waiting } });
      },
    }),
  },

  consumers: {
    show: consumer({
      subscribes: ["sample"],
      publishes: ["depth.alarm"],
      async prepare(ctx) {
        const samples = await ctx.peek("sample", { limit: 100 });
        if (samples.length === 0) return { reservations: [] };
        return {
          reservations: [{ topic: "sample", ids: samples.map((s) => s.messageId) }],
          data: samples.map((s) => s.payload),
          ui: { title: `Show ${samples.map((s) => s.payload.depth).join(", ")} waiting jobs` },
        };
      },
      mutate(ctx, prepared) {
        ctx.dashboard.post("/series/queue-depth", { body: { points: prepared.data } });
      },
      next(ctx, prepared, outcome) {
        if (outcome.status !== "applied") return;
        for (const sample of prepared.data)
          if (sample.depth > ctx.params.alarmAbove)
            ctx.publish("depth.alarm", { messageId: sample.at, payload: sample });
      },
    }),
  },
});
