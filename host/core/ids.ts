/**
 * Ids and instants. Inside, an id is an integer that the store hands out, unique over all kinds; at the edge it is a
 * prefix and the integer in base 32, so that text order is creation order and no second index is needed.
 */

/** A number that cannot be mistaken for the id of something else. */
export type Id<Kind extends string> = number & { readonly __kind?: Kind };

export type NamespaceId = Id<"namespace">;
export type WorkflowId = Id<"workflow">;
export type HandlerId = Id<"handler">;
export type RunId = Id<"run">;
export type EventId = Id<"event">;
export type DeliveryId = Id<"delivery">;
export type InputId = Id<"input">;
export type MutationId = Id<"mutation">;
export type InboxId = Id<"inbox">;
export type ConnectionId = Id<"connection">;
/** One start of one host process; dies with it and never comes back. */
export type Incarnation = Id<"incarnation">;

/** Milliseconds since 1970, UTC. */
export type EpochMs = number & { readonly __unit?: "epochMs" };

const PREFIXES = {
  run: "run",
  event: "evt",
  delivery: "dlv",
  input: "inp",
  mutation: "mut",
  inbox: "inb",
  token: "tok",
  host: "hst",
} as const;

export type PublicKind = keyof typeof PREFIXES;

// Crockford's alphabet: no i, l, o, u, so that an id read aloud survives.
const DIGITS = "0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH = 11;

export function formatId(kind: PublicKind, id: number): string {
  let text = "";
  for (let rest = id; text.length < LENGTH; rest = Math.floor(rest / 32)) text = DIGITS[rest % 32] + text;
  return `${PREFIXES[kind]}_${text}`;
}

/** The integer behind a public id, or `undefined` for anything else, another kind's id included. */
export function parseId(kind: PublicKind, text: string): number | undefined {
  const prefix = `${PREFIXES[kind]}_`;
  if (!text.startsWith(prefix) || text.length !== prefix.length + LENGTH) return undefined;
  let id = 0;
  for (const digit of text.slice(prefix.length)) {
    const value = DIGITS.indexOf(digit);
    if (value < 0) return undefined;
    id = id * 32 + value;
  }
  return Number.isSafeInteger(id) && id > 0 ? id : undefined;
}
