/**
 * The connector by itself, called as the host would call it: what it says against what really happened.
 *
 * T1. `applied` means one effect, `failed` means none, now and later; everything else must be `unknown`.
 * T2. One call is one attempt: who retries is the host.
 * T3. A check makes no effect, and is never wrong; where the tool promises a proof, it is definite once all is well.
 */
import { invokeCheck, invokeMutation } from "../connectors/invoke.ts";
import type { CheckContext, OpenConnection } from "../connectors/define.ts";
import type { Json } from "../core/workflow.ts";
import type { CheckAnswer, SendAnswer } from "../ports/connector.ts";
import { FAULTS, type Fault, faultNames, HOLDING, type Outside, RATE_LIMITS } from "./faults.ts";
import {
  type ConnectorSpec,
  type ContractCase,
  demand,
  labelOf,
  leavesOf,
  openOn,
  proofOf,
  secretsOf,
  toolOf,
} from "./spec.ts";

/** Real time: far more than a call on this machine takes to notice that it was called off. */
const PATIENCE_MS = 20_000;
const LONGEST_WAIT_MS = 7 * 86_400_000;
/** What only a whole host can show. */
const NEEDS_HOST: readonly Fault[] = ["killed-before-effect", "killed-after-effect"];
const REFUSALS = new Map<Fault, readonly string[]>([
  ["refused", ["transient"]],
  ["unauthorized", ["auth"]],
  ["forbidden", ["permission", "auth"]],
  ...RATE_LIMITS.map((fault) => [fault, ["transient"]] as const),
]);

export function toolCases(spec: ConnectorSpec): ContractCase[] {
  const faulty = faultNames
    .filter((fault) => !NEEDS_HOST.includes(fault))
    .map((fault): ContractCase => {
      const skipped = spec.cannot?.[fault];
      return {
        name: `${fault}: what the tool says is true (${FAULTS[fault]})`,
        ...(skipped === undefined ? {} : { skipped }),
        run: () => onOutside(spec, (scene) => meets(scene, fault)),
      };
    });
  return [
    { name: "says what it will do, from the real arguments", run: () => onOutside(spec, describes) },
    { name: "does it, once, and says so", run: () => onOutside(spec, succeeds) },
    { name: "a check of what never left makes nothing and claims nothing", run: () => onOutside(spec, asks) },
    { name: "refuses input that does not fit, before anything leaves", run: () => onOutside(spec, refuses) },
    { name: "sent twice with one key, has one effect", run: () => onOutside(spec, twice) },
    ...faulty,
  ];
}

interface Scene {
  spec: ConnectorSpec;
  outside: Outside;
  connection: OpenConnection;
}

async function onOutside(spec: ConnectorSpec, act: (scene: Scene) => Promise<void>): Promise<void> {
  await using outside = await spec.outside();
  await act({ spec, outside, connection: openOn(spec, outside) });
}

async function describes({ spec, outside, connection }: Scene): Promise<void> {
  const tool = toolOf(spec);
  const texts = [1, 2].map((n) => tool.describe(tool.input.parse(spec.input(n)), connection) as unknown);
  for (const text of texts) {
    demand(typeof text === "string" && text.trim() !== "", `describe gives no text, but ${String(text)}`);
    demand(!/[\n\r]/.test(text), `describe gives more than one line: ${JSON.stringify(text)}`);
  }
  demand(texts[0] !== texts[1], `two different calls are described alike: ${String(texts[0])}`);
  const shown = leavesOf(spec.input(1)).some((leaf) => String(texts[0]).includes(leaf));
  demand(shown, `describe names nothing of the arguments: ${String(texts[0])}`);
  const bytes = [1, 1, 2].map((n) => {
    const made = tool.bytes?.(tool.input.parse(spec.input(n)), connection) ?? JSON.stringify(spec.input(n));
    return Buffer.from(made).toString("latin1");
  });
  demand(bytes[0] === bytes[1], "the same call has other bytes the second time");
  demand(bytes[0] !== bytes[2], "two different calls have the same bytes");
  hidden([...texts, ...bytes], outside, "describe or bytes");
}

