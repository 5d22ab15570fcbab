/** What every desk is given: a running host, and who acts. */
import type { Engine } from "../engine/engine.ts";
import type { Parts } from "../engine/parts.ts";
import type { Notices, Teller } from "../ports/notices.ts";
import type { Records } from "../ports/records.ts";
import type { Compilation, Upload } from "../ports/sandbox.ts";

/** A running host, as far as a desk needs it. */
export interface Open {
  engine: Engine;
  parts: Parts;
  records: Records;
  notices: Notices;
  /** Absent where the outside is made up. */
  teller?: Teller;
  compile: (upload: Upload) => Promise<Compilation>;
}

/** Who acts; `by` is written into the audit. */
export interface Acting {
  by?: string;
  note?: string;
}

export const person = ({ by = "library", note }: Acting): { by: string; note?: string } => ({
  by,
  ...(note === undefined ? {} : { note }),
});
