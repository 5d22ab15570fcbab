/**
 * When everything has healed: what the programs must have brought about, computed from them, from what the world counted
 * and from what people were told; compared with what is there.
 */
import { inspect } from "../../host/store/doctor.ts";
import { verify } from "../../host/store/verify.ts";
import type { Disk } from "./disk.ts";
import type { Kernel } from "./kernel.ts";
import type { People } from "./people.ts";
import { type Chosen, type ConsumerProgram, followUp, type Program } from "./programs.ts";
import { abstain } from "./sim-sandbox.ts";
import type { SimWorld } from "./sim-world.ts";

type Row = Record<string, unknown>;

export interface Scene {
  kernel: Kernel;
  disk: Disk;
  world: SimWorld;
  people: People;
  programs: Map<string, Program>;
}

export function judge(scene: Scene): string[] {
  const problems: string[] = [];
  const { disk, people } = scene;
  for (const { invariant, message } of inspect(disk.db)) problems.push(`invariant ${invariant}: ${message}`);
  for (const { message } of verify(disk.db)) problems.push(`invariant 31: ${message}`);
  const all = (sql: string, ...args: unknown[]) => disk.statement(sql).all(...args) as Row[];
  for (const run of all("SELECT id, status, pause_reason, phase, error_json FROM runs WHERE open = 1"))
    problems.push(`invariant 29: still open: ${JSON.stringify(run)}`);
  const noted = new Set(all("SELECT note FROM audit").map((row) => row["note"]));
  for (const note of people.acknowledged)
    if (!noted.has(note)) problems.push(`invariant 30: ${note} was acknowledged and is lost`);
  const commits = all("SELECT 1 FROM runs WHERE status = 'committed' LIMIT 1");
  if (commits.length === 0) problems.push("no work was done");
  for (const [name, program] of scene.programs) problems.push(...judgeWorkflow(scene, name, program, all));
  return problems;
}

type All = (sql: string, ...args: unknown[]) => Row[];

function judgeWorkflow(scene: Scene, name: string, program: Program, all: All): string[] {
  const problems: string[] = [];
  const [workflow] = all("SELECT id, due_at FROM workflows WHERE name = ?", name);
  if (!workflow) return [`${name} is not there`];
  const id = workflow["id"] as number;
  const dueAt = workflow["due_at"] as number | null;
  if (dueAt !== null && dueAt < scene.kernel.nowMs() - 60_000)
    problems.push(`invariant 29: ${name} has been due since ${dueAt}, now is ${scene.kernel.nowMs()}`);
  const events = all("SELECT topic, message_id, payload_json FROM events WHERE workflow = ?", id);
  const exists = new Map(events.map((one) => [`${String(one["topic"])}/${String(one["message_id"])}`, one]));
  for (const one of scene.people.published)
    if (one.startsWith(`${name}/`) && !exists.has(one.slice(name.length + 1)))
      problems.push(`invariant 12: ${one} was acknowledged and is lost`);
  for (const [producer, made] of Object.entries(program.producers))
    problems.push(...judgeProducer(scene, { name, id, producer }, made, exists, all));
  for (const [consumer, one] of Object.entries(program.consumers))
    problems.push(...judgeConsumer(scene, { name, id, consumer }, one, { events, exists }, all));
  return problems;
}

/** Its state is the count of what it published, in whole runs; every point of a cron schedule has one fate. */
function judgeProducer(
  { kernel, people }: Scene,
  { name, id: workflow, producer }: { name: string; id: number; producer: string },
  { topics, count, schedule }: Program["producers"][string],
  exists: Map<string, Row>,
  all: All,
): string[] {
  const problems: string[] = [];
  const [handler] = all(
    "SELECT id, state_json FROM handlers WHERE workflow = ? AND name = ? AND kind = 'producer'",
    workflow,
    producer,
  );
  if (!handler) return [`producer ${producer} is not there`];
  const { made } = JSON.parse((handler["state_json"] as string | null) ?? '{"made":0}') as { made: number };
  const runs = all(
    "SELECT count(*) AS n FROM runs WHERE handler = ? AND status = 'committed'",
    handler["id"],
  )[0]?.["n"] as number;
  if (made !== runs * count)
    problems.push(`invariant 16: ${producer} committed ${runs} runs of ${count}, its state says ${made}`);
  for (const topic of topics) {
    const numbers = [...exists.keys()].filter((key) => key.startsWith(`${topic}/m`));
    if (numbers.length !== made)
      problems.push(`invariant 14: ${producer} made ${made}, ${numbers.length} are there in ${topic}`);
  }
  if ("cron" in schedule && !people.archived.has(name)) {
    const spacing = 600_000;
    const [first] = all("SELECT min(created_at) AS at FROM versions WHERE workflow = ?", workflow);
    const points = Math.floor(kernel.nowMs() / spacing) - Math.floor((first?.["at"] as number) / spacing);
    const slots = all(
      "SELECT sum(count) AS n, max(to_at) AS last FROM slots WHERE handler = ?",
      handler["id"],
    )[0];
    const open =
      Math.floor(kernel.nowMs() / spacing) * spacing > ((slots?.["last"] as number | null) ?? 0) ? 1 : 0;
    const answered = (slots?.["n"] as number | null) ?? 0;
    if (answered !== points && answered + open !== points)
      problems.push(`invariant 19: ${producer} passed ${points} points, ${answered} have a fate`);
  }
  return problems;
}

interface Named {
  name: string;
  id: number;
  consumer: string;
}

