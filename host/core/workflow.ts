/**
 * The noun "workflow" as its script declares it: plain data, read once at upload and stored. From then on the host
 * believes this manifest and never the object inside the sandbox.
 */

/** JSON text that passed the boundary as text; parsed only where its content matters. */
export type JsonText = string;

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** A position in the author's own file, both counted from 1. */
export interface Location {
  line: number;
  column: number;
}

export type Schedule = { interval: string; intervalMs: number } | { cron: string; timezone: string };

export interface TopicDeclaration {
  /** The events are the workflow's productions and are streamed outward. */
  output: boolean;
  /** JSON Schema that the host checks on publish. */
  schema?: Json;
}

export interface ParamDeclaration {
  type: "string" | "number" | "boolean";
  default?: string | number | boolean;
  description?: string;
}

export interface HookDeclaration {
  alias: string;
  topic: string;
  messageId: string;
}

export interface ProducerDeclaration {
  schedule: Schedule;
  publishes: string[];
  location?: Location;
}

export interface ConsumerDeclaration {
  subscribes: string[];
  publishes: string[];
  hasMutate: boolean;
  hasNext: boolean;
  location?: Location;
}

export interface Manifest {
  name: string;
  description: string;
  /** alias → connector */
  connections: Record<string, string>;
  topics: Record<string, TopicDeclaration>;
  params: Record<string, ParamDeclaration>;
  hooks: Record<string, HookDeclaration>;
  producers: Record<string, ProducerDeclaration>;
  consumers: Record<string, ConsumerDeclaration>;
}

/** Names of workflows, handlers, topics, aliases and params. */
export const NAME_PATTERN = /^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$/;

/** What every handler's `ctx` carries; a connection alias may not take one of these names. */
export const CTX_MEMBERS = [
  "log",
  "now",
  "params",
  "run",
  "peek",
  "getByIds",
  "publish",
  "registerInput",
] as const;
