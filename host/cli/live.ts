/**
 * What happens in a running host, one line per run, for the person who watches it. Words for waiting and failing are the
 * core's; here is only what a finished run came to. Every word of a script is made inert.
 */
import type { RunFacts } from "../core/facts.ts";
import { runSentence } from "../core/sentence.ts";
import type { HostEvent } from "../host.ts";
import { inert, inertLines, paint, say } from "./render.ts";

const WIDEST_WORKFLOW = 24;
const WIDEST_HANDLER = 16;

type Ended = HostEvent & { kind: "run.ended" };
type Color = "green" | "yellow" | "red" | "dim";

export interface LiveCounts {
  runs: number;
  events: number;
  changes: number;
}

export class LiveView {
  readonly counts: LiveCounts = { runs: 0, events: 0, changes: 0 };
  readonly #nowMs: () => number;
  #workflowWidth = 0;
  #handlerWidth = 0;
  /** What happened before anybody was ready to look. */
  #held: { event: HostEvent; atMs: number }[] | undefined = [];

  constructor(nowMs: () => number = Date.now) {
    this.#nowMs = nowMs;
  }

  /** From now on lines are shown as things happen, after those that were held back. */
  open(workflows: readonly string[]): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const name of workflows) this.#widen(name, "");
    for (const { event } of held)
      if (event.kind === "run.ended") this.#widen(event.facts.workflow.name, event.facts.handler.name);
    for (const { event, atMs } of held) this.#show(event, atMs);
  }

  show(event: HostEvent): void {
    if (this.#held) this.#held.push({ event, atMs: this.#nowMs() });
    else this.#show(event, this.#nowMs());
  }

  #show(event: HostEvent, atMs: number): void {
    if (event.kind === "engine.warning")
      say(`${clock(atMs)}  ${paint("yellow", "warning")}  ${inert(event.message, 300)}`);
    if (event.kind === "run.logged")
      for (const { level, message } of event.lines)
        this.#line(event.facts, `${level}: ${inert(message)}`, "dim", atMs);
    if (event.kind === "run.ended") this.#ended(event, atMs);
  }

  #ended(event: Ended, atMs: number): void {
    const { run } = event.facts;
    const created = event.published.filter((one) => one.outcome === "created").length;
    this.counts.runs++;
    this.counts.events += created;
    if (run.status === "committed" && run.outcome === "applied") this.counts.changes++;
    this.#line(event.facts, cameTo(event, atMs), colorOf(event), atMs);
    if (run.status === "failed:logic" && run.error?.frame !== undefined)
      say(inertLines(run.error.frame).replace(/^/gm, "          "));
  }

  #line({ workflow, handler, run }: RunFacts, what: string, color: Color, atMs: number): void {
    this.#widen(workflow.name, handler.name);
    const attempt = run.attempt > 1 ? paint("dim", ` (attempt ${run.attempt})`) : "";
    const names = `${workflow.name.padEnd(this.#workflowWidth)}  ${paint("cyan", handler.name.padEnd(this.#handlerWidth))}`;
    say(`${clock(atMs)}  ${names}  ${paint(color, what)}${attempt}`);
  }

  #widen(workflow: string, handler: string): void {
    this.#workflowWidth = Math.min(Math.max(this.#workflowWidth, workflow.length), WIDEST_WORKFLOW);
    this.#handlerWidth = Math.min(Math.max(this.#handlerWidth, handler.length), WIDEST_HANDLER);
  }
}

const clock = (atMs: number): string => paint("dim", timeOf(atMs));
const timeOf = (atMs: number): string => new Date(atMs).toTimeString().slice(0, 8);

/** "at 12:30:00", with its date unless that is today. */
function whenOf(atMs: number, nowMs: number): string {
  const day = (ms: number) => new Date(ms).toLocaleDateString("sv");
  return day(atMs) === day(nowMs) ? `at ${timeOf(atMs)}` : `on ${day(atMs)} at ${timeOf(atMs)}`;
}

function colorOf({ facts: { run }, published }: Ended): Color {
  if (run.status.startsWith("failed")) return "red";
  if (run.status !== "committed") return "yellow";
  return run.outcome === "applied" || published.some((one) => one.outcome !== "unchanged") ? "green" : "dim";
}

/** What came of a run, in a few words. */
function cameTo(event: Pick<Ended, "facts" | "published">, nowMs: number): string {
  const { run, mutation } = event.facts;
  if (run.status !== "committed") return waiting(event.facts, nowMs);
  const parts: string[] = [];
  if (run.outcome === "applied" && mutation)
    parts.push(`changed via ${inert(`${mutation.alias}.${mutation.tool}`, 60)}`);
  if (run.outcome === "skipped") parts.push("went on without its outside change");
  parts.push(...publishedWords(event.published));
  if (run.wakeAtMs !== undefined) parts.push(`looks again ${whenOf(run.wakeAtMs, nowMs)}`);
  const title = titleOf(run.prepared);
  if (parts.length === 0)
    parts.push(run.kind === "producer" ? "nothing new" : title === "" ? "nothing to do" : "done");
  return `${title}${parts.join(", ")}`;
}

function waiting({ run, mutation }: RunFacts, nowMs: number): string {
  const sentence = inert(runSentence(mutation ? { run, mutation } : { run }, nowMs), 300);
  if (run.readyAtMs !== undefined && run.readyAtMs > nowMs && run.pauseReason === "retrying") {
    const seconds = Math.max(1, Math.round((run.readyAtMs - nowMs) / 1000));
    return `tries again in ${seconds} s: ${inert(run.error?.message ?? "", 200)}`;
  }
  const person = run.status === "paused:approval" || run.pauseReason === "indeterminate";
  return person && !sentence.startsWith("Waiting for you")
    ? `waits for you: ${sentence}`
    : lowerFirst(sentence);
}

const lowerFirst = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);

function publishedWords(published: Ended["published"]): string[] {
  const words: string[] = [];
  const count = (outcome: string) => published.filter((one) => one.outcome === outcome).length;
  const [created, updated, known] = [count("created"), count("updated"), count("unchanged")];
  if (created > 0) words.push(`${created} ${created === 1 ? "event" : "events"} published`);
  if (updated > 0) words.push(`${updated} revised`);
  if (known > 0) words.push(`${known} known already`);
  return words;
}

/** The script's own title for what it does, in quotes: it says so, nobody checked. */
function titleOf(prepared: string | undefined): string {
  if (prepared === undefined) return "";
  const { ui } = JSON.parse(prepared) as { ui?: { title?: unknown } };
  return typeof ui?.title === "string" ? `“${inert(ui.title, 60)}”: ` : "";
}
