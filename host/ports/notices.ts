/**
 * People who are told when something waits for them: where to (targets of a namespace), what has not been told yet (an
 * outbox that is written with the item itself), and who carries it there.
 */
import type { InboxKind } from "../core/change.ts";
import type { EpochMs, InboxId, NamespaceId, RunId, WorkflowId } from "../core/ids.ts";
import type { Json, JsonText } from "../core/workflow.ts";
import type { ActedBy } from "./connections.ts";

export interface NotificationTarget {
  name: string;
  /** Of the namespace: an `http` connection is posted to, an `smtp` one sends mail. */
  connection: string;
  /** `http`: below its base URL; "/" unless told. */
  path?: string;
  /** `http`: a `webhook` connection whose key signs what is posted. */
  signedWith?: string;
  /** `smtp`. */
  to?: string[];
  /** Only these kinds; all of them unless told. */
  kinds?: InboxKind[];
}

/** One item that one target has not been told yet. */
export interface Notice {
  id: number;
  attempts: number;
  createdAtMs: EpochMs;
  namespace: { id: NamespaceId; name: string };
  target: string;
  item: {
    id: InboxId;
    kind: InboxKind;
    workflow: { id: WorkflowId; name: string };
    run?: RunId;
    handler?: string;
    detail?: JsonText;
    sinceMs: EpochMs;
  };
}

export interface Notices {
  targets(namespace: NamespaceId): Promise<NotificationTarget[]>;
  /** All of them. What waits for one that is gone is forgotten. */
  setTargets(namespace: NamespaceId, targets: NotificationTarget[], by: ActedBy): Promise<void>;
  /** Longest waiting first. */
  due(nowMs: EpochMs, limit: number): Promise<Notice[]>;
  nextDueAt(): Promise<EpochMs | undefined>;
  told(ids: readonly number[]): Promise<void>;
  /** One attempt more, not before. */
  later(ids: readonly number[], atMs: EpochMs): Promise<void>;
}

/** One message about several items; the same `id` is the same message again. */
export interface Message {
  id: string;
  atMs: EpochMs;
  namespace: string;
  items: readonly Json[];
  /** For people: one line per item. */
  lines: readonly string[];
}

export type Told = { ok: true } | { ok: false; message: string; retryAfterMs?: number };

export interface Teller {
  /** Never rejects. */
  tell(
    namespace: { id: NamespaceId; name: string },
    target: NotificationTarget,
    message: Message,
    signal: AbortSignal,
  ): Promise<Told>;
  /** Why it could never be told, or `undefined`. */
  problem(namespace: NamespaceId, target: NotificationTarget): Promise<string | undefined>;
}
