/** Who may ask the API, what they were answered before, and what is set for a namespace: what the API keeps in the store. */
import type { GrantMode } from "../core/change.ts";
import type { EpochMs, Id, Incarnation, NamespaceId } from "../core/ids.ts";
import type { JsonText } from "../core/workflow.ts";
import type { ActedBy } from "./connections.ts";
import type { Page, PageRequest } from "./records.ts";

export type TokenId = Id<"token">;
export type TokenRole = "viewer" | "operator" | "deployer" | "admin";

/** A token without itself: only its hash is stored. */
export interface Token {
  id: TokenId;
  name: string;
  role: TokenRole;
  /** Absent: it may ask for any namespace, and about the host. */
  namespace?: string;
  createdAtMs: EpochMs;
  expiresAtMs?: EpochMs;
  revokedAtMs?: EpochMs;
}

export interface Tokens {
  /** By the SHA-256 of what was shown once. */
  hashed(hash: string): Promise<Token | undefined>;
  one(id: TokenId): Promise<Token | undefined>;
  /** Newest first; with a namespace only those of it. */
  list(namespace: string | undefined, page: PageRequest): Promise<Page<Token>>;
  create(
    token: Pick<Token, "name" | "role" | "namespace" | "expiresAtMs"> & { hash: string },
    by: ActedBy,
  ): Promise<Token>;
  /** Holds for everybody at once. False when it was revoked already. */
  revoke(id: TokenId, by: ActedBy): Promise<boolean>;
  /** Whether anybody could get in as an admin of the whole host. */
  hasAdmin(nowMs: EpochMs): Promise<boolean>;
}

/** What a request with an Idempotency-Key comes upon. */
export type Begun =
  | { is: "new" }
  | { is: "known"; status: number; body?: string }
  /** The key was used for other bytes. */
  | { is: "other" }
  /** It was begun, and its answer is not known. */
  | { is: "lost" };

export interface Answers {
  /** On record before anything that the request does. */
  begin(
    request: { principal: string; key: string; hash: string },
    times: { nowMs: EpochMs; keepMs: number },
  ): Promise<Begun>;
  finish(principal: string, key: string, answer: { status: number; body?: string }): Promise<void>;
  /** It did nothing: it may be tried again. */
  forget(principal: string, key: string): Promise<void>;
}

export interface NamespaceSettings {
  defaultGrant?: GrantMode;
  /** Workflows that are not archived. */
  mostWorkflows?: number;
}

export interface Settings {
  get(namespace: NamespaceId): Promise<NamespaceSettings>;
  /** Only what is named; `null` removes it. */
  set(
    namespace: NamespaceId,
    settings: { [Field in keyof NamespaceSettings]?: NamespaceSettings[Field] | null },
    by: ActedBy,
  ): Promise<void>;
  /** Makes it if it is not there. */
  namespace(name: string, atMs: EpochMs): Promise<NamespaceId>;
  workflowCount(namespace: NamespaceId): Promise<number>;
}

/** The rules of one scope, as an operator stored them. */
export interface StoredRules {
  /** `host`, `namespace:<id>` or `workflow:<id>`. */
  scope: string;
  rules: JsonText;
  updatedAtMs: EpochMs;
}

export interface RuleBook {
  all(): StoredRules[];
  put(rules: Omit<StoredRules, "updatedAtMs">, namespace: NamespaceId, by: ActedBy): Promise<void>;
}

export interface HostRow {
  id: Incarnation;
  name: string;
  startedAtMs: EpochMs;
  seenAtMs: EpochMs;
  endedAtMs?: EpochMs;
}

/** All of it, as a running host has it. */
export interface Kept {
  tokens: Tokens;
  answers: Answers;
  settings: Settings;
  rules: RuleBook;
  hosts: () => Promise<HostRow[]>;
}
