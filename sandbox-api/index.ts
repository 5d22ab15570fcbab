// The module `pawl` as scripts import it: types that make the wrong call in the wrong phase a compile error, and four
// functions that only tag what they are given. Inside the isolate the prelude supplies the same four; the host enforces
// the stored manifest whatever the types say.
//
// How the types reach a handler: `workflow` infers aliases, topics and params (its World) from its one argument, and
// `producer` and `consumer` inside that argument take the World from the type they are expected to return.
// T1. `Producer` and `Consumer` are function types, though their values are plain objects. TypeScript postpones a call of
//     a generic function that returns a function until the outer call has inferred what it can; with an object type the
//     inner call would be resolved first and `ctx` would know no alias and no topic.
// T2. Whatever is absent in the script is inferred as `never` on the way; `Given` turns that into "none".

import type { Json, MutationResult, MutationTools, ReadTools } from "./connectors.ts";

export type * from "./connectors.ts";

/** A topic whose events carry `T`. Made by `topic()`. */
export interface Topic<T> extends TopicOptions {
  readonly pawl: "topic";
  /** Never present at run time: carries the payload type. */
  readonly payload?: T;
}

/** Options of a topic. */
export interface TopicOptions {
  /** JSON Schema; the host checks every published payload against it. */
  readonly schema?: object;
  /** The events are the workflow's productions and need no subscriber here. */
  readonly output?: boolean;
}

/** One operator-set parameter. Without a default the operator has to set it before the workflow runs. */
export type Param =
  | { readonly type: "string"; readonly default?: string; readonly description?: string }
  | { readonly type: "number"; readonly default?: number; readonly description?: string }
  | { readonly type: "boolean"; readonly default?: boolean; readonly description?: string };

/** What a workflow declares and its handlers may name: aliases, topics, params. */
export interface World {
  readonly connections: unknown;
  readonly topics: unknown;
  readonly params: unknown;
}

type Given<T> = [T] extends [never] ? Record<never, never> : T;
type TopicsOf<W extends World> = Given<W["topics"]>;
type PayloadOf<W extends World, N> = N extends keyof TopicsOf<W>
  ? TopicsOf<W>[N] extends Topic<infer T>
    ? T
    : never
  : never;
type Payloads<W extends World, N extends string> = { readonly [K in N]: PayloadOf<W, K> };
type Aliases<W extends World> = Given<W["connections"]>;
type ParamValues<P> = {
  readonly [K in keyof P]: P[K] extends { readonly type: "string" }
    ? string
    : P[K] extends { readonly type: "number" }
      ? number
      : boolean;
};

declare const registered: unique symbol;

/** A registered input: the outside cause of an event. Only `ctx.registerInput` gives one; pass it on to `publish`. */
export interface InputRef {
  readonly [registered]: true;
}

/** What `ctx.registerInput` takes; unique by source, type and id. */
export interface InputDescription {
  readonly source: string;
  readonly type: string;
  readonly id: string;
  /** What a person reads: "Order 17 from Ada". */
  readonly title: string;
}

/** An event waiting for this consumer. */
export interface PendingEvent<T> {
  readonly messageId: string;
  /** The same as `messageId`. */
  readonly id: string;
  readonly payload: T;
  /** ISO 8601. */
  readonly publishedAt: string;
}

/** Writes to the run's log; shown in the console beside the run. */
export interface Log {
  debug(message: string, data?: unknown): void;
  info(message: string, data?: unknown): void;
  warn(message: string, data?: unknown): void;
  error(message: string, data?: unknown): void;
}

/** What every phase has. */
export interface BaseContext<W extends World> {
  readonly log: Log;
  /** Epoch milliseconds; advances only when a host call answers. */
  now(): number;
  readonly params: ParamValues<Given<W["params"]>>;
  readonly run: { readonly id: string; readonly attempt: number };
}

type ReadAliases<C> = { readonly [A in keyof C]: ReadTools<C[A]> };
type MutationAliases<C> = { readonly [A in keyof C]: MutationTools<C[A]> };
type AnyResult<C> = { [A in keyof C]: MutationResult<C[A]> }[keyof C];

// One payload for several topics has to fit all of them.
type PayloadForAll<Map, N extends keyof Map> = { [K in N]: (payload: Map[K]) => void }[N] extends (
  payload: infer T,
) => void
  ? T
  : never;

