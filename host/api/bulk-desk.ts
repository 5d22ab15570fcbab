/**
 * One decision about many runs (05): found by a filter, shown first, then made one by one.
 *
 * B1. Each run is decided on by itself, as it is then; what is refused is left, and named.
 * B2. A preview decides nothing.
 * B3. What was begun is remembered until enough newer ones have come, and no longer than this host lives.
 */
import { randomUUID } from "node:crypto";
import { formatId, type RunId } from "../core/ids.ts";
import type { Decision } from "../core/resolve.ts";
import { runSentence } from "../core/sentence.ts";
import type { RunFilter, RunRecord } from "../ports/records.ts";
import { type Acting, person } from "./open.ts";
import type { Place } from "./place.ts";

export type BulkAction = "retry" | "skip" | "close" | "approve";

export interface Bulk {
  id: string;
  action: BulkAction;
  status: "preview" | "running" | "done" | "cancelled";
  total: number;
  done: number;
  refused: { run: string; code: string; message: string }[];
  runs: { run: string; workflow: string; sentence: string; words: string[] }[];
  startedAtMs: number;
  endedAtMs?: number;
}

const MOST_RUNS = 10_000;
const SHOWN = 50;
const REMEMBERED = 100;
const PAGE = 200;

export class BulkDesk {
  readonly #place: Place;
  readonly #known: Map<string, Bulk>;

  constructor(place: Place, known: Map<string, Bulk>) {
    this.#place = place;
    this.#known = known;
  }

  get(id: string): Bulk | undefined {
    return this.#known.get(`${this.#place.name}/${id}`);
  }

  /** Resolves when it is known what is concerned; the decisions go on behind. */
  async start(
    action: BulkAction,
    filter: Omit<RunFilter, "open">,
    how: Acting & { preview: boolean; deliveries: "release" | "skip" | "dead" },
  ): Promise<Bulk> {
    const { clock } = this.#place.open.parts;
    const found = await this.#found(filter);
    const decision = decisionOf(action, how.deliveries);
    const bulk: Bulk = {
      id: randomUUID(),
      action,
      status: how.preview ? "preview" : "running",
      total: found.length,
      done: 0,
      refused: [],
      runs: [],
      startedAtMs: clock.nowMs(),
    };
    for (const record of found.slice(0, SHOWN)) bulk.runs.push(await this.#shown(record, decision, how));
    this.#remember(bulk);
    if (how.preview)
      bulk.endedAtMs = clock.nowMs(); // (B2)
    else
      void this.#decide(bulk, found, decision, how).catch(() => {
        bulk.status = "cancelled";
      });
    return bulk;
  }

  async #found(filter: Omit<RunFilter, "open">): Promise<RunRecord[]> {
    const namespace = await this.#place.namespace();
    const found: RunRecord[] = [];
    if (namespace === undefined) return found;
    let cursor: string | undefined;
    do {
      const page = { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
      const { items, nextCursor } = await this.#place.open.records.runs(
        namespace,
        { ...filter, open: true },
        page,
      );
      found.push(...items);
      cursor = nextCursor;
    } while (cursor !== undefined && found.length < MOST_RUNS);
    return found;
  }

  async #shown(record: RunRecord, decision: Decision, acting: Acting): Promise<Bulk["runs"][number]> {
    const { engine, parts } = this.#place.open;
    const { run, workflow, mutation } = record;
    const told = await engine.operator.consequences(run.id, decision, person(acting));
    const words = "words" in told ? told.words : told.ok ? [] : [told.message];
    const sentence = runSentence({ run, ...(mutation ? { mutation } : {}) }, parts.clock.nowMs());
    return { run: formatId("run", run.id), workflow, sentence, words };
  }

  async #decide(bulk: Bulk, found: RunRecord[], decision: Decision, acting: Acting): Promise<void> {
    for (const { run } of found) {
      const decided = await this.#one(run.id, decision, acting);
      if (!decided.ok)
        bulk.refused.push({ run: formatId("run", run.id), code: decided.code, message: decided.message }); // (B1)
      bulk.done++;
    }
    bulk.status = "done";
    bulk.endedAtMs = this.#place.open.parts.clock.nowMs();
  }

  #one(run: RunId, decision: Decision, acting: Acting) {
    return this.#place.open.engine.operator.decide(run, decision, person(acting));
  }

  /** (B3) */
  #remember(bulk: Bulk): void {
    for (const key of this.#known.keys()) {
      if (this.#known.size < REMEMBERED) break;
      this.#known.delete(key);
    }
    this.#known.set(`${this.#place.name}/${bulk.id}`, bulk);
  }
}

function decisionOf(action: BulkAction, deliveries: "release" | "skip" | "dead"): Decision {
  return action === "close" ? { action, deliveries } : { action };
}
