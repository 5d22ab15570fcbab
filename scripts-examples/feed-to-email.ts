// Turns a news feed into e-mails: one event per item, one mail per event.
//
// Feeds repeat their items on every fetch; the item's id is the messageId, so a known one is never mailed again. The first
// run would find the whole archive and therefore takes only what is recent.
import { consumer, type FeedItem, producer, topic, workflow } from "pawl";

interface NewsItem {
  id: string;
  title: string;
  link: string | null;
  summary: string | null;
}

const dayMs = 24 * 60 * 60 * 1000;

function isRecent(item: FeedItem, nowMs: number): boolean {
  return item.publishedAt !== undefined && nowMs - Date.parse(item.publishedAt) < dayMs;
}

function mentions(item: FeedItem, keyword: string): boolean {
  return `${item.title} ${item.summary ?? ""}`.toLowerCase().includes(keyword.toLowerCase());
}

export default workflow({
  name: "feed-to-email",
  description: "Mails every feed item that mentions a keyword",
  connections: { news: "feed", mail: "smtp" },
  params: {
    to: { type: "string", default: "reader@example.com" },
    keyword: { type: "string", default: "", description: "Empty: every item" },
  },
  topics: {
    item: topic<NewsItem>(),
    "item.undelivered": topic<{ id: string; rejected: string[] }>({ output: true }),
  },

  producers: {
    pollFeed: producer({
      schedule: { interval: "30m" },
      publishes: ["item"],
      async handler(ctx, state: { etag: string | null } | undefined) {
        const feed = await ctx.news.fetch({ etag: state?.etag ?? undefined });
        if (feed.notModified) return state;
        const isFirstRun = state === undefined;
        // Feeds list the newest item first; readers want the oldest first.
        for (const item of feed.items.toReversed()) {
          if (isFirstRun && !isRecent(item, ctx.now())) continue;
          if (!mentions(item, ctx.params.keyword)) continue;
          const input = ctx.registerInput({
            source: feed.title,
            type: "feed item",
            id: item.id,
            title: item.title,
          });
          const { id, title, link = null, summary = null } = item;
          ctx.publish("item", { messageId: id, input, payload: { id, title, link, summary } });
        }
        return { etag: feed.etag ?? null };
      },
    }),
  },

  consumers: {
    send: consumer({
      subscribes: ["item"],
      publishes: ["item.undelivered"],
      async prepare(ctx) {
        const [event] = await ctx.peek("item", { limit: 1 });
        if (!event) return { reservations: [] };
        return {
          reservations: [{ topic: "item", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Mail "${event.payload.title}"` },
        };
      },
      mutate(ctx, prepared) {
        const { title, link, summary } = prepared.data;
        const text = [summary, link].filter((part) => part !== null).join("\n\n");
        ctx.mail.send({ to: ctx.params.to, subject: title, text });
      },
      next(ctx, prepared, outcome) {
        if (outcome.status !== "applied" || !outcome.result?.rejected.length) return;
        const { id } = prepared.data;
        ctx.publish("item.undelivered", {
          messageId: id,
          payload: { id, rejected: [...outcome.result.rejected] },
        });
      },
    }),
  },
});
