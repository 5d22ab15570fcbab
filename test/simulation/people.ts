/**
 * People around the host: they publish, decide, deploy, pause, and are sometimes wrong. What they were told was done is
 * remembered here, outside every life of the host, so that it can be asked for at the end.
 */
import type { ApprovalScope } from "../../host/core/approval.ts";
import type { GrantMode, Write } from "../../host/core/change.ts";
import type { Decision } from "../../host/core/resolve.ts";
import { accessChange } from "../../host/engine/access.ts";
import type { Engine } from "../../host/engine/engine.ts";
import { feed } from "../../host/engine/feed.ts";
import type { By, Decided, Expectation } from "../../host/engine/operator.ts";
import { scriptsOf } from "../../host/engine/scripts.ts";
import type { Store } from "../../host/ports/store.ts";
import type { Disk } from "./disk.ts";
import type { Kernel } from "./kernel.ts";
import { nextEdition, type Program } from "./programs.ts";
import { CONNECTION_NAMES } from "./sim-access.ts";
import { MUTATIONS, type SimWorld } from "./sim-world.ts";

/** One life of the host, as people meet it. */
export interface Life {
  engine: Engine;
  store: Store;
}

type Row = Record<string, unknown>;

export const ACTS = [
  "decide",
  "decide",
  "decide",
  "pause",
  "run now",
  "skip delivery",
  "renew delivery",
  "deploy",
  "publish",
  "publish",
  "reconnect",
  "archive",
  "edit state",
] as const;
/** In a world that is not steady. */
export const RESTLESS_ACTS = ["configure", "rebind", "grant", "grant", "two at once", "two at once"] as const;
export type Act = (typeof ACTS)[number] | (typeof RESTLESS_ACTS)[number];

const ALLOWED_MS = 400_000;

/** Answered by a decision about a run; the ids it was about. */
interface Answered {
  decision: Decision;
  row: number | undefined;
  subjects: string[];
}

export class People {
  /** Notes of acts that were acknowledged. */
  readonly acknowledged = new Set<string>();
  onAcknowledged: (fact: string) => void = () => {};
  problem: (message: string) => void = () => {};
  readonly published = new Set<string>();
  readonly answers: Answered[] = [];
  /** `workflow/consumer/id`: may have no effect, or more than one. */
  readonly excused = new Set<string>();
  readonly repeated = new Set<string>();
  /** Consumers whose events were given back without a trigger. */
  readonly released = new Set<string>();
  readonly dropped = new Set<string>();
  readonly archived = new Set<string>();
  readonly #kernel: Kernel;
  readonly #disk: Disk;
  readonly #world: SimWorld;
  readonly #programs: Map<string, Program>;
  readonly #allowed: readonly Act[];
  #notes = 0;
  #orders = 0;
  /** Of those, the ones that nobody has woken since. */
  readonly #asleep = new Set<string>();

  constructor(
    kernel: Kernel,
    disk: Disk,
    world: SimWorld,
    programs: Map<string, Program>,
    allowed: readonly Act[],
  ) {
    this.#kernel = kernel;
    this.#disk = disk;
    this.#world = world;
    this.#programs = programs;
    this.#allowed = allowed;
  }

