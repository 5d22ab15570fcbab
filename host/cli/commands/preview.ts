/**
 * `pawl preview`: every handler of a script on its fixture, in the real sandbox. Reads are answered from the fixture,
 * a mutation is shown and never made.
 */
import type { Json } from "../../core/workflow.ts";
import { type Compilation, type Fixture, openWorkbench, type Problem, type Workbench } from "../../host.ts";
import type { HostCall, SandboxCall, SandboxError, SandboxResult, Script } from "../../ports/sandbox.ts";
import { inert, inertLines, paint, type ScriptFile, say, sayJson, scriptFiles } from "../render.ts";
import { readFixture } from "../fixture.ts";
import { showProblems } from "./check.ts";

type HandlerFixture = Fixture["handlers"][string];

export interface HandlerPreview {
  handler: string;
  kind: "producer" | "consumer";
  ok: boolean;
  title?: string;
  reservations: { topic: string; ids: string[] }[];
  publishes: { topics: string[]; messageId: string; payload: Json }[];
  inputs: { title: string }[];
  logs: { level: string; message: string }[];
  intent: { alias: string; tool: string; args: Json } | null;
  state?: Json;
  wakeAt?: string;
  error?: SandboxError;
}

export async function preview(paths: string[], options: { json?: boolean }): Promise<number> {
  const files = scriptFiles(paths);
  await using bench = openWorkbench();
  const report: { file: string; ok: boolean; problems: Problem[]; handlers: HandlerPreview[] }[] = [];
  for (const file of files) {
    const compiled = await bench.compile({ ...file, nowMs: Date.now() });
    const handlers = compiled.ok ? await previewScript(bench, compiled, readFixture(file)) : [];
    const { problems } = compiled;
    report.push({ file: file.path, ok: compiled.ok && handlers.every((one) => one.ok), problems, handlers });
    if (options.json) continue;
    if (compiled.ok) show(file, handlers);
    else showProblems(file, problems);
  }
  if (options.json) sayJson(report);
  return report.every((one) => one.ok) ? 0 : 6;
}

async function previewScript(
  bench: Workbench,
  compiled: Compilation & { ok: true },
  fixture: Fixture,
): Promise<HandlerPreview[]> {
  const script: Script = { ...compiled.script, namespace: "default", version: 1 };
  const { producers, consumers } = script.manifest;
  const out: HandlerPreview[] = [];
  for (const name of Object.keys(producers))
    out.push(await previewHandler(bench, script, name, "producer", fixture));
  for (const name of Object.keys(consumers))
    out.push(await previewHandler(bench, script, name, "consumer", fixture));
  return out;
}

async function previewHandler(
  bench: Workbench,
  script: Script,
  handler: string,
  kind: "producer" | "consumer",
  fixture: Fixture,
): Promise<HandlerPreview> {
  const given = fixture.handlers[handler] ?? {};
  const nowMs = fixture.now === undefined ? Date.now() : Date.parse(fixture.now);
  const answers = [...(given.answers ?? [])];
  const call: SandboxCall = {
    script,
    unit: kind === "producer" ? "producer" : "prepare+mutate",
    handler,
    run: { id: `preview-${handler}`, attempt: 1 },
    nowMs,
    seed: `preview-${handler}`,
    params: JSON.stringify(paramsOf(script, fixture)),
    ...(given.state === undefined ? {} : { state: JSON.stringify(given.state) }),
  };
  const run = (unit: SandboxCall): Promise<SandboxResult> =>
    bench.sandbox.run(unit, async (asked) => answerFrom(asked, given, answers, nowMs));
  const first = await run(call);
  const made: HandlerPreview = {
    handler,
    kind,
    ok: first.status === "done",
    reservations: [],
    publishes: [],
    inputs: [],
    logs: [],
    intent: null,
  };
  collect(made, first);
  if (first.status !== "done" || kind === "producer" || !script.manifest.consumers[handler]?.hasNext)
    return made;
  const outcome = first.intent ? (given.outcome ?? { status: "applied", result: null }) : { status: "none" };
  collect(
    made,
    await run({
      ...call,
      unit: "next",
      prepared: first.prepared?.json ?? "{}",
      outcome: JSON.stringify(outcome),
    }),
  );
  return made;
}

