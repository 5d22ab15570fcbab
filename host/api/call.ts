/** One call as its route sees it: who asks what, already checked; and what it answers. */
import type { IncomingMessage } from "node:http";
import type { AnswerOf, BodyOf, ParamsOf, QueryOf } from "./contract.ts";
import type { CallName } from "./contract-paths.ts";
import type { Desk } from "./desk.ts";
import type { Acting } from "./open.ts";
import { notFound } from "./problems.ts";
import type { Principal } from "./principal.ts";
import type { Serving } from "./serving.ts";

export interface Call<Name extends CallName> {
  name: Name;
  params: Record<ParamsOf<Name>, string>;
  query: QueryOf<Name>;
  body: BodyOf<Name>;
  /** Of the namespace that is asked about. */
  desk: Desk;
  /** Absent where nobody has to say who they are. */
  principal: Principal | undefined;
  serving: Serving;
  incoming: IncomingMessage;
  /** As they came; only where the contract asks for raw bytes. */
  bytes: Uint8Array;
  nowMs: number;
  signal: AbortSignal;
}

export interface Reply<Body> {
  status?: number;
  body: Body;
  headers?: Record<string, string>;
}

export type Answering<Name extends CallName> = (call: Call<Name>) => Promise<Reply<AnswerOf<Name>>>;
export type Routes<Names extends CallName> = { [Name in Names]: Answering<Name> };

export const OK = { body: { ok: true } } as const;

/** Who acts, for the audit. */
export function acting(
  { principal }: Pick<Call<CallName>, "principal">,
  body?: { note?: string | undefined },
): Acting {
  const note = body?.note;
  return { by: principal?.name ?? "somebody", ...(note === undefined ? {} : { note }) };
}

/** The fields that were given: `undefined` is left out. */
export function given<Fields extends object>(
  fields: Fields,
): { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> } {
  const known = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(known) as { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> };
}

/** What is there, or 404. */
export function found<Thing>(thing: Thing | undefined, what: string): Thing {
  if (thing === undefined) throw notFound(what);
  return thing;
}

/** The workflow that the path names is there. */
export async function onWorkflow(call: { desk: Desk; params: { name: string } }): Promise<string> {
  const { name } = call.params;
  found(await call.desk.place.workflow(name), `there is no workflow ${name}`);
  return name;
}

export function wholeNumber(text: string, what: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw notFound(`there is no ${what} ${text}`);
  return Number(text);
}
