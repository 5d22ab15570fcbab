/**
 * Every kind of step a store is asked to write, in one story: a retry, an approval, an unknown outcome, a recovery, a
 * person's words, a producer. Each step is decided on what the store says, and waited for as long as the engine will.
 */
import {
  awaitApproval,
  commit,
  emitting,
  intended,
  mutated,
  prepared,
  sending,
} from "../../host/core/advance.ts";
import type { Change } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import { fail } from "../../host/core/fail.ts";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Mutation, Send } from "../../host/core/mutation.ts";
import { type DeliveryFacts, editState, pause, resume, skipDelivery } from "../../host/core/operate.ts";
import { recover } from "../../host/core/recover.ts";
import { decide } from "../../host/core/resolve.ts";
import { claim, claimApproved } from "../../host/core/retry.ts";
import { checked, unknown } from "../../host/core/settle.ts";
import type { Level, Store } from "../../host/ports/store.ts";
import { begin, handlerOf, ledgerRow, must, publish } from "../support/chain.ts";

type Facts = RunFacts & { mutation: Mutation };

export class LongChain {
  readonly #store: Store;
  readonly #workflow: number;
  #nowMs = 2_000;

  constructor(store: Store, workflow: number) {
    this.#store = store;
    this.#workflow = workflow;
  }

  async play(): Promise<void> {
    await publish(this.#store, this.#workflow, ["a", "b", "c", "d"], this.#now());
    await this.#retriedAndApproved();
    await this.#unknownThenApplied();
    await this.#crashedThenClosed();
    await this.#operated();
    await this.#produced();
  }

  /** Every step has a time of its own. */
  #now(): number {
    return ++this.#nowMs;
  }

  async #facts(run: number): Promise<Facts> {
    return (await this.#store.run(run)) as Facts;
  }

  async #act(run: number, level: Level, verb: (facts: Facts, atMs: number) => Change): Promise<void> {
    await must(this.#store, verb(await this.#facts(run), this.#now()), level);
  }

  #attempt() {
    return { id: this.#store.newId(), host: this.#store.fence.incarnation, fused: true };
  }

