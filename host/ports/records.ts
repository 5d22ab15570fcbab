/**
 * What people look at: lists by page, and one thing in full. Everything is read within one namespace; what belongs to
 * another does not exist. Nothing here decides anything, and no engine code may depend on it.
 *
 * L1. A page holds at most `limit` (≤ 200) items. Going on from its cursor neither repeats nor leaves out what was there
 *     when the first page was read, however many rows come in meanwhile.
 * L2. A filtered page looks at a bounded number of rows. It may be short, even empty, and still have a cursor: go on.
 * L3. Counts stop at COUNTED; that figure means "at least".
 */
import type { StandingApproval } from "../core/approval.ts";
import type { InboxKind } from "../core/change.ts";
import type { DeliveryStatus } from "../core/event.ts";
import type {
  DeliveryId,
  EpochMs,
  EventId,
  HandlerId,
  InboxId,
  InputId,
  NamespaceId,
  RunId,
  WorkflowId,
} from "../core/ids.ts";
import type { Entry } from "../core/journal.ts";
import type { Mutation, Send } from "../core/mutation.ts";
import type { Kind, Phase, Run, Status } from "../core/run.ts";
import type { SlotRange } from "../core/slots.ts";
import type { JsonText, Manifest } from "../core/workflow.ts";

export const MAX_LIMIT = 200;
export const COUNTED = 1_000;

export interface PageRequest {
  /** 50 unless told; more than MAX_LIMIT counts as MAX_LIMIT. */
  limit?: number;
  /** From the page before. Anything else is refused with `cursor-invalid`. */
  cursor?: string;
}

export interface Page<Item> {
  items: Item[];
  /** Absent on the last page. */
  nextCursor?: string;
}

export interface RunFilter {
  workflow?: WorkflowId;
  handler?: HandlerId;
  status?: Status;
  phase?: Phase;
  open?: boolean;
  sinceMs?: EpochMs;
  /** Code of the error it ended with. */
  error?: string;
  /** Only runs that brought in this input, or worked on what it caused. */
  input?: InputId;
}

/** A run with the names of what it belongs to. */
export interface RunRecord {
  run: Run;
  workflow: string;
  handler: string;
  /** The decision that it owns. */
  mutation?: Mutation & { evidence: Evidence[] };
}

export interface RunDetail extends RunRecord {
  /** All attempts of the chain, oldest first. */
  chain: Pick<Run, "id" | "attempt" | "phase" | "status" | "version" | "createdAtMs" | "endedAtMs">[];
  /** The decision that this run made or now owns, and the inputs it goes back to. */
  mutation?: Mutation & { history: Send[]; evidence: Evidence[]; causedBy: InputFace[] };
  /** Deliveries that it holds now; those it used up are in its journal. */
  reserved: DeliveryId[];
  /** Units with a transcript. */
  transcripts: string[];
}

export interface Evidence {
  what: string;
  detail: JsonText;
  run: RunId;
  atMs: EpochMs;
}

export interface JournalRecord {
  /** Sequence of the first of these entries within the workflow. */
  first: number;
  run?: RunId;
  verb: string;
  atMs: EpochMs;
  entries: Entry[];
}

export interface LogRecord {
  unit: string;
  lines: JsonText;
  atMs: EpochMs;
}

/** A workflow as a list shows it; status and sentence are made of this by the core. */
export interface WorkflowRecord {
  id: WorkflowId;
  name: string;
  description: string;
  mode: "auto" | "step";
  paused: boolean;
  archived: boolean;
  activeVersion: number;
  openRun?: Pick<Run, "id" | "status" | "phase" | "pauseReason">;
  nextDueAtMs?: EpochMs;
  /** (L3); the last two among the newest COUNTED runs. */
  counts: { pending: number; reserved: number; dead: number; runs24h: number; failed24h: number };
  /** Statuses of the newest runs, newest first. */
  recent: Status[];
  labels: JsonText;
  params: JsonText;
  /** What a person allowed beforehand and is not used up. */
  approvals: StandingApproval[];
  createdAtMs: EpochMs;
  updatedAtMs: EpochMs;
}

export interface HandlerRecord {
  id: HandlerId;
  name: string;
  kind: Kind;
  orphaned: boolean;
  nextRunAtMs?: EpochMs;
  wakeAtMs?: EpochMs;
  triggered?: { reason: string; atMs: EpochMs };
  queued?: { reason: string; atMs: EpochMs };
  state?: JsonText;
  pending: number;
  dead: number;
  lastRun?: Pick<Run, "id" | "status" | "phase" | "createdAtMs" | "endedAtMs">;
  /** What the active version declares; absent for an orphan. */
  declared?: Manifest["producers"][string] | Manifest["consumers"][string];
}

export interface TopicRecord {
  topic: string;
  /** By consumer. (L3), among the oldest COUNTED pending of each. */
  pending: { handler: HandlerId; count: number; oldestAtMs?: EpochMs }[];
  newestAtMs?: EpochMs;
}

export interface EventRecord {
  id: EventId;
  topic: string;
  messageId: string;
  /** Absent once retention has emptied it. */
  payload?: JsonText;
  revision: number;
  seq: number;
  hops: number;
  run?: RunId;
  causedBy: InputId[];
  createdAtMs: EpochMs;
  updatedAtMs: EpochMs;
  deliveries: {
    id: DeliveryId;
    handler: HandlerId;
    status: DeliveryStatus;
    reservedBy?: RunId;
    attempts: number;
    late: boolean;
  }[];
}

