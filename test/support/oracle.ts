/**
 * What the execution model (02) says must happen, as plain objects and plain rules, for one workflow. Written from the
 * text and on purpose knows nothing of the host's code: the model test runs both and compares.
 */

export interface OracleVersion {
  /** name → interval in ms */
  producers: Record<string, number>;
  consumers: Record<string, { subscribes: string[]; mutate: boolean; next: boolean }>;
}

type Trigger = { reason: string; at: number };

export interface OracleHandler {
  name: string;
  kind: "producer" | "consumer";
  order: number;
  gone: boolean;
  state: string | null;
  seen: number;
  trigger: Trigger | null;
  wake: number | null;
  next: number | null;
  anchor: number | null;
}

interface OracleEvent {
  topic: string;
  id: string;
  payload: string;
  revision: number;
  seq: number;
  created: number;
  updated: number;
  deliveries: OracleDelivery[];
}

export interface OracleDelivery {
  n: number;
  event: OracleEvent;
  handler: string;
  status: "pending" | "reserved" | "consumed" | "skipped" | "dead";
  holder: number | null;
  releasedBy: number | null;
  seq: number;
  changed: number;
  attempts: number;
  pinned: number;
  late: boolean;
}

export interface OracleRun {
  n: number;
  handler: string;
  version: number;
  attempt: number;
  retryOf: number | null;
  successor: number | null;
  phase: string;
  status: string;
  reason: string | null;
  open: boolean;
  ready: number | null;
  outcome: string | null;
  prepared: string | null;
  result: string | null;
  wake: number | null;
  retries: number;
  crashes: number;
  crashPhase: string | null;
  /** A person ended it early: neither counts among the crashes nor breaks their row. */
  aborted: boolean;
  /** A person or a deploy has acted since this attempt stopped. */
  decided: boolean;
  chainStart: number;
  slot: { first: number; newest: number } | null;
  manual: boolean;
}

export interface OracleRow {
  n: number;
  origin: number;
  owner: number;
  status: string;
  sends: number;
  checks: number;
  nextCheck: number | null;
  ended: number | null;
  result: string | null;
}

export interface OracleSlot {
  handler: string;
  from: number;
  to: number;
  count: number;
  fate: string;
  run: number | null;
}

export interface Publishing {
  topic: string;
  id: string;
  payload: string;
}

export interface OraclePolicy {
  retries: number;
  onFailure: "halt" | "skip" | "deadLetter";
}

export const SETTLE_MS = 30_000;
export const MOST_CHECKS = 3;
export const CHECK_DELAY_MS = 10_000;
export const RETRY_DELAY_MS = 5_000;

const OVER = ["paused:transient", "failed:logic", "failed:internal", "committed", "crashed"];
const UNKNOWN = ["in_flight", "needs_reconcile", "indeterminate"];

export class Oracle {
  now = 0;
  seq = 0;
  paused = false;
  versions: OracleVersion[] = [];
  /** Number of the active version, from 1; 0 before the first deploy. */
  active = 0;
  handlers: OracleHandler[] = [];
  events: OracleEvent[] = [];
  deliveries: OracleDelivery[] = [];
  runs: OracleRun[] = [];
  rows: OracleRow[] = [];
  slots: OracleSlot[] = [];

  // Looking