  #send(facts: Facts, atMs: number): Send {
    return {
      n: facts.mutation.sends + 1,
      atMs,
      bytesHash: "b",
      idempotencyKey: facts.mutation.idempotencyKey,
    };
  }

  async #decided(run: number): Promise<void> {
    const { handler } = await this.#facts(run);
    const [first] = await this.#store.pending(handler.id, "order", { limit: 1 });
    const reservations = first ? [first.delivery] : [];
    await this.#act(run, "applied", (facts, atMs) =>
      prepared(facts, { json: '{"n":1}', reservations }, atMs),
    );
    await this.#act(run, "applied", (facts, atMs) =>
      intended(facts, ledgerRow(this.#store, facts, atMs), atMs),
    );
  }

  async #sent(run: number): Promise<void> {
    await this.#decided(run);
    await this.#act(run, "durable", (facts, atMs) => sending(facts, this.#send(facts, atMs), atMs));
  }

  async #finished(run: number): Promise<void> {
    if ((await this.#facts(run)).run.phase === "mutated")
      await this.#act(run, "applied", (facts, atMs) => emitting(facts, atMs));
    const publication = { topic: "booked", messageId: `b-${run}`, payload: "{}", inputs: [], hops: 1 };
    await this.#act(run, "committed", (facts, atMs) =>
      commit(
        facts,
        { state: '{"seen":1}', publications: [{ publication, subscribers: [] }], inputs: [] },
        settleSchedule(facts, "ran", []),
        atMs,
      ),
    );
  }

  #failed(error: "transient" | "logic") {
    return (facts: Facts, atMs: number) =>
      fail(
        facts,
        {
          units: facts.run.phase === "preparing" ? ["prepare", "mutate"] : [],
          inbox: this.#store.newId(),
          down: [],
          failure: {
            error: { class: error, code: "x", message: "no" },
            policy: { maxRetries: 3, retryOn: ["transient"], neverRetryOn: [], onFailure: "halt" },
            retries: 0,
            delayMs: 1,
            pastBoundary: false,
          },
        },
        atMs,
      );
  }

  #deciding(atMs: number) {
    return { by: "ada", atMs, down: [], canCheck: true, inbox: this.#store.newId() };
  }

  async #retriedAndApproved(): Promise<void> {
    const { run } = await begin(this.#store, this.#workflow, this.#now());
    await this.#act(run.id, "committed", this.#failed("transient"));
    const again = this.#attempt();
    await this.#act(run.id, "committed", (facts, atMs) => claim(facts, again, atMs));
    await this.#decided(again.id);
    await this.#act(again.id, "durable", (facts, atMs) => awaitApproval(facts, this.#store.newId(), atMs));
    await this.#act(again.id, "durable", (facts, atMs) =>
      decide(facts, { action: "approve" }, this.#deciding(atMs)),
    );
    await this.#act(again.id, "durable", (facts, atMs) =>
      claimApproved(
        facts,
        { ...again, id: again.id },
        {
          send: this.#send(facts, atMs),
          isGranted: true,
          grantVersion: 0,
          connection: "bank",
          configVersion: 1,
        },
        atMs,
      ),
    );
    await this.#act(again.id, "committed", (facts, atMs) =>
      mutated(facts, { status: "applied", result: '{"ok":1}' }, atMs, "{}"),
    );
    await this.#finished(again.id);
  }

  async #unknownThenApplied(): Promise<void> {
    const { run } = await begin(this.#store, this.#workflow, this.#now());
    await this.#sent(run.id);
    const error = { class: "transient" as const, code: "timeout", message: "no answer" };
    await this.#act(run.id, "durable", (facts, atMs) =>
      unknown(facts, { error, answer: "{}", canCheck: true, inbox: this.#store.newId() }, atMs),
    );
    const policy = { maxAttempts: 5, delayMs: 1 };
    for (const answer of [{ says: "unsure" as const }, { says: "applied" as const, result: "{}" }])
      await this.#act(run.id, "durable", (facts, atMs) =>
        checked(facts, answer, policy, this.#store.newId(), atMs),
      );
    await this.#act(run.id, "committed", (facts, atMs) => claim(facts, this.#attempt(), atMs));
    await this.#finished(run.id);
  }

  async #crashedThenClosed(): Promise<void> {
    const { run } = await begin(this.#store, this.#workflow, this.#now());
    await this.#sent(run.id);
    const next = this.#attempt();
    const error = { class: "internal" as const, code: "host-lost", message: "gone" };
    const crash = { error, attempt: next, canCheck: true, inbox: this.#store.newId() };
    await this.#act(run.id, "durable", (facts, atMs) => recover(facts, crash, atMs) as Change);
    await this.#act(next.id, "durable", (facts, atMs) =>
      decide(facts, { action: "not-applied" }, this.#deciding(atMs)),
    );
    const last = this.#attempt();
    await this.#act(next.id, "committed", (facts, atMs) => claim(facts, last, atMs));
    await this.#act(last.id, "committed", this.#failed("logic"));
    await this.#act(last.id, "durable", (facts, atMs) =>
      decide(facts, { action: "close", deliveries: "skip" }, this.#deciding(atMs)),
    );
  }

  async #operated(): Promise<void> {
    const store = this.#store;
    const workflow = async () => (await store.workflow(this.#workflow)) as WorkflowFacts;
    const operator = () => ({ by: "ada", atMs: this.#now() });
    await must(store, pause(await workflow(), operator()), "durable");
    await must(store, resume(await workflow(), operator()), "durable");
    const book = handlerOf(await workflow(), "book");
    await must(store, editState(await workflow(), book, '{"edited":1}', operator()), "durable");
    const [first] = await store.pending(book.id, "order", { limit: 1 });
    if (!first) throw new Error("nothing left to skip");
    const delivery = (await store.delivery(first.delivery)) as DeliveryFacts;
    await must(store, skipDelivery(delivery, operator()) as Change, "durable");
  }

  async #produced(): Promise<void> {
    const { run } = await begin(this.#store, this.#workflow, this.#now());
    if (run.kind !== "producer") throw new Error("the producer is due");
    const book = handlerOf((await this.#store.workflow(this.#workflow)) as WorkflowFacts, "book");
    const input = { id: this.#store.newId(), source: "shop", type: "order", key: "1", title: "Order 1" };
    const publication = { topic: "order", messageId: "new", payload: "{}", inputs: [input.id], hops: 0 };
    await this.#act(run.id, "committed", (facts, atMs) =>
      commit(
        facts,
        { publications: [{ publication, subscribers: [book.id] }], inputs: [input] },
        settleSchedule(facts, "ran", []),
        atMs,
      ),
    );
  }
}