function collect(made: HandlerPreview, result: SandboxResult): void {
  made.logs.push(...result.logs.map(({ level, message }) => ({ level, message })));
  if (result.status !== "done") {
    made.ok = false;
    made.error = result.error;
    return;
  }
  if (result.prepared) {
    made.reservations = result.prepared.reservations;
    if (result.prepared.title !== undefined) made.title = result.prepared.title;
    if (result.prepared.wakeAt !== undefined) made.wakeAt = result.prepared.wakeAt;
  }
  if (result.intent) made.intent = { ...result.intent, args: JSON.parse(result.intent.args) as Json };
  made.publishes.push(
    ...result.publishes.map(({ topics, messageId, payload }) => ({
      topics,
      messageId,
      payload: JSON.parse(payload) as Json,
    })),
  );
  made.inputs.push(...result.inputs.map(({ title }) => ({ title })));
  if (result.state !== undefined) made.state = JSON.parse(result.state) as Json;
}

function answerFrom(
  asked: HostCall,
  given: HandlerFixture,
  answers: { call: string; result: Json }[],
  nowMs: number,
) {
  const args = JSON.parse(asked.args) as { topic?: string; limit?: number; ids?: string[] };
  const pending = given.pending?.[args.topic ?? ""] ?? [];
  const reply = (value: unknown) => ({ ok: true as const, value: JSON.stringify(value), nowMs });
  if (asked.name === "peek") return reply(pending.slice(0, args.limit));
  if (asked.name === "getByIds") return reply(pending.filter((one) => args.ids?.includes(one.messageId)));
  const next = answers.shift();
  if (next?.call === asked.name) return reply(next.result);
  const found = next ? `its next answer is for ${next.call}` : "it has no answer left";
  return {
    ok: false as const,
    class: "precondition" as const,
    code: "no-answer",
    message: `the fixture cannot answer ${asked.name}: ${found}`,
  };
}

function paramsOf(script: Script, fixture: Fixture): Record<string, Json> {
  const params: Record<string, Json> = {};
  for (const [name, declared] of Object.entries(script.manifest.params))
    if (declared.default !== undefined) params[name] = declared.default;
  return { ...params, ...fixture.params };
}

function show(file: ScriptFile, handlers: HandlerPreview[]): void {
  say(paint("bold", inert(file.path)));
  for (const one of handlers) {
    say(
      `  ${one.kind} ${paint("cyan", one.handler)}${one.title === undefined ? "" : `  script says: ${inert(one.title)}`}`,
    );
    for (const line of one.logs)
      say(`    ${paint("dim", `log ${line.level.padEnd(5)}`)}        ${inert(line.message)}`);
    for (const input of one.inputs) say(`    would register   ${inert(input.title)}`);
    for (const { topic, ids } of one.reservations)
      say(`    would reserve    ${topic}  ${inert(ids.join(", "))}`);
    if (one.intent)
      say(
        `    ${paint("yellow", "would change")}     ${one.intent.alias}.${inert(one.intent.tool)}  ${inert(JSON.stringify(one.intent.args), 100)}`,
      );
    for (const event of one.publishes)
      say(
        `    would publish    ${event.topics.join(", ")}  ${inert(event.messageId)}  ${inert(JSON.stringify(event.payload), 80)}`,
      );
    if (one.state !== undefined) say(`    would keep       ${inert(JSON.stringify(one.state), 100)}`);
    if (one.wakeAt !== undefined) say(`    would wake at    ${inert(one.wakeAt)}`);
    if (one.error) {
      say(
        `    ${paint("red", "failed")} ${one.error.code}  ${inert(one.error.at ?? "")}  ${inert(one.error.message)}`,
      );
      if (one.error.frame) say(inertLines(one.error.frame).replace(/^/gm, "    "));
    } else if (!one.intent && one.publishes.length === 0 && one.reservations.length === 0)
      say("    nothing to do");
  }
}