/** Publishing, limited to the topics in `Map`. Repeating a messageId updates the event while it is pending. */
export interface Publishing<Map, Extra> {
  publish<N extends keyof Map & string>(
    topic: N | readonly N[],
    event: { readonly messageId: string; readonly payload: PayloadForAll<Map, N> } & Extra,
  ): void;
}

/** Looking at this consumer's pending events, limited to the topics in `Map`; oldest first. */
export interface Peeking<Map> {
  /** `limit` is 100 by default, 1000 at most. */
  peek<N extends keyof Map & string>(
    topic: N,
    options?: { readonly limit?: number },
  ): Promise<readonly PendingEvent<Map[N]>[]>;
  /** Ids that are not pending are left out. */
  getByIds<N extends keyof Map & string>(
    topic: N,
    ids: readonly string[],
  ): Promise<readonly PendingEvent<Map[N]>[]>;
}

/** `ctx` of a producer: read tools, `registerInput`, `publish`. */
export type ProducerContext<W extends World, Pub extends string> = BaseContext<W> &
  ReadAliases<Aliases<W>> &
  Publishing<Payloads<W, Pub>, { readonly input?: InputRef }> & {
    registerInput(input: InputDescription): InputRef;
  };

/** `ctx` of `prepare`: read tools, `peek`, `getByIds`. */
export type PrepareContext<W extends World, Sub extends string> = BaseContext<W> &
  ReadAliases<Aliases<W>> &
  Peeking<Payloads<W, Sub>>;

/** `ctx` of `mutate`: one mutation call, as its last act, or none. */
export type MutateContext<W extends World> = BaseContext<W> & MutationAliases<Aliases<W>>;

/** `ctx` of `next`: `publish`. */
export type NextContext<W extends World, Pub extends string> = BaseContext<W> &
  Publishing<Payloads<W, Pub>, Record<never, never>>;

/** When a producer runs: `interval` such as "5m", or a cron pattern in a time zone (UTC if none is given). */
export type Schedule =
  | { readonly interval: string; readonly cron?: never; readonly timezone?: never }
  | { readonly cron: string; readonly timezone?: string; readonly interval?: never };

type MaybePromise<T> = T | Promise<T>;

// State and data travel as JSON, where a property that is undefined is one that is absent.
type AsReturned<T> = T extends string | number | boolean | null | undefined
  ? T
  : T extends readonly unknown[]
    ? { [K in keyof T]: AsReturned<T[K]> }
    : { [K in keyof T]: undefined extends T[K] ? AsReturned<T[K]> | undefined : AsReturned<T[K]> };

/** `undefined` (or no return) keeps the old state, `null` clears it. */
type NewState<S> = AsReturned<S> | null | undefined | void;

/** What `prepare` decided. Nothing reserved: the consumer waits for the next event or `wakeAt`. */
export interface PrepareResult<Sub extends string> {
  readonly reservations?: readonly { readonly topic: Sub; readonly ids: readonly string[] }[] | undefined;
  /** Handed to `mutate` and `next` as JSON. */
  readonly data?: unknown;
  readonly ui?: { readonly title: string } | undefined;
  /** ISO 8601: run again then, also without a new event. */
  readonly wakeAt?: string | undefined;
}

// What the branches of `prepare` that return data return.
type DataIn<R> = R extends { readonly data: infer D } ? D : never;
type DataOf<R> = [DataIn<R>] extends [never] ? undefined : DataIn<R>;

/**
 * `prepare`'s result as `mutate` and `next` see it. `next` also runs when nothing was reserved (outcome `none`), and a
 * branch of `prepare` that returned no `data` leaves it absent: let that branch return `data: null` and the compiler will
 * ask for the check.
 */
export interface Prepared<Sub extends string, D> {
  readonly reservations?: readonly { readonly topic: Sub; readonly ids: readonly string[] }[];
  readonly data: D;
  readonly ui?: { readonly title: string };
  readonly wakeAt?: string;
}

/**
 * What became of the outside change. `result` is `null` when a person confirmed the change without one; `none`: no call
 * was made; `skipped`: a person decided to go on without it.
 */
export type Outcome<R = unknown> =
  | { readonly status: "applied"; readonly result: R | null; readonly resultInvalid?: true }
  | { readonly status: "none" }
  | { readonly status: "skipped" };

/** Argument of `producer()`. */
export interface ProducerDefinition<W extends World, Pub extends string, S> {
  readonly schedule: Schedule;
  readonly publishes?: readonly Pub[];
  /** Reads the outside world and publishes; what it returns is the next run's `state`. */
  handler(ctx: ProducerContext<W, Pub>, state: S | undefined): MaybePromise<NewState<NoInfer<S>>>;
}

