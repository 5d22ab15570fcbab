/**
 * Handlers as data: tiny programs, generated, so that what must follow from them can be computed without the engine. An
 * uploaded script's source is its program; a version keeps its own.
 */
import type { Manifest, Schedule } from "../../host/core/workflow.ts";
import type { Compilation, Upload } from "../../host/ports/sandbox.ts";
import type { Chance } from "./kernel.ts";
import { MUTATIONS, type MutationTool, STEADY_TOOLS } from "./sim-world.ts";

export interface ProducerProgram {
  schedule: Schedule;
  /** Each run publishes `count` events to each of these, with the same ids. */
  topics: string[];
  count: number;
}

export interface ConsumerProgram {
  /** One topic, or two of which it takes only ids that both have. */
  topics: string[];
  /** At most so many events per run; 0 never reserves. */
  batch: number;
  /** Declines until so many are pending. */
  needs?: number;
  tool?: MutationTool;
  /** Makes no call for a batch whose first event's number divides by this. */
  abstains?: number;
  /** One event per reserved one. */
  publishes?: string;
  /** Asks to be woken so long after each run. */
  wakeMs?: number;
  reads?: boolean;
}

export interface Program {
  name: string;
  /** Grows with every version. */
  edition: number;
  producers: Record<string, ProducerProgram>;
  consumers: Record<string, ConsumerProgram>;
  /** Topics that the outside publishes to. */
  inlets: string[];
  /** The consumer `extra`, while it is dropped. */
  spare?: ConsumerProgram;
  /** Nobody touches its connections and grants, and it makes no call that compares. */
  steady?: boolean;
  /** This version throws here, every time. */
  flaw?: { handler: string; unit: "producer" | "prepare" | "mutate" | "next" };
}

const EVERY_10_MIN: Schedule = { cron: "*/10 * * * *", timezone: "UTC" };
const EVERY_5_MIN: Schedule = { interval: "5m", intervalMs: 300_000 };

/** One handler of each kind there is, for the crash at every step. */
export const SHAPES: Record<string, ConsumerProgram> = {
  "looked up": { topics: ["made"], batch: 2, tool: "post", publishes: "followed" },
  "with a key": { topics: ["made"], batch: 1, tool: "put", publishes: "followed" },
  "without a check": { topics: ["made"], batch: 3, tool: "blind" },
  approved: { topics: ["made"], batch: 2, tool: "ask", publishes: "followed" },
  "no mutation": { topics: ["made"], batch: 2, publishes: "followed" },
  "no call": { topics: ["made"], batch: 2, tool: "post", abstains: 1, publishes: "followed" },
  "only prepare": { topics: ["made"], batch: 2 },
  declining: { topics: ["made"], batch: 0 },
  waking: { topics: ["made"], batch: 1, wakeMs: 60_000, reads: true },
  conditional: { topics: ["made"], batch: 2, tool: "swap", publishes: "followed" },
  correlating: { topics: ["made", "paid"], batch: 2, tool: "post" },
};

export function shapeProgram(shape: string): Program {
  const first = SHAPES[shape] as ConsumerProgram;
  const consumers: Record<string, ConsumerProgram> = { first };
  if (first.publishes !== undefined) consumers["second"] = { topics: [first.publishes], batch: 5 };
  const topics = first.topics.includes("paid") ? ["made", "paid"] : ["made"];
  return {
    name: "w0",
    edition: 1,
    producers: { poll: { schedule: EVERY_10_MIN, topics, count: 2 } },
    consumers,
    inlets: [],
  };
}

/** `keyed`: every call carries a key. `patient`: somebody waits until there is enough, and always has a last word. */
export function generate(
  dice: Chance,
  name: string,
  { keyed, patient, steady }: { keyed: boolean; patient: boolean; steady: boolean },
): Program {
  const producers: Program["producers"] = {
    poll: {
      schedule: dice.hits(0.5) ? EVERY_5_MIN : EVERY_10_MIN,
      topics: dice.hits(0.3) ? ["made", "paid"] : ["made"],
      count: dice.between(1, 4),
    },
  };
  if (dice.hits(0.3)) producers["tick"] = { schedule: EVERY_10_MIN, topics: ["ticked"], count: 1 };
  const inlets = dice.hits(0.6) || patient ? ["ordered"] : [];
  const consumers: Program["consumers"] = { first: consumer(dice, steady, ["made"], "followed") };
  if (consumers["first"]?.publishes !== undefined) consumers["second"] = consumer(dice, steady, ["followed"]);
  if (producers["poll"]?.topics.includes("paid"))
    consumers["match"] = { topics: ["made", "paid"], batch: 2, ...maybeTool(dice, steady, 0.5) };
  if (producers["tick"]) consumers["idle"] = { topics: ["ticked"], batch: 0, wakeMs: 90_000 };
  if (inlets.length > 0)
    consumers["desk"] = {
      ...consumer(dice, steady, ["ordered"], "delivered"),
      ...(dice.hits(0.4) ? { needs: dice.between(2, 4) } : {}),
    };
  if (patient) consumers["desk"] = { topics: ["ordered"], batch: 5, needs: 4, publishes: "delivered" };
  if (dice.hits(0.3)) consumers["extra"] = consumer(dice, steady, ["made"]);
  if (keyed) for (const one of Object.values(consumers)) if (one.tool) one.tool = "put";
  const program: Program = { name, edition: 1, producers, consumers, inlets, steady };
  if (dice.hits(0.25)) {
    const handler = dice.pick(Object.keys(consumers));
    const { publishes, tool } = consumers[handler] as ConsumerProgram;
    const units = ["prepare", ...(tool ? ["mutate"] : []), ...(publishes ? ["next"] : [])] as const;
    program.flaw = { handler, unit: dice.pick(units) as "prepare" | "mutate" | "next" };
  }
  return program;
}