function judgeConsumer(
  scene: Scene,
  { name, id, consumer }: Named,
  program: ConsumerProgram,
  { events, exists }: { events: Row[]; exists: Map<string, Row> },
  all: All,
): string[] {
  const problems: string[] = [];
  const { people } = scene;
  const label = `${name}/${consumer}`;
  const deliveries = all(
    `SELECT d.status, d.reprocess_of, e.message_id, e.topic FROM deliveries d JOIN events e ON e.id = d.event
     JOIN handlers h ON h.id = d.handler WHERE h.workflow = ? AND h.name = ? AND h.kind = 'consumer'`,
    id,
    consumer,
  );
  const first = deliveries.filter((one) => one["reprocess_of"] === null);
  const subscribed = events.filter((one) => program.topics.includes(one["topic"] as string));
  if (consumer !== "extra" && first.length !== subscribed.length)
    problems.push(`invariant 12: ${label} got ${first.length} deliveries of ${subscribed.length} events`);
  problems.push(...judgePending(label, program, deliveries));
  if (program.wakeMs !== undefined) problems.push(...judgeWake(scene, label, id, consumer, all));
  const effects = effectsOf(scene, id, consumer);
  for (const one of deliveries) {
    const messageId = one["message_id"] as string;
    const subject = `${label}/${messageId}`;
    const isMain = one["topic"] === program.topics[0] && one["reprocess_of"] === null;
    if (!isMain || people.repeated.has(subject)) continue;
    problems.push(
      ...judgeEffects(scene, subject, program, one["status"] === "consumed", effects.get(messageId)),
    );
    if (program.publishes === undefined || one["status"] !== "consumed" || people.excused.has(subject))
      continue;
    const follows = exists.get(`${program.publishes}/${followUp(consumer, messageId)}`);
    if (!follows) problems.push(`invariant 14: nothing followed from ${subject}`);
    else problems.push(...judgeOutcome(subject, program, follows, messageId));
  }
  return problems;
}

/** 17, 29: nothing that it would take is left lying. */
function judgePending(label: string, program: ConsumerProgram, deliveries: Row[]): string[] {
  if (program.batch === 0) return [];
  const pending = (topic: string) =>
    new Set(
      deliveries
        .filter((one) => one["status"] === "pending" && one["topic"] === topic)
        .map((one) => one["message_id"] as string),
    );
  const [first = new Set<string>(), ...others] = program.topics.map(pending);
  const takes = [...first].filter((one) => others.every((ids) => ids.has(one)));
  if (takes.length < (program.needs ?? 1)) return [];
  return [`invariant 17: ${label} has left ${takes.length} events lying (${takes.slice(0, 5).join(", ")})`];
}

/** A consumer that asks to be woken after every run has a time to be woken at, and it has not passed. */
function judgeWake({ kernel }: Scene, label: string, workflow: number, consumer: string, all: All): string[] {
  const [row] = all(
    `SELECT h.wake_at, r.status FROM handlers h JOIN runs r ON r.handler = h.id
     WHERE h.workflow = ? AND h.name = ? AND h.kind = 'consumer' ORDER BY r.id DESC LIMIT 1`,
    workflow,
    consumer,
  );
  if (row?.["status"] !== "committed") return [];
  const wakeAt = row["wake_at"] as number | null;
  if (wakeAt === null) return [`invariant 14: ${label} asked to be woken and is not`];
  return wakeAt < kernel.nowMs() - 1_000 ? [`invariant 29: ${label} was to be woken at ${wakeAt}`] : [];
}

/** What the world knows about an event's consumer. */
interface Effects {
  total: number;
  /** Of decisions that a person has said did not happen. */
  denied: number;
}

function effectsOf({ world, people }: Scene, workflow: number, consumer: string): Map<string, Effects> {
  const denied = new Set(
    people.answers.filter((one) => one.decision.action === "not-applied").map((one) => one.row),
  );
  const effects = new Map<string, Effects>();
  for (const one of world.decisions.values()) {
    const chosen = JSON.parse(one.args) as Chosen;
    if (one.workflow !== workflow || chosen.consumer !== consumer || one.effects === 0) continue;
    for (const id of chosen.ids) {
      const sum = effects.get(id) ?? { total: 0, denied: 0 };
      sum.total += one.effects;
      if (denied.has(one.row)) sum.denied += one.effects;
      effects.set(id, sum);
    }
  }
  return effects;
}

/** 10: one effect for each event, none that nobody asked for, and a second only after a wrong word. */
function judgeEffects(
  { people }: Scene,
  subject: string,
  { tool, abstains }: ConsumerProgram,
  consumed: boolean,
  { total, denied }: Effects = { total: 0, denied: 0 },
): string[] {
  if (total > 1 + denied) return [`invariant 10: ${subject} had ${total} effects, ${denied} of them denied`];
  const wanted = tool !== undefined && abstains === undefined && consumed && !people.excused.has(subject);
  if (wanted && total === 0) return [`invariant 10: ${subject} had no effect`];
  return tool === undefined && total > 0 ? [`invariant 11: ${subject} had an effect nobody decided on`] : [];
}

/** `next` was told what became of the call. */
function judgeOutcome(subject: string, program: ConsumerProgram, follows: Row, messageId: string): string[] {
  const { outcome } = JSON.parse(follows["payload_json"] as string) as { outcome: string };
  const calls = program.tool !== undefined && !(program.abstains !== undefined);
  if (calls && outcome !== "applied") return [`invariant 7: next was told "${outcome}" about ${subject}`];
  if (program.tool === undefined && outcome !== "none")
    return [`invariant 7: next was told "${outcome}" about ${subject}, which makes no call`];
  const never = program.abstains === 1 && abstain(1, [messageId]);
  return never && outcome !== "none" ? [`invariant 7: next was told "${outcome}" about ${subject}`] : [];
}
