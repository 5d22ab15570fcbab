/** A request that came in from outside, and whether its sender is who it says. The adapter knows the schemes and keys. */
import type { EpochMs } from "../core/ids.ts";
import type { ConnectionRow } from "./connections.ts";

export interface HookRequest {
  /** As they came; names in any case. */
  headers: Record<string, string | readonly string[] | undefined>;
  /** Exactly the bytes that were sent. */
  body: Uint8Array;
}

export type HookVerdict =
  | {
      ok: true;
      /** What tells this delivery from others, if the sender says so. */
      id?: string;
      bodyHash: string;
      /** How long a delivery with the same id is recognised. */
      rememberMs: number;
    }
  | { ok: false; status: 401 | 413; reason: string };

/** Opens the connection's secrets for the length of the call. Never rejects because of what was sent. */
export type VerifyHook = (
  connection: ConnectionRow,
  request: HookRequest,
  nowMs: EpochMs,
) => Promise<HookVerdict>;