export interface EventFilter {
  status?: DeliveryStatus;
  consumer?: HandlerId;
}

export interface InputRecord {
  id: InputId;
  source: string;
  type: string;
  key: string;
  title: string;
  run?: RunId;
  createdAtMs: EpochMs;
  /** Deliveries of the events it caused, by what became of them. (L3) */
  became: Record<DeliveryStatus, number>;
}

/** One input, and what was changed outside because of it, or was to be; also by events that followed from its own. */
export interface InputDetail extends InputRecord {
  workflow: WorkflowId;
  /** The newest MAX_LIMIT; `outputs` with this input has them all. */
  outputs: OutputRecord[];
}

export type InputFace = Pick<InputRecord, "id" | "source" | "type" | "key" | "title">;

export interface InboxRecord {
  id: InboxId;
  kind: InboxKind;
  workflow: string;
  run?: RunId;
  handler?: string;
  detail?: JsonText;
  sinceMs: EpochMs;
}

export interface SlotRecord extends SlotRange {
  handler: HandlerId;
}

export interface AuditRecord {
  seq: number;
  atMs: EpochMs;
  actor: string;
  action: string;
  workflow?: WorkflowId;
  run?: RunId;
  detail: JsonText;
  note?: string;
  hash: string;
}

export interface VersionRecord {
  number: number;
  hash: string;
  language: "ts" | "js";
  scope: "fresh" | "frozen";
  note?: string;
  createdAtMs: EpochMs;
}

/** What was changed outside, or was to be. */
export interface OutputRecord {
  mutation: Mutation;
  handler: string;
  /** The inputs that it goes back to, oldest first, MAX_LIMIT at most. */
  causedBy: InputFace[];
}

export interface OutputFilter {
  /** Only what was changed because of this input. */
  input?: InputId;
}

export interface Records {
  /** What the workflows and namespaces of these ids are called. */
  nameOf(workflow: WorkflowId): Promise<{ namespace: string; name: string } | undefined>;
  /** The id behind a name, for all that follows. */
  namespace(name: string): Promise<NamespaceId | undefined>;
  workflowNamed(namespace: NamespaceId, name: string): Promise<WorkflowId | undefined>;

  /** Newest first. */
  runs(namespace: NamespaceId, filter: RunFilter, page: PageRequest): Promise<Page<RunRecord>>;
  run(namespace: NamespaceId, id: RunId): Promise<RunDetail | undefined>;
  /** Oldest first. */
  journal(namespace: NamespaceId, run: RunId, page: PageRequest): Promise<Page<JournalRecord>>;
  /** Oldest first. */
  logs(namespace: NamespaceId, run: RunId, page: PageRequest): Promise<Page<LogRecord>>;

  /** By name. `sinceMs` is where the counted day begins. */
  workflows(
    namespace: NamespaceId,
    options: { archived: boolean; sinceMs: EpochMs },
    page: PageRequest,
  ): Promise<Page<WorkflowRecord>>;
  workflow(
    namespace: NamespaceId,
    id: WorkflowId,
    options: { sinceMs: EpochMs },
  ): Promise<WorkflowRecord | undefined>;
  /** In the order of their declaration. */
  handlers(namespace: NamespaceId, workflow: WorkflowId): Promise<HandlerRecord[]>;
  /** Inputs that were reported as stale and are still so. (L3) */
  staleInputs(workflow: WorkflowId): Promise<number>;
  /** Newest first, without the source. */
  versions(namespace: NamespaceId, workflow: WorkflowId, page: PageRequest): Promise<Page<VersionRecord>>;
  /** Newest first. */
  slots(namespace: NamespaceId, handler: HandlerId, page: PageRequest): Promise<Page<SlotRecord>>;
  /** Newest first. */
  outputs(
    namespace: NamespaceId,
    workflow: WorkflowId,
    page: PageRequest,
    filter?: OutputFilter,
  ): Promise<Page<OutputRecord>>;

  topics(namespace: NamespaceId, workflow: WorkflowId): Promise<TopicRecord[]>;
  /** Newest first. */
  events(
    namespace: NamespaceId,
    workflow: WorkflowId,
    topic: string,
    filter: EventFilter,
    page: PageRequest,
  ): Promise<Page<EventRecord>>;
  /** Newest first. */
  inputs(namespace: NamespaceId, workflow: WorkflowId, page: PageRequest): Promise<Page<InputRecord>>;
  input(namespace: NamespaceId, id: InputId): Promise<InputDetail | undefined>;

  /** Open items, oldest first. */
  inbox(namespace: NamespaceId, filter: { kind?: InboxKind }, page: PageRequest): Promise<Page<InboxRecord>>;
  /** What is open of one workflow, oldest first; MAX_LIMIT at most. */
  questions(workflow: WorkflowId): Promise<InboxRecord[]>;
  /** While it is open. */
  inboxItem(namespace: NamespaceId, id: InboxId): Promise<InboxRecord | undefined>;
  inboxCount(namespace: NamespaceId): Promise<number>;
  /** Newest first. */
  audit(namespace: NamespaceId, page: PageRequest): Promise<Page<AuditRecord>>;
}
