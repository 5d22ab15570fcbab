/** What a call of the contract consists of. */
import { z } from "zod";

export const ROLES = ["viewer", "operator", "deployer", "admin"] as const;
export type Role = (typeof ROLES)[number];

export interface Route {
  /** The least role that may; `nobody`: asked without a token; `anybody`: any token that holds. */
  role: Role | "nobody" | "anybody";
  /** `host`: about the whole host, so that a token of one namespace may not. */
  scope?: "host";
  summary: string;
  query?: z.ZodObject;
  body?: z.ZodType;
  /** Raw bytes: whoever answers reads them itself. */
  raw?: true;
  answer: z.ZodType;
  /** The statuses it may succeed with, the usual one first; 200 unless told. */
  statuses?: readonly number[];
  /** Codes of refusals that are worth knowing, as the catalogue spells them. */
  refusals?: readonly string[];
  /** The answer shows something once: it is never stored. */
  secret?: true;
  /** Another answer than JSON. */
  media?: string;
  /** Bytes that a body may have; a megabyte and a bit unless told. */
  maxBytes?: number;
}

export const route = <const Given extends Route>(given: Given): Given => given;

export const ok = z.object({ ok: z.literal(true) });
export const note = z.string().max(2_000).optional();
export const name = z.string().max(200);

export const paging = {
  limit: z.coerce.number().int().min(1).max(200).optional(),
  cursor: z.string().max(1_000).optional(),
};
export const page = z.strictObject(paging);

const TRUTHS = { true: true, false: false } as const;
/** `?open=true` */
export const flag = z.enum(["true", "false"]).transform((word) => TRUTHS[word]);

/** A point in time that JavaScript can hold. */
export const instant = z
  .string()
  .max(40)
  .refine((text) => /^\d{4}-\d\d-\d\d/.test(text) && !Number.isNaN(Date.parse(text)), "is no ISO 8601 time")
  .meta({ format: "date-time" });

/** What a person was looking at: another state is answered with 409. */
export const expectation = z
  .strictObject({
    status: z.string().max(40).optional(),
    ledger: z.string().max(40).optional(),
    revision: z.int().optional(),
  })
  .optional();
