/**
 * Tells people, outside, that something waits for them. Reads the outbox that was written with each item and hands what a
 * target has not been told to whoever carries it; every item reaches every target at least once.
 *
 * N1. A notice leaves the outbox only after its target took it; whoever hears twice knows by the item's id.
 * N2. One target that does not answer delays no other; it is tried again, less and less often, for a week.
 * N3. What is due together goes in one message: a storm of items is no storm of mails.
 * N4. Nothing is asked of the store while nothing is due and nobody pokes.
 */
import { backoffDelayMs } from "../core/backoff.ts";
import { formatId } from "../core/ids.ts";
import { plainLine } from "../core/plain-line.ts";
import type { Json } from "../core/workflow.ts";
import type { Message, Notice, Notices, NotificationTarget, Teller, Told } from "../ports/notices.ts";
import type { Parts } from "./parts.ts";
import { questionOf } from "./questions.ts";
import { within } from "./timeout.ts";

const AT_ONCE = 500;
const PER_MESSAGE = 50;
const LINE_CHARS = 300;
const TELL_MS = 60_000;
const GIVE_UP_MS = 7 * 86_400_000;
const PATIENCE = { backoff: "exponential", baseDelayMs: 10_000, maxDelayMs: 3_600_000 } as const;

export class Notifier {
  readonly #parts: Parts;
  readonly #notices: Notices;
  readonly #teller: Teller;
  #stopped = true;
  #again = false;
  #working: Promise<void> | undefined;
  #forget: () => void = () => {};
  readonly #ending = new AbortController();

  constructor(parts: Parts, notices: Notices, teller: Teller) {
    this.#parts = parts;
    this.#notices = notices;
    this.#teller = teller;
  }

  start(): void {
    this.#stopped = false;
    this.poke();
  }

  /** An item was opened, or a target was set. */
  poke(): void {
    if (this.#stopped) return;
    this.#again = true;
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined;
      if (this.#again) this.poke();
    });
  }

  /** What is on its way is called off; it is told again by the next life. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#forget();
    this.#ending.abort();
    await this.#working;
  }

  async #work(): Promise<void> {
    const { clock, tell } = this.#parts;
    this.#forget();
    try {
      while (this.#again && !this.#stopped) {
        this.#again = false;
        const due = await this.#notices.due(clock.nowMs(), AT_ONCE);
        await Promise.all(groupsOf(due).map((group) => this.#deliver(group))); // (N2)
      }
      const nextMs = await this.#notices.nextDueAt();
      if (nextMs === undefined || this.#stopped) return; // (N4)
      // What is due and was not found by now is left alone for a while.
      const nowMs = clock.nowMs();
      this.#forget = clock.at(nextMs > nowMs ? nextMs : nowMs + TELL_MS, () => this.poke());
    } catch (error) {
      if (!this.#stopped)
        tell({ kind: "engine.warning", message: `notifying: ${String(error)}`, atMs: clock.nowMs() });
    }
  }

  async #deliver(group: readonly Notice[]): Promise<void> {
    const [first] = group;
    if (!first) return;
    const { namespace, target: name } = first;
    const target = (await this.#notices.targets(namespace.id)).find((one) => one.name === name);
    const ids = group.map((one) => one.id);
    if (!target) return this.#notices.told(ids);
    const told = await this.#tell(target, group);
    if (this.#stopped && !told.ok) return;
    if (told.ok) return this.#notices.told(ids); // (N1)
    await this.#tryLater(group, told);
  }

  async #tell(target: NotificationTarget, group: readonly Notice[]): Promise<Told> {
    const { clock } = this.#parts;
    const message = await this.#message(group);
    const [{ namespace }] = group as readonly [Notice];
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, this.#ending.signal]);
    const asked = await within(clock, TELL_MS, this.#teller.tell(namespace, target, message, signal));
    if (asked.inTime) return asked.result;
    abort.abort();
    return { ok: false, message: `no answer within ${TELL_MS / 1_000} s` };
  }

  async #tryLater(
    group: readonly Notice[],
    { message, retryAfterMs = 0 }: Told & { ok: false },
  ): Promise<void> {
    const { clock, tell } = this.#parts;
    const nowMs = clock.nowMs();
    const [{ target, attempts }] = group as readonly [Notice];
    const lost = group.filter((one) => nowMs - one.createdAtMs >= GIVE_UP_MS);
    const delayMs = Math.max(backoffDelayMs(PATIENCE, attempts, clock.chance()), retryAfterMs);
    if (lost.length > 0) await this.#notices.told(lost.map((one) => one.id));
    await this.#notices.later(
      group.filter((one) => !lost.includes(one)).map((one) => one.id),
      nowMs + delayMs,
    ); // (N2)
    const gone = lost.length > 0 ? `; ${lost.length} given up after a week` : "";
    const words = `${target} was not told of ${group.length} inbox items: ${message}${gone}`;
    tell({ kind: "engine.warning", message: words, atMs: nowMs });
  }

  async #message(group: readonly Notice[]): Promise<Message> {
    const [first, last] = [group[0] as Notice, group.at(-1) as Notice];
    const items: Json[] = [];
    const lines: string[] = [];
    for (const { item } of group) {
      const { question, actions } = await questionOf(this.#parts, item);
      const asked = plainLine(question, LINE_CHARS);
      lines.push(`${item.workflow.name}: ${asked}`);
      items.push({
        id: formatId("inbox", item.id),
        kind: item.kind,
        workflow: item.workflow.name,
        ...(item.run === undefined ? {} : { run: formatId("run", item.run) }),
        question: asked,
        actions: actions.map(({ name }) => name),
        since: new Date(item.sinceMs).toISOString(),
      });
    }
    return {
      id: `ntf_${first.id}_${last.id}_${group.length}`,
      atMs: this.#parts.clock.nowMs(),
      namespace: first.namespace.name,
      items,
      lines,
    };
  }
}

/** By target, in the order of their first notice; each no longer than one message (N3). */
function groupsOf(due: readonly Notice[]): Notice[][] {
  const groups = new Map<string, Notice[]>();
  for (const notice of due) {
    const key = `${notice.namespace.id}/${notice.target}`;
    groups.set(key, [...(groups.get(key) ?? []), notice]);
  }
  return [...groups.values()].flatMap((all) =>
    Array.from({ length: Math.ceil(all.length / PER_MESSAGE) }, (_, at) =>
      all.slice(at * PER_MESSAGE, (at + 1) * PER_MESSAGE),
    ),
  );
}
