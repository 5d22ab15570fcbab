/**
 * What happens, for whoever listens: `node:diagnostics_channel` events with stable payloads (04, Telemetry). Told after
 * the fact; nothing in the host waits for a listener or depends on one.
 *
 * T1. Without a subscriber an event costs one test.
 * T2. A subscriber that throws changes nothing, neither here nor for the next subscriber.
 */
import diagnostics, { type Channel, type ChannelListener } from "node:diagnostics_channel";
import type { Change } from "../core/change.ts";
import type { RunFacts } from "../core/facts.ts";
import { formatId } from "../core/ids.ts";
import type { Phase, RunError, Status } from "../core/run.ts";
import type { Level } from "../ports/store.ts";

export interface RunTelemetry {
  /** One start of one host. */
  host: number;
  workflow: string;
  handler: string;
  kind: "producer" | "consumer";
  run: string;
  retryOf?: string;
  attempt: number;
  version: number;
  trigger: string;
  phase: Phase;
  status: Status;
  atMs: number;
  /** `stop` and `exception`: since the attempt was created. */
  durationMs?: number;
  /** `exception`. */
  error?: RunError;
}

export interface PhaseTelemetry {
  host: number;
  workflow: number;
  run: string;
  phase: Phase;
  atMs: number;
  error?: RunError;
}

export interface StoreTelemetry {
  host: number;
  workflow: number;
  /** The Change's own word: "start", "prepared+intended+sending", … */
  verb: string;
  level: Level;
  writes: number;
  /** `stop` and `exception`. */
  durationMs?: number;
  /** `stop`: why the Change was refused, if it was. */
  refused?: string;
  error?: unknown;
}

const MOMENTS = ["start", "stop", "exception"] as const;
type Moment = (typeof MOMENTS)[number];
type Channels = Record<Moment, Channel>;

const channels: Record<"run" | "phase" | "store", Channels> = {
  run: channelsOf("run"),
  phase: channelsOf("phase"),
  store: channelsOf("store"),
};

export function eventNames(): string[] {
  return Object.keys(channels).flatMap((what) => MOMENTS.map((moment) => `pawl:${what}:${moment}`));
}

function channelsOf(what: string): Channels {
  const one = (moment: Moment) => guarded(diagnostics.channel(`pawl:${what}:${moment}`));
  return { start: one("start"), stop: one("stop"), exception: one("exception") };
}

/** Node turns what a subscriber throws into an uncaught exception, which would end the host. (T2) */
function guarded(channel: Channel): Channel {
  const wrappers = new Map<ChannelListener, ChannelListener>();
  // A channel changes its prototype with its first subscriber, and then calls itself again.
  const own = (): Channel => Object.getPrototypeOf(channel) as Channel;
  let passing = false;
  channel.subscribe = (listener) => {
    if (passing) return own().subscribe.call(channel, listener);
    const wrapper: ChannelListener = (message, name) => {
      try {
        listener(message, name);
      } catch {
        // (T2)
      }
    };
    wrappers.set(listener, wrapper);
    passing = true;
    try {
      own().subscribe.call(channel, wrapper);
    } finally {
      passing = false;
    }
  };
  channel.unsubscribe = (listener) => {
    const wrapper = wrappers.get(listener);
    wrappers.delete(listener);
    return own().unsubscribe.call(channel, wrapper ?? listener);
  };
  return channel;
}

function send(channel: Channel, payload: () => object): void {
  if (channel.hasSubscribers) channel.publish(payload()); // (T1)
}

export function runStarted(facts: RunFacts, atMs: number): void {
  send(channels.run.start, () => runPayload(facts, atMs));
}

export function runEnded(facts: RunFacts, atMs: number): void {
  const { run } = facts;
  const failed = run.error !== undefined && run.status !== "committed";
  const durationMs = atMs - run.createdAtMs;
  send(failed ? channels.run.exception : channels.run.stop, () => ({
    ...runPayload(facts, atMs),
    durationMs,
    ...(failed ? { error: run.error } : {}),
  }));
}

function runPayload({ run, workflow, handler }: RunFacts, atMs: number): RunTelemetry {
  return {
    host: run.host,
    workflow: workflow.name,
    handler: handler.name,
    kind: run.kind,
    run: formatId("run", run.id),
    ...(run.retryOf === undefined ? {} : { retryOf: formatId("run", run.retryOf) }),
    attempt: run.attempt,
    version: run.version,
    trigger: run.trigger.reason,
    phase: run.phase,
    status: run.status,
    atMs,
  };
}

export function storeStarts(change: Change, level: Level, host: number): void {
  send(channels.store.start, () => storePayload(change, level, host));
}

export function storeEnded(
  change: Change,
  level: Level,
  host: number,
  end: { durationMs: number; refused?: string } | { durationMs: number; error: unknown },
): void {
  const channel = "error" in end ? channels.store.exception : channels.store.stop;
  send(channel, () => ({ ...storePayload(change, level, host), ...end }));
}

function storePayload(change: Change, level: Level, host: number): StoreTelemetry {
  return { host, workflow: change.workflow, verb: change.verb, level, writes: change.writes.length };
}

/** The phases that an applied Change has begun and ended. */
export function phasesMoved(change: Change, host: number): void {
  const { start, stop, exception } = channels.phase;
  if (!start.hasSubscribers && !stop.hasSubscribers && !exception.hasSubscribers) return;
  for (const write of change.writes) {
    const payload = (id: number, phase: Phase): PhaseTelemetry => ({
      host,
      workflow: change.workflow,
      run: formatId("run", id),
      phase,
      atMs: change.atMs,
    });
    if (write.do === "run.create") send(start, () => payload(write.run.id, write.run.phase));
    if (write.do !== "run.set") continue;
    const { from, set, id } = write;
    if (set.phase !== undefined && set.phase !== from.phase) {
      send(stop, () => payload(id, from.phase));
      if (set.phase !== "committed") send(start, () => payload(id, set.phase as Phase));
    } else if (set.error)
      send(exception, () => ({ ...payload(id, from.phase), error: set.error as RunError }));
  }
}