  get open(): OracleRun | undefined {
    return this.runs.find((run) => run.open);
  }
  row(run: OracleRun): OracleRow | undefined {
    return this.rows.findLast((row) => row.owner === run.n);
  }
  held(run: OracleRun): OracleDelivery[] {
    return this.deliveries.filter((one) => one.status === "reserved" && one.holder === run.n);
  }
  pendingOf(name: string): OracleDelivery[] {
    return this.deliveries
      .filter((one) => one.handler === name && one.status === "pending")
      .sort((a, b) => a.seq - b.seq || a.n - b.n);
  }
  consumers(): OracleHandler[] {
    return this.handlers.filter((one) => one.kind === "consumer" && !one.gone);
  }
  handler(name: string): OracleHandler {
    return this.handlers.find((one) => one.name === name) as OracleHandler;
  }
  version(number: number): OracleVersion {
    return this.versions[number - 1] as OracleVersion;
  }
  isUnknown(run: OracleRun): boolean {
    return UNKNOWN.includes(this.row(run)?.status ?? "");
  }
  isPast(run: OracleRun): boolean {
    return ["applied", "skipped"].includes(this.row(run)?.status ?? "");
  }
  /** When a new fact last changed a pending delivery that the consumer has not seen (1.4). */
  private unseen(handler: OracleHandler): OracleDelivery | undefined {
    return this.deliveries
      .filter((one) => one.handler === handler.name && one.status === "pending" && one.changed > handler.seen)
      .sort((a, b) => a.changed - b.changed)[0];
  }
  handlerDue(handler: OracleHandler): number | null {
    if (handler.gone) return null;
    const times = [handler.trigger?.at ?? null];
    if (handler.kind === "producer") times.push(handler.next);
    else times.push(handler.wake, this.unseen(handler)?.event.updated ?? null);
    const known = times.filter((at) => at !== null);
    return known.length > 0 ? Math.min(...known) : null;
  }
  due(): number | null {
    if (this.paused) return null;
    const open = this.open;
    if (open) return open.status === "active" ? null : open.ready;
    const times = this.handlers.map((one) => this.handlerDue(one)).filter((at) => at !== null);
    return times.length > 0 ? Math.min(...times) : null;
  }

  /** 1.8 */
  choose(): { start: string; reason: string } | { claim: number } | undefined {
    if (this.paused) return undefined;
    const open = this.open;
    if (open) {
      const ready = open.status !== "active" && open.ready !== null && open.ready <= this.now;
      return ready ? { claim: open.n } : undefined;
    }
    const best = (found: { name: string; reason: string; since: number; order: number }[]) => {
      const first = found.sort((a, b) => a.since - b.since || a.order - b.order)[0];
      return first && { start: first.name, reason: first.reason };
    };
    return best(this.waitingConsumers()) ?? best(this.waitingProducers());
  }
  private waitingConsumers() {
    return this.consumers().flatMap((one) => {
      const fresh = this.unseen(one);
      const why = one.trigger
        ? one.trigger
        : fresh
          ? { reason: "event", at: fresh.event.updated }
          : one.wake !== null && one.wake <= this.now
            ? { reason: "wake", at: one.wake }
            : undefined;
      if (!why) return [];
      const oldest = this.pendingOf(one.name)[0];
      return [
        { name: one.name, reason: why.reason, since: oldest?.event.created ?? why.at, order: one.order },
      ];
    });
  }
  private waitingProducers() {
    return this.handlers
      .filter((one) => one.kind === "producer" && !one.gone)
      .flatMap((one) => {
        if (one.trigger)
          return [{ name: one.name, reason: one.trigger.reason, since: one.trigger.at, order: one.order }];
        if (one.next === null || one.next > this.now) return [];
        return [{ name: one.name, reason: "due", since: one.next, order: one.order }];
      });
  }

  // Deploying and publishing

