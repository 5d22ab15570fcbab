/**
 * What is due → which run starts, and in which order across workflows (02 §1.8, 1.12, 3.3). One timer for the earliest
 * due time, a slow sweep behind it, a bounded number of slots. Which handler of a workflow runs is `core/trigger.ts`.
 *
 * H1. A run is active only while it holds a slot.
 * H2. Round robin over namespaces, then priority, then longest waiting: `core/turns.ts`.
 * H3. Between due times the store is not asked, but for the sweep.
 * H4. A workflow that seemed due and had nothing to do is left alone until the sweep, or until somebody does something.
 */
import type { Change } from "../core/change.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { NamespaceId, RunId, WorkflowId } from "../core/ids.ts";
import { claim } from "../core/retry.ts";
import { isApproved } from "../core/run.ts";
import { type Attempt, begunBy, start } from "../core/start.ts";
import { choose } from "../core/trigger.ts";
import { inTurn, type Waiting } from "../core/turns.ts";
import type { Applied, DueWorkflow, Level } from "../ports/store.ts";
import { reanchor, reanchorAll } from "./clock-jump.ts";
import type { Executor } from "./executor.ts";
import type { Parts, PolicyOwner } from "./parts.ts";
import { Priorities } from "./priorities.ts";
import type { Reconciler } from "./reconciler.ts";
import { within } from "./timeout.ts";
import { isFused } from "./unit.ts";

const SWEEP_MS = 30_000;
const LOOK_AHEAD = 4;
/** With more than a look ahead waiting, so many are looked at, but only now and then. */
const BACKLOG = 2_000;
const BACKLOG_EVERY_MS = 250;
const CLOCK_STEP_MS = 1_000;
/** At a stop: for a call beyond its own time, and for scripts once no call is on its way. */
const PATIENCE_MS = 5_000;
const TRIES = 3;

interface Running {
  done: Promise<void>;
  abort: AbortController;
}

/** A first step that was decided: the run to drive once it is applied. */
interface Begun {
  change: Change;
  level: Level;
  run?: RunId;
  /** Its facts once the step is applied, where they follow from it. */
  facts?: (now: Applied) => RunFacts | undefined;
  /** An approved call: applied, it is on its way. */
  called?: boolean;
}

export class Scheduler {
  readonly #parts: Parts;
  readonly #executor: Executor;
  readonly #reconciler: Reconciler;
  readonly #slots: number;
  readonly #priorities: Priorities;
  readonly #running = new Map<WorkflowId, Running>();
  readonly #barren = new Map<WorkflowId, number>();
  readonly #served = new Map<NamespaceId, number>();
  #turn = 0;
  #backlog: DueWorkflow[] = [];
  #backlogReadMs = Number.NEGATIVE_INFINITY;
  #forget: () => void = () => {};
  #ticking: Promise<void> | undefined;
  #again = false;
  #stopped = true;
  /** Wall minus monotonic time: falls when the clock is set back. */
  #offsetMs: number | undefined;
  #setBack: boolean;

  constructor(parts: Parts, executor: Executor, reconciler: Reconciler, slots: number) {
    this.#parts = parts;
    this.#executor = executor;
    this.#reconciler = reconciler;
    this.#slots = slots;
    this.#priorities = new Priorities(parts);
    this.#setBack = false;
  }

  start(): void {
    this.#stopped = false;
    const nowMs = this.#parts.clock.nowMs();
    // The last life ended later than now: the clock was set back in between.
    this.#setBack = this.#parts.downtime.some(({ fromMs }) => fromMs > nowMs + CLOCK_STEP_MS);
    this.poke();
  }

  /** Somebody did something: what seemed to have nothing to do may have. */
  poke(): void {
    this.#barren.clear();
    this.#look();
  }

  /** Ends a run early, but never a call in flight: the engine only stops waiting for the script. */
  abort(workflow: WorkflowId): void {
    this.#running.get(workflow)?.abort.abort();
  }

