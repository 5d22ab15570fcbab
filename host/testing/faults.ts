/**
 * What can go wrong between a connector and the outside, by name; and the outside itself, as the kit needs it: something
 * real that counts its own effects and breaks on demand.
 */

export const FAULTS = {
  refused: "nobody listens",
  "dropped-before-send": "the connection is closed before a byte of the call is read",
  "dropped-after-send": "the call is read and the connection closed; nothing happens",
  "dropped-after-effect": "the effect is made and the connection closed before the answer",
  slow: "the effect is made at once, the answer takes longer than anybody waits",
  "late-effect":
    "the effect is made only after the caller has given up, within the time the tool says it may",
  "error-before-effect": "a server error, and nothing happened",
  "error-after-effect": "a server error, though the effect was made",
  "garbage-answer": "the effect is made, and what comes back is not the protocol",
  "garbage-body": "the effect is made, and the answer's content makes no sense",
  unauthorized: "the credentials are refused",
  forbidden: "the credentials are known, and not enough",
  "rate-limited-negative": "asked for patience, of a negative length",
  "rate-limited-huge": "asked for patience, longer than a number holds",
  "rate-limited-date": "asked for patience, until a day long gone",
  "rate-limited-words": "asked for patience, in words",
  "answered-twice": "one call, two answers: the second belongs to nobody",
  "killed-before-effect": "the process that sends is killed when its call has arrived; nothing happens",
  "killed-after-effect": "the process that sends is killed when its effect is made",
} as const satisfies Record<string, string>;

export type Fault = keyof typeof FAULTS;
export const faultNames = Object.keys(FAULTS) as Fault[];

/** Calls stop half-way and wait there: for the caller to lose patience, or to die. */
export const HOLDING: readonly Fault[] = [
  "slow",
  "late-effect",
  "killed-before-effect",
  "killed-after-effect",
];
export const RATE_LIMITS: readonly Fault[] = [
  "rate-limited-negative",
  "rate-limited-huge",
  "rate-limited-date",
  "rate-limited-words",
];

/** What a connector talks to in a test: real, on this machine, and the only one who knows what really happened. */
export interface Outside extends AsyncDisposable {
  /** With which a connection reaches it. */
  config: unknown;
  secrets?: unknown;
  /** How many effects were really made. */
  effects(): number | Promise<number>;
  /** How often the call came in, effect or not; absent where nobody can tell. */
  arrivals?(): number;
  /** From now on every call of the tool meets this, until it heals. */
  breakWith(fault: Fault): void | Promise<void>;
  heal(): void | Promise<void>;
  /** Of the HOLDING faults: resolves when a call waits half-way. */
  held(): Promise<void>;
  /** Lets what waits half-way go on: a late effect is made now, a call whose sender was killed before is forgotten. */
  release(): void | Promise<void>;
}