  /** 1.10 */
  deploy(version: OracleVersion, orphans: "keep" | "skip" | { moveTo: string }): void {
    const before = this.active > 0 ? this.version(this.active) : undefined;
    const declared = [
      ...Object.keys(version.producers).map((name) => ({ name, kind: "producer" as const })),
      ...Object.keys(version.consumers).map((name) => ({ name, kind: "consumer" as const })),
    ];
    const dropped = this.handlers
      .filter((one) => !one.gone && !declared.some(({ name }) => name === one.name))
      .sort((a, b) => a.order - b.order);
    declared.forEach(({ name, kind }, order) => {
      let handler = this.handlers.find((one) => one.name === name);
      if (!handler) {
        handler = {
          name,
          kind,
          order,
          gone: false,
          state: null,
          seen: this.seq,
          trigger: null,
          wake: null,
          next: null,
          anchor: null,
        };
        this.handlers.push(handler);
      }
      handler.order = order;
      handler.gone = false;
      handler.trigger = { reason: "deploy", at: this.now };
      const interval = version.producers[name];
      if (kind === "producer" && interval !== undefined && before?.producers[name] !== interval) {
        handler.anchor = this.now;
        handler.next = this.now + interval;
      }
    });
    for (const handler of dropped) {
      handler.gone = true;
      handler.trigger = handler.wake = handler.next = null;
      this.orphans(handler, orphans);
    }
    const open = this.open;
    if (open && this.freedByDeploy(open)) {
      open.ready = this.now;
      open.decided = true;
    }
    this.versions.push(version);
    this.active = this.versions.length;
  }
  private freedByDeploy({ status, reason }: OracleRun): boolean {
    if (["paused:transient", "failed:logic", "crashed"].includes(status)) return true;
    return status === "paused:approval" && reason !== "approval" && reason !== "step";
  }

  /** 8 */
  publish({ topic, id, payload }: Publishing): void {
    const known = this.events.find((one) => one.topic === topic && one.id === id);
    if (!known) {
      const seq = ++this.seq;
      const event = {
        topic,
        id,
        payload,
        revision: 1,
        seq,
        created: this.now,
        updated: this.now,
        deliveries: [],
      };
      this.events.push(event);
      for (const [name, { subscribes }] of Object.entries(this.version(this.active).consumers))
        if (subscribes.includes(topic)) this.deliver(event, name, seq);
      return;
    }
    if (known.payload === payload) return;
    known.payload = payload;
    known.revision++;
    known.updated = this.now;
    for (const one of known.deliveries) if (one.status === "pending") one.changed = ++this.seq;
  }
  private deliver(event: OracleEvent, handler: string, seq: number): void {
    const one: OracleDelivery = {
      n: this.deliveries.length,
      event,
      handler,
      status: "pending",
      holder: null,
      releasedBy: null,
      seq,
      changed: seq,
      attempts: 1,
      pinned: 1,
      late: false,
    };
    this.deliveries.push(one);
    event.deliveries.push(one);
  }

  // A run, forward