async function succeeds(scene: Scene): Promise<void> {
  const { outside } = scene;
  const before = await seen(scene, 1);
  const answer = await sent(scene, 1);
  demand(answer.outcome === "applied", `nothing was wrong, and the tool said ${said(answer)}`);
  demand(!answer.resultInvalid, `the result does not fit the tool's own output: ${answer.result}`);
  demand(
    (await outside.effects()) === 1,
    `it said applied, and ${await outside.effects()} effects were made`,
  );
  await checksOut(scene, 1, before);
}

async function asks(scene: Scene): Promise<void> {
  const before = await seen(scene, 1);
  await checksOut(scene, 1, before);
  demand((await scene.outside.effects()) === 0, "the check made an effect");
}

async function refuses(scene: Scene): Promise<void> {
  const { spec, outside, connection } = scene;
  const wrong = ["null", '"text"', "[]", "17"].find(
    (args) => !toolOf(spec).input.safeParse(JSON.parse(args)).success,
  );
  demand(wrong !== undefined, "the input schema lets everything through");
  const context = contextOf(1, AbortSignal.timeout(PATIENCE_MS));
  const answer = await invokeMutation(toolOf(spec), {
    connection,
    args: wrong,
    label: labelOf(spec),
    context,
  });
  demand(answer.outcome === "failed", `input ${wrong} was not refused, but ${said(answer)}`);
  demand((await outside.effects()) === 0, "input that does not fit had an effect");
}

/** Only where the tool's proof is that the service knows its key, or the state it was made for. */
async function twice(scene: Scene): Promise<void> {
  const { spec, outside, connection } = scene;
  const proof = proofOf(spec, connection, 1);
  if (proof !== "key" && proof !== "conditional") return;
  const first = await sent(scene, 1);
  const second = await sent(scene, 1);
  const effects = await outside.effects();
  demand(effects === 1, `class ${proof}, sent twice with one key: ${effects} effects`);
  demand(first.outcome === "applied", `the first send: ${said(first)}`);
  if (proof === "key") demand(second.outcome === "applied", `the second send with its key: ${said(second)}`);
}

async function meets(scene: Scene, fault: Fault): Promise<void> {
  const { outside, spec } = scene;
  const before = await seen(scene, 1);
  await outside.breakWith(fault);
  const answer = await sent(scene, 1, HOLDING.includes(fault) ? outside.held() : undefined);
  const arrivals = outside.arrivals?.() ?? 0;
  demand(arrivals <= 1, `the tool tried ${arrivals} times by itself`); // (T2)
  judge(scene, fault, answer, await outside.effects());
  const early = await asked(scene, 1, before);
  // What says "not there" while a late effect may still come is held back by the host, `settleMs` long.
  if (early) judgeCheck(early, await outside.effects());
  demand((outside.arrivals?.() ?? 0) === arrivals, "the check made an effect, or tried to");
  await outside.release();
  await outside.heal();
  await settled(outside, fault);
  const effects = await outside.effects();
  demand(effects <= 1, `one call had ${effects} effects`);
  if (answer.outcome === "failed")
    demand(effects === 0, `it said failed (${said(answer)}), and the effect came`);
  if (fault === "answered-twice") return stale(scene);
  await checksOut(scene, 1, before);
  if (proofOf(spec, scene.connection, 1) !== "key" || answer.outcome === "failed") return;
  const again = await sent(scene, 1);
  demand(again.outcome === "applied", `sent again with its key once all was well: ${said(again)}`);
  const all = await outside.effects();
  demand(all === 1, `sent again with its key: ${all} effects`);
}

/** An answer that belongs to nobody must not become the next call's. */
async function stale(scene: Scene): Promise<void> {
  const { outside } = scene;
  const effects = await outside.effects();
  await outside.breakWith("dropped-after-send");
  const answer = await sent(scene, 2);
  demand((await outside.effects()) === effects, "a dropped call had an effect");
  demand(answer.outcome !== "applied", "the second answer to one call was taken for the answer to the next");
}