  /** Now and then somebody does something, as long as this life lasts. */
  async meddle(life: Life, goesOn: () => boolean): Promise<void> {
    const { dice } = this.#kernel;
    while (this.#allowed.length > 0) {
      await this.#wait(dice.between(5_000, 90_000));
      if (!goesOn()) return;
      const workflow = dice.pick([...this.#programs.keys()]);
      const known = this.#workflow(workflow);
      if (known) this.#world.strange(known["id"] as number);
      await this.#act(dice.pick(this.#allowed), workflow, life);
    }
  }

  /** Everybody tells the truth, until nothing waits for a person. */
  async mend(life: Life): Promise<void> {
    this.#world.revoked = false;
    for (const name of this.released) this.#asleep.add(name);
    for (let round = 0; ; round++) {
      for (const workflow of this.#programs.keys()) await this.#mendWorkflow(workflow, life);
      if (round >= 2) for (const name of this.#asleep) await this.#wake(name, life);
      await this.#wait(20_000);
    }
  }

  /** Nobody has anything left to do. */
  get areDone(): boolean {
    return this.#asleep.size === 0;
  }

  async #wait(ms: number): Promise<void> {
    await this.#kernel.later(ms, "somebody looks", () => undefined);
  }

  async #mendWorkflow(name: string, life: Life): Promise<void> {
    const workflow = this.#workflow(name);
    if (!workflow) return;
    const id = workflow["id"] as number;
    const { operator } = life.engine;
    const by = { by: "healer", note: this.#note() };
    if (workflow["paused"] === 1) await operator.resume(id, by);
    if (workflow["archived"] === 1) await operator.unarchive(id, by);
    if (workflow["mode"] === "step") await operator.setMode(id, "auto", by);
    const run = this.#openRun(id);
    if (!run || run["status"] === "active" || run["ready_at"] !== null) return;
    if (run["pause_reason"] === "permission") return this.#grant(id, "allow", by, life);
    if (run["pause_reason"] === "auth" || run["pause_reason"] === "step")
      return void (await (run["pause_reason"] === "auth"
        ? operator.unblock(id, "auth", by)
        : operator.setMode(id, "auto", by)));
    if (run["status"] === "failed:logic") return this.#deploy(name, life, false);
    const decision = this.#truth(run);
    if (decision) await this.#decide(run, decision, life);
  }

  #truth(run: Row): Decision | undefined {
    const row = run["row"] as number | null;
    switch (run["row_status"]) {
      case "needs_reconcile":
        return undefined;
      case "indeterminate":
        return { action: this.#happened(row) ? "applied" : "not-applied" };
      case "proposed":
        return { action: run["pause_reason"] === "approval" ? "approve" : "retry" };
      default:
        return { action: "retry" };
    }
  }

  #happened(row: number | null): boolean {
    return row !== null && (this.#world.decisions.get(row)?.effects ?? 0) > 0;
  }

  async #act(act: Act, name: string, life: Life): Promise<void> {
    const workflow = this.#workflow(name);
    if (!workflow) return;
    const id = workflow["id"] as number;
    const { dice } = this.#kernel;
    const by = { by: "person", note: this.#note() };
    this.#kernel.count(act);
    switch (act) {
      case "decide": {
        const run = this.#openRun(id);
        if (run && run["status"] !== "active") await this.#decide(run, this.#opinion(run), life);
        return;
      }
      case "pause": {
        const { operator } = life.engine;
        if (workflow["paused"] === 1 || dice.hits(0.3))
          return this.#acknowledge(by.note, await operator.resume(id, by));
        return this.#acknowledge(by.note, await operator.pause(id, by, { abort: dice.hits(0.4) }));
      }
      case "archive": {
        const verb = workflow["archived"] === 1 ? "unarchive" : "archive";
        if (verb === "archive") this.#giveBack(name);
        return this.#acknowledge(by.note, await life.engine.operator[verb](id, by));
      }
      case "edit state": {
        const [handler] = this.#all("SELECT name, kind, state_json FROM handlers WHERE workflow = ?", id);
        if (!handler) return;
        const who = { name: handler["name"] as string, kind: handler["kind"] as "producer" };
        const same = handler["state_json"] as string | null;
        return this.#acknowledge(by.note, await life.engine.operator.editState(id, who, same, by));
      }
      case "run now": {
        const handlers = this.#all("SELECT name FROM handlers WHERE workflow = ? AND orphaned = 0", id);
        const named = dice.hits(0.5) ? undefined : (dice.pick(handlers)["name"] as string);
        return this.#acknowledge(by.note, await life.engine.operator.runNow(id, named, by));
      }
      case "skip delivery": {
        const delivery = this.#someDelivery(id, ["pending", "reserved"]);
        if (!delivery) return;
        this.excused.add(subjectOf(name, delivery));
        return this.#acknowledge(
          by.note,
          await life.engine.operator.skipDelivery(delivery["id"] as number, by),
        );
      }
      case "renew delivery":
        return this.#renew(name, id, by, life);
      case "deploy":
        return this.#deploy(name, life, dice.hits(0.5));
      case "publish": {
        // One after the other: some arrive while the run that the first one triggered looks at its events.
        for (let left = dice.between(1, 6); left > 0; left--) {
          await this.#publish(name, id, life);
          if (dice.hits(0.5)) await this.#wait(dice.below(10_000));
        }
        return;
      }
      case "configure": {
        // New secrets come with it: who was not let in may be now.
        this.#world.access.configure(dice.pick(CONNECTION_NAMES));
        this.#world.revoked = false;
        return this.#acknowledge(by.note, await life.engine.operator.unblock(id, "auth", by));
      }
      case "rebind":
        await this.#access(id, [this.#world.access.bind(dice.pick(CONNECTION_NAMES))], by, life);
        return this.#letOn(id, by, life);
      case "grant": {
        // Somebody says yes while somebody else takes the grant back, or gives it anew.
        const run = this.#openRun(id);
        const yes = run?.["pause_reason"] === "approval" && dice.hits(0.6);
        const said = yes ? this.#decide(run, { action: "approve" }, life) : undefined;
        // A store that breaks fails both; the grant, which is awaited first, says so.
        said?.catch(() => {});
        if (yes) await this.#wait(dice.below(3));
        await this.#grant(id, dice.pick(["allow", "approve", "approve", "deny"] as const), by, life);
        return void (await said);
      }
      case "two at once":
        return this.#twoAtOnce(id, life);
      case "reconnect":
        this.#world.revoked = false;
        return this.#acknowledge(by.note, await life.engine.operator.unblock(id, "auth", by));
    }
  }

  /** What somebody would say about this run: mostly sensible, sometimes wrong. */
  #opinion(run: Row): Decision {
    const { dice } = this.#kernel;
    const status = run["row_status"] as string | null;
    if (status === "needs_reconcile" || status === "indeterminate") {
      if (dice.hits(0.3)) return { action: "check" };
      if (dice.hits(0.15)) return { action: "skip" };
      const truth = this.#happened(run["row"] as number | null);
      return { action: truth !== dice.hits(0.25) ? "applied" : "not-applied" };
    }
    if (status === "proposed" && run["pause_reason"] === "approval") {
      // Without a draw of its own: what the known seeds found stays where it was found.
      const beyond = this.#beyond(run);
      if (dice.hits(0.7)) return { action: "approve", ...beyond };
      return { action: "reject", deliveries: dice.hits(0.5) ? "skip" : "release" };
    }
    if (dice.hits(0.7)) return { action: "retry" };
    const deliveries = dice.pick(["release", "skip", "dead"] as const);
    return { action: "close", deliveries, ...(dice.hits(0.3) ? { force: true } : {}) };
  }

  #beyond(run: Row): { scope?: ApprovalScope } {
    const id = Number(run["id"]);
    if (id % 4 === 0) return { scope: { next: 2 } };
    const restless = this.#allowed.some((one) => one === "grant" || one === "two at once");
    return restless && id % 4 === 1 ? { scope: { untilMs: this.#kernel.nowMs() + ALLOWED_MS } } : {};
  }

  /** Every tool that changes something; runs that waited for it go on. */
  async #grant(workflow: number, mode: GrantMode, by: By & { note: string }, life: Life): Promise<void> {
    const { dice } = this.#kernel;
    // Mostly about what somebody waits for: that is where a grant may come too late, or too early.
    const waiting = this.#openRun(workflow)?.["tool"] as string | null | undefined;
    const all = Object.keys(MUTATIONS);
    const tools = mode === "allow" ? all : [waiting && dice.hits(0.8) ? waiting : dice.pick(all)];
    const writes = tools.map((tool) => this.#world.access.grant(workflow, tool, mode));
    await this.#access(workflow, writes, by, life);
    await this.#letOn(workflow, by, life);
  }

  /** A run that waited to be let in tries again, whether anything has become better or not. */
  async #letOn(workflow: number, by: By, { engine }: Life): Promise<void> {
    const waitsFor = this.#openRun(workflow)?.["pause_reason"];
    if (waitsFor !== "auth" && waitsFor !== "permission") return;
    this.#world.revoked = false;
    await engine.operator.unblock(workflow, waitsFor, by);
  }

  async #access(workflow: number, writes: Write[], by: By & { note: string }, life: Life): Promise<void> {
    const { store, engine } = life;
    const change = accessChange(workflow, writes, { ...by, atMs: this.#kernel.nowMs() });
    const { ok } = await store.apply(change, { level: "durable", fence: store.fence });
    this.#acknowledge(by.note, { ok });
    engine.poke();
  }

  /** Two operators look at the same run and answer: one is heard, and the other is told who was. (24) */
  async #twoAtOnce(workflow: number, life: Life): Promise<void> {
    const run = this.#openRun(workflow);
    if (!run || run["status"] === "active") return;
    const seen = { revision: run["revision"] as number };
    const first = this.#decide(run, this.#opinion(run), life, seen);
    first.catch(() => {}); // Heard below, with the second.
    if (this.#kernel.dice.hits(0.5)) await this.#wait(this.#kernel.dice.below(3_000));
    const both = await Promise.all([first, this.#decide(run, this.#opinion(run), life, seen)]);
    const won = both.filter((one) => one.ok);
    if (won.length > 1) this.problem(`invariant 24: run ${String(run["id"])} was decided about twice`);
    const [lost] = both.filter((one) => !one.ok);
    this.#kernel.count(`two at once, ${won.length} heard`);
    if (won.length === 1 && lost && !lost.ok && lost.code === "changed" && !lost.first)
      this.problem(
        `invariant 24: who was too late about run ${String(run["id"])} does not hear who was first`,
      );
  }

  async #decide(run: Row, decision: Decision, life: Life, seen: Expectation = {}): Promise<Decided> {
    const note = this.#note();
    const subjects = this.#subjects(run);
    const row = (run["row"] as number | null) ?? undefined;
    const detail = "deliveries" in decision ? ` ${decision.deliveries}` : "";
    this.#kernel.note(`person: ${decision.action}${detail} about run ${String(run["id"])}`);
    this.#kernel.count(`decision ${decision.action}${detail}`);
    this.answers.push({ decision, row, subjects });
    this.#excuse(decision, subjects);
    // With nothing to skip or to dead-letter, a close gives back as well.
    if ("deliveries" in decision && (decision.deliveries === "release" || subjects.length === 0))
      this.released.add(`${String(run["workflow_name"])}/${String(run["handler_name"])}`);
    const { operator } = life.engine;
    const decided = await operator.decide(run["id"] as number, decision, { by: "person", note }, seen);
    this.#acknowledge(note, decided);
    return decided;
  }

  /** Whether the act is accepted or not: it may have been applied without anybody having heard. */
  #excuse({ action }: Decision, subjects: string[]): void {
    if (action === "check" || action === "retry" || action === "approve") return;
    for (const one of subjects) {
      if (action !== "not-applied") this.excused.add(one);
    }
  }

  async #renew(name: string, workflow: number, by: By & { note: string }, life: Life): Promise<void> {
    const delivery = this.#someDelivery(workflow, ["consumed", "skipped", "dead"]);
    if (!delivery) return;
    this.repeated.add(subjectOf(name, delivery));
    this.excused.add(subjectOf(name, delivery));
    const id = delivery["id"] as number;
    const { operator } = life.engine;
    const again = delivery["status"] === "consumed";
    this.#kernel.count(again ? "reprocess" : "requeue");
    const renewed = again ? operator.reprocess(id, by) : operator.requeue(id, by, "not-applied");
    this.#acknowledge(by.note, await renewed);
  }

  async #deploy(name: string, life: Life, daring: boolean): Promise<void> {
    const program = nextEdition(this.#kernel.dice, this.#programs.get(name) as Program, daring);
    const before = this.#programs.get(name) as Program;
    for (const consumer of Object.keys(before.consumers))
      if (!program.consumers[consumer]) this.dropped.add(`${name}/${consumer}`);
    this.#programs.set(name, program);
    this.#kernel.note(`person: deploys edition ${program.edition} of ${name}`);
    this.#kernel.count("deployed");
    const note = this.#note();
    const orphans = this.#kernel.dice.hits(0.5) ? "keep" : "skip";
    const made = await life.engine.deploys.deploy({ ...uploadOf(program), note, orphans });
    if (made.ok && made.outcome !== "unchanged") this.#acknowledge(note, { ok: true });
    life.engine.poke();
  }

  async #publish(name: string, workflow: number, life: Life): Promise<void> {
    const [topic] = (this.#programs.get(name) as Program).inlets;
    if (topic === undefined) return;
    const { dice } = this.#kernel;
    const kind = this.#orders === 0 || dice.hits(0.6) ? "new" : dice.pick(["same", "changed"] as const);
    const n = kind === "new" ? ++this.#orders : dice.between(1, this.#orders + 1);
    this.#kernel.count(`publish ${kind}`);
    const payload = JSON.stringify({ n, revision: kind === "changed" ? this.#notes++ : 0 });
    const scripts = scriptsOf(life.store);
    const parts = { store: life.store, clock: this.#kernel, scripts };
    const incoming = { topic, messageId: `o${n}`, payload };
    const fed = await feed(parts, workflow, incoming);
    if (fed.ok) {
      this.published.add(`${name}/${topic}/o${n}`);
      this.onAcknowledged(`${workflow}/${topic}/o${n}`);
    }
    life.engine.poke();
  }

  /** What an archive closes is given back without a trigger. */
  #giveBack(name: string): void {
    this.archived.add(name);
    for (const consumer of Object.keys((this.#programs.get(name) as Program).consumers))
      this.released.add(`${name}/${consumer}`);
    const workflow = this.#workflow(name);
    const run = workflow && this.#openRun(workflow["id"] as number);
    if (run) for (const one of this.#subjects(run)) this.excused.add(one);
  }

  async #wake(consumer: string, life: Life): Promise<void> {
    const [name, handler] = consumer.split("/") as [string, string];
    const gone = !(this.#programs.get(name) as Program).consumers[handler];
    const workflow = this.#workflow(name);
    if (gone || !workflow) return void this.#asleep.delete(consumer);
    const by = { by: "healer", note: this.#note() };
    const woken = await life.engine.operator.runNow(workflow["id"] as number, handler, by, {
      kind: "consumer",
    });
    if (woken.ok) this.#asleep.delete(consumer);
  }

  #acknowledge(note: string, decided: { ok: boolean; message?: string }): void {
    if (decided.ok) {
      this.acknowledged.add(note);
      this.onAcknowledged(note);
    }
    this.#kernel.note(decided.ok ? `person was told: done` : `person was told: ${decided.message ?? "no"}`);
  }

  #note(): string {
    this.#world.humanActs++;
    return `act ${++this.#notes}`;
  }

  #workflow(name: string): Row | undefined {
    return this.#all(
      "SELECT id, paused, archived, mode FROM workflows WHERE name = ? AND active_version > 0",
      name,
    )[0];
  }

  #openRun(workflow: number): Row | undefined {
    return this.#all(
      `SELECT r.id, r.revision, r.status, r.pause_reason, r.ready_at, r.handler, h.name AS handler_name, w.name AS workflow_name,
         m.id AS row, m.status AS row_status, m.tool
       FROM runs r JOIN handlers h ON h.id = r.handler JOIN workflows w ON w.id = r.workflow
       LEFT JOIN mutations m ON m.owner_run = r.id WHERE r.workflow = ? AND r.open = 1`,
      workflow,
    )[0];
  }

  /** Everything that the run holds, or held and gave back. */
  #subjects(run: Row): string[] {
    return this.#all(
      `SELECT e.message_id, h.name AS handler FROM deliveries d JOIN events e ON e.id = d.event JOIN handlers h ON h.id = d.handler
       WHERE d.reserved_by = @run OR d.released_by = @run`,
      { run: run["id"] as number },
    ).map((one) => subjectOf(run["workflow_name"] as string, one));
  }

  #someDelivery(workflow: number, statuses: string[]): Row | undefined {
    const found = this.#all(
      `SELECT d.id, d.status, e.message_id, h.name AS handler FROM deliveries d JOIN events e ON e.id = d.event
       JOIN handlers h ON h.id = d.handler WHERE e.workflow = ?`,
      workflow,
    ).filter((one) => statuses.includes(one["status"] as string));
    return found.length > 0 ? this.#kernel.dice.pick(found) : undefined;
  }

  #all(sql: string, ...args: unknown[]): Row[] {
    return this.#disk.statement(sql).all(...args) as Row[];
  }
}

const subjectOf = (workflow: string, delivery: Row): string =>
  `${workflow}/${String(delivery["handler"])}/${String(delivery["message_id"])}`;

export function uploadOf(program: Program) {
  return {
    namespace: "default",
    name: program.name,
    upload: { source: JSON.stringify(program), language: "js" as const, file: `${program.name}.js` },
    by: "author",
  };
}