  start(name: string): OracleRun {
    const handler = this.handler(name);
    const producer = handler.kind === "producer";
    const interval = this.version(this.active).producers[name];
    const due = producer && handler.next !== null && handler.next <= this.now ? handler.next : undefined;
    const run: OracleRun = {
      ...this.blank(name),
      phase: producer ? "executing" : "preparing",
      version: this.active,
      chainStart: this.now,
      manual: producer && handler.trigger !== null,
      slot:
        due === undefined || interval === undefined
          ? null
          : { first: due, newest: due + Math.floor((this.now - due) / interval) * interval },
    };
    this.runs.push(run);
    this.looked(handler);
    return run;
  }
  private blank(handler: string): OracleRun {
    return {
      n: this.runs.length,
      handler,
      version: 0,
      attempt: 1,
      retryOf: null,
      successor: null,
      phase: "",
      status: "active",
      reason: null,
      open: true,
      ready: null,
      outcome: null,
      prepared: null,
      result: null,
      wake: null,
      retries: 0,
      crashes: 0,
      crashPhase: null,
      aborted: false,
      decided: false,
      chainStart: 0,
      slot: null,
      manual: false,
    };
  }
  private looked(handler: OracleHandler): void {
    handler.trigger = null;
    if (handler.kind === "consumer") handler.seen = this.seq;
  }
  redo(run: OracleRun): void {
    this.handler(run.handler).seen = this.seq;
  }
  prepared(run: OracleRun, json: string, chosen: OracleDelivery[], wake: number | null): void {
    run.phase = "prepared";
    run.prepared = json;
    run.wake = wake;
    for (const one of chosen) {
      one.status = "reserved";
      one.holder = run.n;
      one.releasedBy = null;
      one.pinned = one.event.revision;
    }
  }
  withoutCall(run: OracleRun): void {
    run.phase = "mutated";
    run.outcome = "none";
  }
  intend(run: OracleRun): void {
    run.phase = "mutating";
    this.rows.push({
      n: this.rows.length,
      origin: run.n,
      owner: run.n,
      status: "proposed",
      sends: 0,
      checks: 0,
      nextCheck: null,
      ended: null,
      result: null,
    });
  }
  awaitApproval(run: OracleRun): void {
    run.decided = false;
    run.status = "paused:approval";
    run.reason = "approval";
  }
  send(run: OracleRun): void {
    const row = this.row(run) as OracleRow;
    row.status = "in_flight";
    row.sends++;
  }
  /** The row is settled and the run goes on: at once if it is active, else when it is claimed. */
  settled(run: OracleRun, outcome: "applied" | "skipped", result: string | null): void {
    const row = this.row(run) as OracleRow;
    row.status = run.outcome = outcome;
    row.ended = this.now;
    row.nextCheck = null;
    row.result = run.result = result;
    run.phase = "mutated";
    if (run.status === "active") return;
    run.ready = this.now;
    run.reason = null;
  }
  unknown(run: OracleRun, canCheck: boolean): void {
    const row = this.row(run) as OracleRow;
    run.status = "paused:reconciliation";
    run.decided = false;
    row.ended = this.now;
    if (canCheck) {
      row.status = "needs_reconcile";
      row.nextCheck = this.now;
      run.reason = "checking";
    } else this.giveUp(run, row);
  }
  private giveUp(run: OracleRun, row: OracleRow): void {
    row.status = run.reason = "indeterminate";
    row.nextCheck = null;
  }
  /** 5.2; what is proven not to have happened has failed under its own policy (5.1). */
  check(
    run: OracleRun,
    says: "applied" | "notApplied" | "unsure" | "auth",
    result: string | null,
    policy: OraclePolicy,
  ): void {
    const row = this.row(run) as OracleRow;
    if (says === "applied") return this.settled(run, "applied", result);
    if (says === "notApplied" && this.now - (row.ended ?? this.now) >= SETTLE_MS) {
      row.nextCheck = null;
      return this.fail(run, "call", "transient", policy);
    }
    if (says === "auth") {
      run.reason = "auth";
      row.nextCheck = null;
      return;
    }
    row.checks++;
    if (row.checks >= MOST_CHECKS) return this.giveUp(run, row);
    run.reason = "checking";
    row.nextCheck = this.now + CHECK_DELAY_MS;
  }
  private notApplied(run: OracleRun): void {
    const row = this.row(run) as OracleRow;
    row.status = "failed";
    row.nextCheck = null;
    run.status = "paused:transient";
    run.reason = "retrying";
    run.ready = this.now;
    this.release(run);
  }
  emit(run: OracleRun): void {
    run.phase = "emitting";
    run.outcome ??= "none";
  }
  /** 2.4, 1.5, 1.6, 1.3 */
  commit(run: OracleRun, publishing: Publishing[], state: string | null | undefined): void {
    const handler = this.handler(run.handler);
    const held = this.held(run);
    run.phase = run.status = "committed";
    run.open = false;
    this.settle(held, "consumed");
    for (const one of publishing) this.publish(one);
    if (state !== undefined) handler.state = state;
    if (handler.kind === "consumer") {
      handler.wake = run.wake;
      if (held.length > 0) this.more(handler);
    } else this.answer(run, "ran");
  }
  private settle(deliveries: OracleDelivery[], to: "consumed" | "skipped" | "dead"): void {
    for (const one of deliveries) {
      if (to === "consumed" && one.event.revision > one.pinned) one.late = true;
      one.status = to;
      one.holder = one.releasedBy = null;
    }
  }
  private release(run: OracleRun): void {
    for (const one of this.held(run)) {
      one.status = "pending";
      one.releasedBy = run.n;
      one.holder = null;
    }
  }
  private more(handler: OracleHandler): void {
    if (!handler.trigger && this.pendingOf(handler.name).length > 0)
      handler.trigger = { reason: "more", at: this.now };
  }
  /** What a chain's end means for its schedule. */
  private answer(run: OracleRun, fate: string): void {
    const handler = this.handler(run.handler);
    if (run.slot) {
      const { first, newest } = run.slot;
      const grid = this.version(run.version).producers[run.handler] as number;
      const slot = { handler: run.handler, run: run.n };
      if (first < newest)
        this.slots.push({
          ...slot,
          from: first,
          to: newest - grid,
          count: (newest - first) / grid,
          fate: "coalesced",
        });
      this.slots.push({ ...slot, from: newest, to: newest, count: 1, fate });
    }
    const interval = this.version(this.active).producers[run.handler];
    // A deploy has made a new plan since: it stands.
    if (interval === undefined || (handler.anchor ?? 0) > run.chainStart) return;
    if (run.manual || !run.slot) {
      handler.anchor = run.chainStart;
      handler.next = run.chainStart + interval;
    } else if (handler.next !== null && handler.next <= run.slot.newest)
      handler.next = run.slot.newest + interval;
  }