/** (T1) */
function judge({ outside }: Scene, fault: Fault, answer: SendAnswer, effects: number): void {
  const what = `${said(answer)}, and ${effects} effects were made`;
  if (answer.outcome === "applied") demand(effects === 1, `it said ${what}`);
  if (answer.outcome === "failed") demand(effects === 0, `it said ${what}`);
  hidden([JSON.stringify(answer)], outside, "the answer");
  if (answer.outcome === "applied") return;
  demand(
    answer.class !== "internal",
    `it failed with an error of its own, not one of the typed ones: ${what}`,
  );
  const { retryAfterMs: wait } = answer;
  const sane = wait === undefined || (Number.isFinite(wait) && wait >= 0 && wait <= LONGEST_WAIT_MS);
  demand(sane, `it wants to be tried again after ${wait} ms`);
  const expected = REFUSALS.get(fault);
  if (!expected) return;
  demand(answer.outcome === "failed", `a refusal is proof that nothing happened, and it said ${what}`);
  demand(expected.includes(answer.class), `this is ${expected.join(" or ")}, and it said ${what}`);
}

/** (T3) */
function judgeCheck(verdict: CheckAnswer, effects: number): void {
  if (verdict.says === "applied") demand(effects === 1, `the check says applied, with ${effects} effects`);
  if (verdict.says === "notApplied")
    demand(effects === 0, `the check says notApplied, with ${effects} effects`);
}

/** (T3) */
async function checksOut(scene: Scene, n: number, before: Json | undefined): Promise<void> {
  const { spec, outside, connection } = scene;
  const effects = await outside.effects();
  const verdict = await asked(scene, n, before);
  if (!verdict) return;
  demand((await outside.effects()) === effects, "the check made an effect");
  judgeCheck(verdict, effects);
  if (verdict.says !== "unsure" && verdict.says !== "auth") return;
  const proof = proofOf(spec, connection, n);
  const promised = proof === "lookup" || (proof === "conditional" && effects === 0);
  demand(!promised, `class ${proof}, all is well, ${effects} effects, and the check says ${verdict.says}`);
}

async function seen({ spec, connection }: Scene, n: number): Promise<Json | undefined> {
  const tool = toolOf(spec);
  return tool.before?.(connection, tool.input.parse(spec.input(n)), {
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
}

/** The call, called off as soon as `until` resolves. */
async function sent({ spec, connection }: Scene, n: number, until?: Promise<void>): Promise<SendAnswer> {
  const abort = new AbortController();
  const call = { connection, args: JSON.stringify(spec.input(n)), label: labelOf(spec) };
  const answer = invokeMutation(toolOf(spec), { ...call, context: contextOf(n, abort.signal) });
  if (until) void until.then(() => abort.abort());
  return inTime(answer, "the call does not end when its signal says so", spec.patienceMs);
}

async function asked(
  { spec, connection }: Scene,
  n: number,
  before: Json | undefined,
): Promise<CheckAnswer | undefined> {
  if (!toolOf(spec).reconcile) return undefined;
  const call = { connection, args: JSON.stringify(spec.input(n)), label: labelOf(spec) };
  const signal = AbortSignal.timeout(PATIENCE_MS / 2);
  const context: CheckContext = { ...contextOf(n, signal), ...(before === undefined ? {} : { before }) };
  return inTime(
    invokeCheck(toolOf(spec), { ...call, context }),
    "the check does not end when its signal says so",
  );
}

const contextOf = (n: number, signal: AbortSignal) => ({
  signal,
  idempotencyKey: `kit-decision-${n}`,
  origin: { workflow: 1, hops: 0, maxHops: 100 },
});

async function inTime<Value>(
  work: Promise<Value>,
  otherwise: string,
  patienceMs = PATIENCE_MS,
): Promise<Value> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), patienceMs);
  });
  const first = await Promise.race([work.then((value) => ({ value })), late]);
  clearTimeout(timer);
  demand(first !== undefined, otherwise);
  return first.value;
}

/** A late effect is made by somebody else, on their own time. */
async function settled(outside: Outside, fault: Fault): Promise<void> {
  if (fault !== "late-effect") return;
  const untilMs = performance.now() + PATIENCE_MS;
  while ((await outside.effects()) === 0 && performance.now() < untilMs)
    await new Promise((resolve) => setImmediate(resolve));
}

function hidden(texts: unknown[], outside: Outside, where: string): void {
  for (const secret of secretsOf(outside))
    demand(!texts.some((text) => String(text).includes(secret)), `a secret stands in ${where}`);
}

const said = (answer: SendAnswer): string =>
  answer.outcome === "applied"
    ? "applied"
    : `${answer.outcome} (${answer.class} ${answer.code}: ${answer.message})`;
