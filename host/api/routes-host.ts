/** The routes of the host itself: whether it is there and ready, what it counts, its contract, and what happens in it. */
import type { Json } from "../core/workflow.ts";
import { streaming, TOPICS } from "./broadcast.ts";
import type { Routes } from "./call.ts";
import { docsPage } from "./docs-page.ts";
import { openApi } from "./openapi.ts";
import { Refusal } from "./problems.ts";

type Names = "openStream" | "getHealth" | "getReadiness" | "getMetrics" | "getOpenApi" | "getDocs";

const MOST_STREAMS = 10_000;
const MOST_TOPICS = 50;

let document: Json | undefined;
let page: string | undefined;

/** Bodies that are no JSON are handed on as they are. */
export const hostRoutes: Routes<Names> = {
  async openStream({ query, desk, principal, serving, incoming }) {
    if (serving.broadcast.size >= MOST_STREAMS)
      throw new Refusal("too-many-requests", "too many streams are open", {}, { "retry-after": "5" });
    const topics = (query.topics ?? "").split(",").filter((one) => one !== "");
    const odd = topics.find(
      (one) => !(TOPICS as readonly string[]).includes(one) && !/^events:.{1,64}$/.test(one),
    );
    if (odd !== undefined || topics.length > MOST_TOPICS)
      throw new Refusal("request-invalid", `a topic is ${TOPICS.join(", ")} or events:<topic>`, {
        path: "/topics",
      });
    const of = { namespace: desk.name, topics: new Set(topics), token: principal?.token ?? 0 };
    const { looker, stream } = streaming(of, (gone) => serving.broadcast.remove(gone));
    const since = incoming.headers["last-event-id"];
    serving.broadcast.add(looker, typeof since === "string" ? since : undefined);
    return { body: stream as unknown as string };
  },

  async getHealth() {
    return { body: { status: "ok" } };
  },

  async getReadiness({ serving }) {
    if (serving.isStopping()) return { status: 503, body: { status: "stopping" } };
    // A store whose disk refused a write answers nothing any more.
    await serving.open().parts.store.flush();
    return { body: { status: "ready" } };
  },

  async getMetrics({ serving }) {
    return { body: serving.counters.text() };
  },

  async getOpenApi() {
    document ??= openApi() as Json;
    return { body: document };
  },

  async getDocs() {
    page ??= docsPage();
    return { body: page };
  },
};