  // Failing

  /** 4, 3.1, 5.1. `unit` is what failed; a call that failed with proof is "call". */
  fail(
    run: OracleRun,
    unit: "producer" | "prepare" | "mutate" | "call" | "next",
    kind: string,
    policy: OraclePolicy,
  ): void {
    const row = this.row(run);
    const past = this.isPast(run);
    run.decided = false;
    if (["auth", "permission", "precondition"].includes(kind)) {
      run.status = "paused:approval";
      run.reason = kind;
      // Reconnected or granted, it goes on exactly where it stands (3.4).
      if (kind === "precondition") this.dropWork(run);
      else if (row?.status === "in_flight") row.status = "proposed";
      return;
    }
    if (kind === "transient" && run.retries < policy.retries) {
      run.status = "paused:transient";
      run.reason = "retrying";
      run.ready = this.now + RETRY_DELAY_MS;
      return this.dropWork(run);
    }
    const status = { transient: "paused:transient", logic: "failed:logic" }[kind] ?? "failed:internal";
    if (!past && unit !== "next" && policy.onFailure !== "halt") {
      if (policy.onFailure === "skip" && unit === "call") return this.settled(run, "skipped", null);
      if (policy.onFailure === "skip" && unit === "mutate") {
        run.phase = "mutated";
        run.outcome = "skipped";
        return;
      }
      const nothing = policy.onFailure === "deadLetter" && this.held(run).length === 0;
      if (!nothing) {
        run.status = status;
        if (row) row.status = "failed";
        return this.end(run, policy.onFailure === "deadLetter" ? "dead" : "release", "skipped");
      }
    }
    run.status = status;
    run.reason = status === "paused:transient" ? "retries_exhausted" : null;
    this.dropWork(run);
  }
  /** Before the boundary a stopped attempt leaves nothing behind. */
  private dropWork(run: OracleRun): void {
    if (this.isPast(run)) return;
    const row = this.row(run);
    if (row) row.status = "failed";
    this.release(run);
  }
  /** 1.7 */
  private end(run: OracleRun, deliveries: "release" | "skip" | "dead" | "consume", fate: string): void {
    const handler = this.handler(run.handler);
    const row = this.row(run);
    run.open = false;
    run.ready = null;
    if (row?.status === "proposed") row.status = "failed";
    if (handler.wake !== null && handler.wake <= run.chainStart) handler.wake = null;
    const given = this.deliveries.filter((one) => one.status === "pending" && one.releasedBy === run.n);
    const mine = [...this.held(run), ...(deliveries === "release" ? [] : given)];
    if (deliveries === "release") this.release(run);
    else {
      this.settle(mine, { skip: "skipped", dead: "dead", consume: "consumed" }[deliveries] as "skipped");
      if (mine.length > 0) this.more(handler);
    }
    if (handler.kind === "producer") this.answer(run, fate);
  }