/** Argument of `consumer()`. */
export interface ConsumerDefinition<W extends World, Sub extends string, Pub extends string, S, R> {
  readonly subscribes: readonly Sub[];
  readonly publishes?: readonly Pub[];
  /** Selects events; reads only. `state` is what `next` last returned. */
  prepare(ctx: PrepareContext<W, Sub>, state: S | undefined): MaybePromise<R>;
  /** States the one outside change; the host makes the call. */
  mutate?(ctx: MutateContext<W>, prepared: Prepared<NoInfer<Sub>, DataOf<R>>): MaybePromise<void>;
  /** Publishes what follows; what it returns is the new state. */
  next?(
    ctx: NextContext<W, Pub>,
    prepared: Prepared<NoInfer<Sub>, DataOf<R>>,
    outcome: Outcome<AnyResult<Aliases<W>>>,
  ): MaybePromise<NewState<NoInfer<S>>>;
}

/** A declared producer; opaque (T1). */
export type Producer<W extends World> = () => { readonly pawl: "producer"; readonly world: W };

/** A declared consumer; opaque (T1). */
export type Consumer<W extends World> = () => { readonly pawl: "consumer"; readonly world: W };

type ContextMember = "log" | "now" | "params" | "run" | "publish" | "registerInput" | "peek" | "getByIds";
interface HidesContextMember {
  readonly chooseAnotherAlias: never;
}

type WebhookAlias<C> = { [A in keyof C]: C[A] extends "webhook" ? A : never }[keyof C];

/** An inbound webhook: what arrives at `alias` becomes an event in `topic`. */
export interface Hook<Alias, Name> {
  readonly alias: Alias;
  readonly topic: Name;
  /** JSON path into the body, e.g. `$.id`. */
  readonly messageId: string;
}

/** Argument of `workflow()`. */
export interface WorkflowDefinition<C, T, P> {
  /** Equals the name it is deployed under. */
  readonly name: string;
  readonly description?: string;
  /** Alias → connector. The operator binds each alias to a connection. */
  readonly connections?: C & { readonly [K in keyof C & ContextMember]: HidesContextMember };
  readonly topics?: T;
  readonly params?: P;
  readonly hooks?: { readonly [name: string]: Hook<NoInfer<WebhookAlias<C>>, NoInfer<keyof T>> };
  readonly producers?: { readonly [name: string]: Producer<{ connections: C; topics: T; params: P }> };
  readonly consumers?: { readonly [name: string]: Consumer<{ connections: C; topics: T; params: P }> };
}

/** What a script exports by default. */
export interface Workflow {
  readonly pawl: "workflow";
  readonly name: string;
}

/** Declares the workflow; the script's default export. */
export function workflow<
  const C extends Readonly<Record<string, string>>,
  T extends Readonly<Record<string, Topic<unknown>>>,
  const P extends Readonly<Record<string, Param>>,
>(definition: WorkflowDefinition<C, T, P>): Workflow {
  return { pawl: "workflow", ...definition };
}

/** Declares a producer; call it inside `workflow({ producers: { … } })`, from where `ctx` gets its types. */
export function producer<W extends World, const Pub extends keyof TopicsOf<W> & string = never, S = Json>(
  definition: ProducerDefinition<W, Pub, S>,
): Producer<W> {
  return { pawl: "producer", ...definition } as unknown as Producer<W>;
}

/** Declares a consumer; call it inside `workflow({ consumers: { … } })`, from where `ctx` gets its types. */
export function consumer<
  W extends World,
  const Sub extends keyof TopicsOf<W> & string,
  const Pub extends keyof TopicsOf<W> & string = never,
  S = Json,
  R extends PrepareResult<Sub> = PrepareResult<Sub>,
>(definition: ConsumerDefinition<W, Sub, Pub, S, R>): Consumer<W> {
  return { pawl: "consumer", ...definition } as unknown as Consumer<W>;
}

/** Declares a topic. `topic<Order>()` types its payload; `topic({ schema })` has the host check it too. */
export function topic(options?: TopicOptions): Topic<Json>;
export function topic<T>(options?: TopicOptions): Topic<T>;
export function topic(options?: TopicOptions): Topic<unknown> {
  return { pawl: "topic", ...options };
}