function consumer(dice: Chance, steady: boolean, topics: string[], publishes?: string): ConsumerProgram {
  return {
    topics,
    batch: dice.between(1, 5),
    ...maybeTool(dice, steady, 0.7),
    ...(publishes !== undefined && dice.hits(0.6) ? { publishes } : {}),
    ...(dice.hits(0.15) ? { needs: 2 } : {}),
    ...(dice.hits(0.2) ? { wakeMs: dice.between(20_000, 200_000) } : {}),
    ...(dice.hits(0.3) ? { reads: true } : {}),
  };
}

function maybeTool(
  dice: Chance,
  steady: boolean,
  chance: number,
): { tool?: MutationTool; abstains?: number } {
  if (!dice.hits(chance)) return {};
  const tools: readonly MutationTool[] = steady ? STEADY_TOOLS : (Object.keys(MUTATIONS) as MutationTool[]);
  return { tool: dice.pick(tools), ...(dice.hits(0.2) ? { abstains: 2 } : {}) };
}

/** The next version: mended, and perhaps with a handler less or more; one that comes back is as it was. */
export function nextEdition(dice: Chance, last: Program, daring: boolean): Program {
  const { flaw: _, ...program } = last;
  const edition = program.edition + 1;
  if (!daring) return { ...program, edition };
  const { extra, ...others } = program.consumers;
  if (extra) return { ...program, edition, consumers: others, spare: extra };
  return {
    ...program,
    edition,
    consumers: { ...others, extra: program.spare ?? consumer(dice, program.steady ?? true, ["made"]) },
  };
}

const parsed = new Map<string, Program>();

export function programOf(source: string): Program {
  let program = parsed.get(source);
  if (!program) {
    if (parsed.size > 500) parsed.clear();
    program = JSON.parse(source) as Program;
    parsed.set(source, program);
  }
  return program;
}

export function compile(upload: Upload): Compilation {
  const program = programOf(upload.source);
  return {
    ok: true,
    problems: [],
    script: {
      workflow: program.name,
      hash: `${program.name}.${program.edition}`,
      file: upload.file,
      source: upload.source,
      code: "",
      manifest: manifestOf(program),
      scope: "frozen",
    },
  };
}

function manifestOf({ name, producers, consumers, inlets }: Program): Manifest {
  const topics = new Set(inlets);
  for (const one of Object.values(producers)) for (const topic of one.topics) topics.add(topic);
  for (const one of Object.values(consumers)) {
    for (const topic of one.topics) topics.add(topic);
    if (one.publishes !== undefined) topics.add(one.publishes);
  }
  return {
    name,
    description: "",
    connections: { shop: "http", bank: "http" },
    topics: Object.fromEntries([...topics].map((topic) => [topic, { output: true }])),
    params: {},
    hooks: {},
    producers: Object.fromEntries(
      Object.entries(producers).map(([producer, one]) => [
        producer,
        { schedule: one.schedule, publishes: one.topics },
      ]),
    ),
    consumers: Object.fromEntries(
      Object.entries(consumers).map(([consumer, one]) => [
        consumer,
        {
          subscribes: one.topics,
          publishes: one.publishes === undefined ? [] : [one.publishes],
          hasMutate: one.tool !== undefined,
          hasNext: one.publishes !== undefined,
        },
      ]),
    ),
  };
}

/** What `prepare` hands on, and what a call's arguments say. */
export interface Chosen {
  consumer: string;
  ids: string[];
}

export const followUp = (consumer: string, id: string): string => `${consumer}:${id}`;

export const numberOf = (messageId: string): number => Number(/\d+$/.exec(messageId)?.[0] ?? 0);