  /** 7, 3.3 */
  crash(run: OracleRun, canCheck: boolean): void {
    const row = this.row(run);
    run.decided = false;
    if (row && UNKNOWN.includes(row.status)) {
      run.status = "crashed";
      const next = this.succeed(run, "mutating");
      next.status = "paused:reconciliation";
      next.version = run.version;
      next.crashes = 0;
      next.crashPhase = null;
      next.reason = "checking";
      row.owner = next.n;
      row.ended = this.now;
      row.status = "needs_reconcile";
      row.nextCheck = this.now;
      if (!canCheck) this.giveUp(next, row);
      return;
    }
    const inARow = (run.crashPhase === run.phase ? run.crashes : 0) + 1;
    run.status = "crashed";
    if (inARow >= 3) run.reason = "crash_loop";
    else run.ready = this.now;
    this.dropWork(run);
  }

  /** 1.11: ends a unit early, never a call in flight. */
  abort(run: OracleRun): boolean {
    if (this.isUnknown(run)) return false;
    run.status = "crashed";
    run.aborted = true;
    run.decided = false;
    run.ready = this.now;
    this.dropWork(run);
    return true;
  }

  // Going on

  /** 3.3, 3.4, 1.10: true when a call was approved and must leave with the claim. */
  claim(run: OracleRun): "goes-on" | "sends" | "new" | "closed" {
    const row = this.row(run);
    const first = run.phase === "preparing" || run.phase === "executing";
    const approved = run.status === "paused:approval" && run.reason === "approval";
    const resumable =
      run.version === this.active && run.reason !== "precondition" && run.reason !== "binding";
    const settled = run.status === "paused:reconciliation";
    if (!OVER.includes(run.status) && (approved || settled || resumable)) {
      if (run.decided) run.retries = 0;
      run.status = "active";
      run.reason = null;
      run.ready = null;
      run.decided = false;
      if (first) this.looked(this.handler(run.handler));
      if (!approved) return "goes-on";
      this.send(run);
      return "sends";
    }
    const past = this.isPast(run);
    if (!past && this.handler(run.handler).gone) {
      this.dropWork(run);
      this.end(run, "release", "failed");
      return "closed";
    }
    if (past) {
      const next = this.succeed(run, "emitting");
      const still = this.version(this.active).consumers[run.handler];
      next.version = still?.next ? this.active : run.version;
      (row as OracleRow).owner = next.n;
    } else {
      this.dropWork(run);
      const next = this.succeed(run, run.phase === "executing" ? "executing" : "preparing");
      next.version = this.active;
      this.looked(this.handler(run.handler));
    }
    return "new";
  }
  private crashesOf(run: OracleRun): Pick<OracleRun, "crashes" | "crashPhase"> {
    if (run.status !== "crashed" || run.decided) return { crashes: 0, crashPhase: null };
    if (run.aborted) return { crashes: run.crashes, crashPhase: run.crashPhase };
    return { crashes: run.crashPhase === run.phase ? run.crashes + 1 : 1, crashPhase: run.phase };
  }
  private succeed(run: OracleRun, phase: string): OracleRun {
    const crashed = run.status === "crashed";
    const copied = phase === "mutating" || phase === "emitting";
    const next: OracleRun = {
      ...this.blank(run.handler),
      phase,
      attempt: run.attempt + 1,
      retryOf: run.n,
      retries: run.decided ? 0 : crashed ? run.retries : run.retries + 1,
      ...this.crashesOf(run),
      chainStart: run.chainStart,
      slot: run.slot,
      manual: run.manual,
      ...(copied ? { prepared: run.prepared, result: run.result, outcome: run.outcome, wake: run.wake } : {}),
    };
    this.runs.push(next);
    run.open = false;
    run.ready = null;
    run.successor = next.n;
    if (copied) for (const one of this.held(run)) one.holder = next.n;
    return next;
  }

  // A person (6)

