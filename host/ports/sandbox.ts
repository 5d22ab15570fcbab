/**
 * The room where untrusted code runs, as the engine sees it. An adapter executes one unit of one run and answers with
 * data; it decides nothing about retries, ledgers or grants. The contract suite is `test/contract/sandbox.ts`.
 */
import type { ErrorClass, ErrorCode } from "../core/errors.ts";
import type { JsonText, Location, Manifest } from "../core/workflow.ts";

/** One immutable version of a script, ready to run. */
export interface Script {
  namespace: string;
  workflow: string;
  version: number;
  /** Content hash of the source; with namespace and workflow it identifies the compiled code. */
  hash: string;
  /** The author's file name, as shown in errors. */
  file: string;
  source: string;
  code: string;
  /** Present when the source was bundled before upload: maps positions back to the author's files. */
  sourceMap?: string;
  manifest: Manifest;
  /** What the upload found: `fresh` when the script changes built-ins while loading. */
  scope: "fresh" | "frozen";
}

/** What one call executes. `prepare+mutate` states the intent in the same round trip (07, Fusing). */
export type UnitCall = "producer" | "prepare" | "mutate" | "prepare+mutate" | "next";

/** `auto` = frozen, falling back to fresh when the script touches a built-in. */
export type Scope = "auto" | "fresh" | "frozen";

export interface Limits {
  /** CPU time of one uninterrupted section. */
  sectionMs: number;
  /** CPU time of the whole call. */
  cpuMs: number;
  /** Wall time of the whole call, waiting for answers included. */
  wallMs: number;
  memoryMb: number;
  hostCalls: number;
  hostCallsAtOnce: number;
  messageBytes: number;
  outputBytes: number;
  stateBytes: number;
  preparedBytes: number;
  logLines: number;
  logLineChars: number;
  maxPublishes: number;
}

export const DEFAULT_LIMITS: Limits = {
  sectionMs: 500,
  cpuMs: 2_000,
  wallMs: 60_000,
  memoryMb: 64,
  hostCalls: 1_000,
  hostCallsAtOnce: 16,
  messageBytes: 1_048_576,
  outputBytes: 4_194_304,
  stateBytes: 262_144,
  preparedBytes: 1_048_576,
  logLines: 200,
  logLineChars: 2_000,
  maxPublishes: 1_000,
};

/** Pending events of one topic shipped with the call, so that `peek` needs no round trip. */
export interface ShippedEvents {
  /** JSON text of `[{ messageId, payload, publishedAt }]`, oldest first. */
  events: JsonText;
  count: number;
  /** True when nothing more is pending. */
  complete: boolean;
}

export interface SandboxCall {
  script: Script;
  unit: UnitCall;
  handler: string;
  run: { id: string; attempt: number };
  /** Wall clock at the start; advances only with answers. */
  nowMs: number;
  /** Any text; the same seed gives the same `Math.random` and `crypto` values. */
  seed: string;
  params?: JsonText;
  state?: JsonText;
  /** `mutate` and `next`: the checkpointed prepare result. */
  prepared?: JsonText;
  /** `next`: what became of the mutation. */
  outcome?: JsonText;
  peek?: Record<string, ShippedEvents>;
  scope?: Scope;
  limits?: Partial<Limits>;
  signal?: AbortSignal;
}

/** A question of the script to the host. Names: `peek`, `getByIds`, or `alias.tool` for a read tool. */
export interface HostCall {
  name: string;
  args: JsonText;
}

export type HostAnswer =
  | { ok: true; value: JsonText; nowMs: number }
  /** The run ends with this error; the script never sees it. */
  | { ok: false; class: ErrorClass; code: string; message: string };

export interface Publish {
  topics: string[];
  messageId: string;
  payload: JsonText;
  input?: InputKey;
}

export interface InputKey {
  source: string;
  type: string;
  id: string;
}

export interface Input extends InputKey {
  title: string;
}

export interface Prepared {
  /** The whole result as text: the checkpoint that `mutate` and `next` get back. */
  json: JsonText;
  reservations: { topic: string; ids: string[] }[];
  title?: string;
  /** As the script gave it; the core clamps it. */
  wakeAt?: string;
}

export interface Intent {
  alias: string;
  tool: string;
  args: JsonText;
}

export interface LogLine {
  level: "debug" | "info" | "warn" | "error";
  message: string;
  data?: JsonText;
  atMs: number;
}

export interface Usage {
  cpuMs: number;
  wallMs: number;
  heapBytes: number;
  hostCalls: number;
  scope: "fresh" | "frozen";
}

export interface SandboxError {
  class: ErrorClass;
  code: ErrorCode | (string & {});
  message: string;
  /** `file.ts:line:column` of the author's file. */
  at?: string;
  location?: Location;
  /** The lines around the place, with a caret. */
  frame?: string;
  /** Names of the author's functions on the stack, innermost first. */
  stack?: string[];
  tool?: string;
}

/**
 * What a replay needs beside the call itself: every answer in the order it was delivered. `call` counts the run's
 * questions from 1, in the order they were asked.
 */
export type Transcript = { call: number; name: string; args: JsonText; answer: HostAnswer }[];

interface Ended {
  logs: LogLine[];
  usage: Usage;
  transcript: Transcript;
}

export interface Done extends Ended {
  status: "done";
  /** Producers and `next`: JSON text of the new state; `undefined` keeps the old one, `"null"` clears it. */
  state?: JsonText;
  prepared?: Prepared;
  intent?: Intent;
  publishes: Publish[];
  inputs: Input[];
}

export interface Failed extends Ended {
  status: "failed";
  error: SandboxError;
}

/** The process ended through no fault of this run: do it again, at no cost. */
export interface Lost extends Ended {
  status: "lost";
  error: SandboxError;
}

export type SandboxResult = Done | Failed | Lost;

export interface Sandbox extends AsyncDisposable {
  /**
   * Executes one unit in a scope that no other run ever sees. Never rejects for anything a script does. `answer` is
   * called for each host call, at most `hostCallsAtOnce` at a time; it must not reject.
   */
  run(call: SandboxCall, answer: (call: HostCall) => Promise<HostAnswer>): Promise<SandboxResult>;
  /** What protects this machine from the script, for `doctor`. */
  hardening(): Promise<HardeningReport>;
}

export interface HardeningLayer {
  name: string;
  inForce: boolean;
  detail: string;
}

export interface HardeningReport {
  level: 1 | 2 | 3;
  layers: HardeningLayer[];
}

export type WarningCode = "unused-topic" | "no-ui-title" | "module-state";

export interface Problem {
  severity: "error" | "warning";
  code: ErrorCode | WarningCode;
  message: string;
  hint: string;
  location: Location;
}

export interface Upload {
  source: string;
  language: "ts" | "js";
  /** The author's file name, for messages. */
  file: string;
  /** The name it is deployed under; the script's own must be equal. */
  name?: string;
  sourceMap?: string;
  minIntervalMs?: number;
  maxBytes?: number;
  /** Only to compute cron fires. */
  nowMs: number;
}

/** A compiled file; with a namespace and a version number it is a `Script`. */
export interface CompiledScript {
  workflow: string;
  hash: string;
  file: string;
  source: string;
  code: string;
  sourceMap?: string;
  manifest: Manifest;
  scope: "fresh" | "frozen";
}

export type Compilation =
  | { ok: true; script: CompiledScript; problems: Problem[] }
  | { ok: false; problems: Problem[] };