  /** Claims nothing more, lets calls in flight come to their end, and then ends the scripts that still run (02 §7). */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#forget();
    await this.#ticking;
    const { clock } = this.#parts;
    const calls = [this.#executor.mutator.inFlight, this.#reconciler.inFlight];
    const all = async () => {
      await Promise.all([...this.#running.values()].map((one) => one.done));
      await this.#reconciler.idle();
    };
    do {
      const longestMs = Math.max(...calls.map((one) => one.leftMs));
      await within(clock, longestMs + PATIENCE_MS, Promise.all(calls.map((one) => one.idle())));
      if ((await within(clock, PATIENCE_MS, all())).inTime) return;
      // A script has come to its call in the meantime.
    } while (calls.some((one) => one.leftMs > 0));
    for (const { abort } of this.#running.values()) abort.abort();
    await within(clock, CLOCK_STEP_MS, all());
  }

  get active(): number {
    return this.#running.size;
  }

  #look(): void {
    if (this.#stopped) return;
    this.#again = true;
    this.#ticking ??= this.#tick()
      .catch((error: unknown) => this.#warn(`scheduling: ${messageOf(error)}`))
      .finally(() => {
        this.#ticking = undefined;
        if (this.#again) this.#look();
        else void this.#sleep().catch((error: unknown) => this.#warn(`scheduling: ${messageOf(error)}`));
      });
  }

  async #tick(): Promise<void> {
    this.#forget();
    while (this.#again && !this.#stopped) {
      this.#again = false;
      await this.#watchClock();
      await this.#reconciler.checkDue();
      const free = this.#slots - this.#running.size;
      if (free <= 0) continue;
      const nowMs = this.#parts.clock.nowMs();
      const waiting = await this.#priorities.of(await this.#waiting(nowMs), nowMs);
      const served = (namespace: NamespaceId) => this.#served.get(namespace) ?? 0;
      if (!this.#stopped) for (const one of inTurn(waiting, served, nowMs, free)) this.#serve(one); // (H2)
    }
  }

  /** Until the next due time; whoever makes something due earlier pokes (H3). */
  async #sleep(): Promise<void> {
    if (this.#stopped) return;
    const { store, clock } = this.#parts;
    const next = (await store.nextDueAt()) ?? Number.POSITIVE_INFINITY;
    if (this.#stopped || this.#ticking) return;
    this.#forget();
    const nowMs = clock.nowMs();
    const atMs = next > nowMs ? Math.min(next, nowMs + SWEEP_MS) : nowMs + SWEEP_MS; // (H4)
    this.#forget = clock.at(atMs, () => this.#look());
  }

  async #waiting(nowMs: number): Promise<DueWorkflow[]> {
    const { store, clock } = this.#parts;
    for (const [workflow, untilMs] of this.#barren) if (untilMs <= nowMs) this.#barren.delete(workflow);
    const limit = this.#slots * LOOK_AHEAD + this.#barren.size;
    const due = await store.due(nowMs, limit);
    const monotonicMs = clock.monotonicMs();
    if (due.length < limit) this.#backlog = [];
    else if (monotonicMs - this.#backlogReadMs >= BACKLOG_EVERY_MS) {
      this.#backlog = await store.due(nowMs, BACKLOG);
      this.#backlogReadMs = monotonicMs;
    }
    const known = new Set(due.map((one) => one.workflow));
    const more = this.#backlog.filter((one) => !known.has(one.workflow));
    return [...due, ...more].filter(
      ({ workflow }) => !this.#running.has(workflow) && !this.#barren.has(workflow),
    );
  }

  #serve({ workflow, namespace }: Waiting): void {
    this.#served.set(namespace, ++this.#turn);
    this.#priorities.forget(workflow);
    this.#backlog = this.#backlog.filter((one) => one.workflow !== workflow);
    const abort = new AbortController();
    const done = this.#run(workflow, abort.signal)
      .catch((error: unknown) => {
        this.#warn(`workflow ${workflow}: ${messageOf(error)}`);
        return false;
      })
      .then((moved) => {
        this.#running.delete(workflow);
        if (!moved) this.#barren.set(workflow, this.#parts.clock.nowMs() + SWEEP_MS); // (H4)
        this.#look();
      });
    this.#running.set(workflow, { done, abort }); // (H1)
  }

  /** False when nothing came of it. */
  async #run(id: WorkflowId, signal: AbortSignal): Promise<boolean> {
    const { store } = this.#parts;
    for (let tries = 0; tries < TRIES; tries++) {
      const workflow = await store.workflow(id);
      const begun = workflow && (await this.#begin(workflow, this.#parts.clock.nowMs()));
      if (begun === "changed") continue;
      if (!begun || this.#stopped) return false;
      const result = await store.apply(begun.change, { level: begun.level, fence: store.fence });
      if (!result.ok) continue;
      if (begun.run !== undefined) await this.#drive(begun.run, begun.facts?.(result), signal, begun.called);
      if (this.#setBack) await this.#replan(id);
      return true;
    }
    return false;
  }

  async #drive(id: RunId, known: RunFacts | undefined, signal: AbortSignal, called = false): Promise<void> {
    const facts = known ?? (await this.#parts.store.run(id));
    if (!facts) return;
    this.#parts.tell({ kind: "run.started", facts });
    await this.#executor.drive(facts, signal, called);
  }

  async #begin(workflow: WorkflowFacts, nowMs: number): Promise<Begun | "changed" | undefined> {
    const choice = choose(workflow, nowMs);
    if (choice.next === "nothing") return undefined;
    if (choice.next === "start") {
      const { handler, trigger } = choice;
      const attempt = this.#attempt({ workflow, handler });
      const change = start(workflow, handler, trigger, attempt, nowMs);
      if (workflow.mode !== "auto") return { change, level: "committed" };
      const facts = (now: Applied) => begunBy({ workflow, handler }, change, now);
      return { change, level: "committed", run: attempt.id, facts };
    }
    const facts = await this.#parts.store.run(choice.run);
    // What was chosen before a pause or a deploy is chosen anew after it.
    if (facts && facts.workflow.revision !== workflow.revision) return "changed";
    return facts && this.#claim(facts, nowMs);
  }

  async #claim(facts: RunFacts, nowMs: number): Promise<Begun> {
    const { run, mutation } = facts;
    const attempt = this.#attempt(facts);
    const approved = isApproved(run) && mutation;
    const change = approved
      ? await this.#executor.mutator.claim({ ...facts, mutation }, attempt)
      : claim(facts, attempt, nowMs);
    const called = change.writes.some((write) => write.do === "send.create");
    const active = activeAfter(change);
    return {
      change,
      level: called ? "durable" : "committed",
      called,
      ...(active === undefined ? {} : { run: active }),
    };
  }

  #attempt(of: PolicyOwner): Attempt {
    const { store, policies } = this.#parts;
    const policy = policies.recorded(of);
    const { deadlineMs } = policies.effective(of.handler.kind === "producer" ? "producer" : "prepare", of);
    return {
      id: store.newId(),
      host: store.fence.incarnation,
      fused: isFused(this.#parts, of),
      ...(policy === undefined ? {} : { policy }),
      ...(deadlineMs === "none" ? {} : { deadlineMs }),
      ...(of.workflow.mode === "step" ? { hold: store.newId() } : {}),
    };
  }

  async #watchClock(): Promise<void> {
    const { clock } = this.#parts;
    const offsetMs = clock.nowMs() - clock.monotonicMs();
    const back = this.#offsetMs !== undefined && offsetMs < this.#offsetMs - CLOCK_STEP_MS;
    const first = this.#offsetMs === undefined && this.#setBack;
    this.#offsetMs = offsetMs;
    if (!back && !first) return;
    this.#setBack = true;
    await reanchorAll(this.#parts);
  }

  /** Its chain was open when the clock was set back: its plan may still be of the old time. */
  async #replan(id: WorkflowId): Promise<void> {
    const workflow = await this.#parts.store.workflow(id);
    if (workflow) await reanchor(this.#parts, workflow);
  }

  #warn(message: string): void {
    this.#parts.tell({ kind: "engine.warning", message, atMs: this.#parts.clock.nowMs() });
  }
}

/** The run that the Change makes active, if it does. */
function activeAfter({ writes }: Change): RunId | undefined {
  for (const write of writes) {
    if (write.do === "run.create" && write.run.status === "active") return write.run.id;
    if (write.do === "run.set" && write.set.status === "active") return write.id;
  }
  return undefined;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