  mayDecide(run: OracleRun, action: string, canCheck: boolean, force: boolean): boolean {
    const row = this.row(run)?.status;
    if (!run.open) return false;
    const { status, reason } = run;
    if (action === "approve" || action === "reject")
      return (
        status === "paused:approval" && reason === "approval" && row === "proposed" && run.ready === null
      );
    if (action === "check") return (row === "needs_reconcile" || row === "indeterminate") && canCheck;
    if (["applied", "not-applied", "skip"].includes(action))
      return this.isUnknown(run) && status !== "active";
    if (action === "retry") {
      if (this.isUnknown(run)) return false;
      if (status === "paused:approval")
        return ["auth", "permission", "precondition", "binding"].includes(reason ?? "");
      return ["paused:transient", "failed:logic", "failed:internal", "crashed"].includes(status);
    }
    return status !== "active" && !this.isUnknown(run) && (!this.isPast(run) || force);
  }
  decide(
    run: OracleRun,
    action: string,
    deliveries: "release" | "skip" | "dead",
    result: string | null,
  ): void {
    const row = this.row(run);
    run.decided = true;
    if (action === "approve" || action === "retry") run.ready = this.now;
    else if (action === "applied") this.settled(run, "applied", result);
    else if (action === "skip" || (action === "reject" && deliveries === "skip"))
      this.settled(run, "skipped", null);
    else if (action === "not-applied") this.notApplied(run);
    else if (action === "check" && row) {
      row.status = "needs_reconcile";
      row.checks = 0;
      row.nextCheck = this.now;
      run.reason = "checking";
    } else if (action === "reject") this.end(run, "release", "failed");
    else this.end(run, this.isPast(run) ? "consume" : deliveries, "failed");
  }
  /** True when it was allowed. */
  skipDelivery(one: OracleDelivery): boolean {
    if (one.status === "pending") {
      this.settle([one], "skipped");
      return true;
    }
    const run = this.runs.find((each) => one.status === "reserved" && each.n === one.holder);
    if (!run || run.status === "active" || this.isUnknown(run) || this.isPast(run)) return false;
    this.settle([one], "skipped");
    this.end(run, "release", "failed");
    this.handler(run.handler).trigger = { reason: "requeued", at: this.now };
    return true;
  }
  requeue(one: OracleDelivery): boolean {
    if (one.status !== "dead" && one.status !== "skipped") return false;
    one.status = "pending";
    one.attempts++;
    one.changed = ++this.seq;
    return true;
  }
  reprocess(one: OracleDelivery): boolean {
    if (one.status !== "consumed") return false;
    this.deliver(one.event, one.handler, ++this.seq);
    return true;
  }
  /** 3.4, 5.2: what the run waited for is there again. */
  unblock(run: OracleRun, what: "auth" | "permission"): boolean {
    if (!run.open || run.reason !== what || run.ready !== null) return false;
    const row = this.row(run);
    run.decided = true;
    if (run.status === "paused:reconciliation" && row) {
      row.nextCheck = this.now;
      row.status = "needs_reconcile";
      run.reason = "checking";
    } else run.ready = this.now;
    return true;
  }
  /** 1.10 */
  settleOrphans(handler: OracleHandler, action: "keep" | "skip" | { moveTo: string }): boolean {
    if (!handler.gone || handler.kind !== "consumer") return false;
    this.orphans(handler, action);
    return true;
  }
  private orphans(handler: OracleHandler, action: "keep" | "skip" | { moveTo: string }): void {
    for (const one of this.pendingOf(handler.name))
      if (action === "skip") this.settle([one], "skipped");
      else if (action !== "keep") {
        one.handler = action.moveTo;
        one.releasedBy = null;
        one.changed = ++this.seq;
      }
  }
  runNow(name: string | undefined): boolean {
    if (this.open || this.paused) return false;
    const named = this.handlers.filter((one) =>
      name === undefined ? one.kind === "producer" && !one.gone : one.name === name && !one.gone,
    );
    for (const one of named)
      one.trigger = { reason: one.kind === "producer" ? "queued" : "woken", at: this.now };
    return named.length > 0;
  }
  editState(name: string, state: string | null): boolean {
    if (this.open?.handler === name) return false;
    this.handler(name).state = state;
    return true;
  }
}
