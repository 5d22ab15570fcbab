/** What the server is given, and what its routes share. */
import type { Broadcast } from "./broadcast.ts";
import type { Counters } from "./counters.ts";
import type { Desk } from "./desk.ts";
import type { Happening, Open } from "./open.ts";
import type { Principals } from "./principal.ts";

/** A running host, as the server reaches it. */
export interface Served {
  open: () => Open;
  desk: (namespace: string) => Desk;
  /** Returns how to stop looking. */
  watch: (look: (happening: Happening) => void) => () => void;
  /** From now on this value is hidden in every log line. */
  hide: (secret: string) => void;
  warn: (message: string) => void;
}

export interface Serving extends Pick<Served, "open" | "desk" | "hide" | "warn"> {
  principals: Principals;
  counters: Counters;
  broadcast: Broadcast;
  /** Cookies travel over TLS alone. */
  isSecure: boolean;
  isStopping: () => boolean;
}
