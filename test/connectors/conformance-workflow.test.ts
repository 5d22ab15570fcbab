// The `workflow` connector against a host that keeps events and breaks on demand. Its call crosses no wire, so half of the
// kit's faults cannot happen to it; those that can, a store that stops before, in and after the write, are here.
import type { Passing } from "../../host/connectors/workflow.ts";
import { workflowConnector } from "../../host/connectors/workflow.ts";
import type { Fault, Outside } from "../../host/testing.ts";
import { connectorSuite } from "../contract/connector.ts";

const NO_WIRE = "the call stays within the host: there is no wire, no credential and no answer in bytes";
const cannot: Partial<Record<Fault, string>> = {
  "garbage-answer": NO_WIRE,
  "garbage-body": NO_WIRE,
  unauthorized: NO_WIRE,
  forbidden: NO_WIRE,
  "rate-limited-negative": NO_WIRE,
  "rate-limited-huge": NO_WIRE,
  "rate-limited-date": NO_WIRE,
  "rate-limited-words": NO_WIRE,
  "answered-twice": NO_WIRE,
  "late-effect": "an event is written in the transaction of the call, or never",
  slow: "a write that has begun is awaited to its end: the host does not lose patience with its own store",
  "killed-before-effect":
    "who sends and who is sent to are one process: `pawl serve` is killed in test/crash",
  "killed-after-effect": "who sends and who is sent to are one process: `pawl serve` is killed in test/crash",
};

class Events implements Outside {
  readonly config = {};
  readonly #events = new Map<string, string>();
  #fault: Fault | undefined;
  #effects = 0;

  readonly passing: Passing = {
    publish: async (_, { workflow, topic, messageId, payload }) => {
      const fault = this.#fault;
      if (fault === "refused") return { ok: false, why: "busy", message: "it is deployed again and again" };
      if (
        fault === "dropped-before-send" ||
        fault === "dropped-after-send" ||
        fault === "error-before-effect"
      )
        throw new Error("the store stopped before it wrote");
      const key = `${workflow}/${topic}/${messageId}`;
      const outcome = this.#events.has(key) ? "unchanged" : "created";
      if (outcome === "created") this.#effects++;
      this.#events.set(key, JSON.stringify(payload));
      if (fault === "dropped-after-effect" || fault === "error-after-effect")
        throw new Error("the store stopped after it wrote");
      return { ok: true, outcome };
    },
    find: async (_, { workflow, topic, messageId, payload }) => {
      const found = this.#events.get(`${workflow}/${topic}/${messageId}`);
      if (found === undefined) return "not there";
      return found === JSON.stringify(payload) ? "there" : "other";
    },
  };

  effects(): number {
    return this.#effects;
  }
  breakWith(fault: Fault): void {
    this.#fault = fault;
  }
  heal(): void {
    this.#fault = undefined;
  }
  held(): Promise<void> {
    return new Promise(() => {});
  }
  release(): void {}
  async [Symbol.asyncDispose](): Promise<void> {}
}

/** The one that the connector of this moment passes its events to. */
let events = new Events();
const connector = workflowConnector({
  publish: (from, event) => events.passing.publish(from, event),
  find: (from, event) => events.passing.find(from, event),
});

connectorSuite({
  connector,
  tool: "publish",
  input: (n) => ({ workflow: "billing", topic: "invoice.due", messageId: `i-${n}`, payload: { n } }),
  outside: async () => (events = new Events()),
  cannot,
});
