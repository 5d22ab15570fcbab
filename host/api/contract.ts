/**
 * The contract: every call of the HTTP API with its place, its role and the shapes of its requests and answers. The one
 * source of validation, roles, the OpenAPI document, `/docs` and the client.
 *
 * C1. Every name of PATHS has a row, and no other name has one.
 */
import type { z } from "zod";
import { adminCalls } from "./contract-admin.ts";
import type { CallName, PATHS } from "./contract-paths.ts";
import type { Route } from "./contract-route.ts";
import { runCalls } from "./contract-runs.ts";
import { workflowCalls } from "./contract-workflows.ts";

export const CONTRACT = { ...workflowCalls, ...runCalls, ...adminCalls } satisfies Record<CallName, Route>; // (C1)

export type Contract = typeof CONTRACT;

export const routeOf = (name: CallName): Route => CONTRACT[name];

type Params<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | Params<Rest>
  : never;
export type ParamsOf<Name extends CallName> = Params<(typeof PATHS)[Name]>;

type Shape<Name extends CallName, Part extends string> =
  Contract[Name] extends Record<Part, infer Given extends z.ZodType> ? Given : undefined;
type Read<Given> = Given extends z.ZodType ? z.output<Given> : undefined;
type Written<Given> = Given extends z.ZodType ? z.input<Given> : undefined;

/** As the host has read them. */
export type QueryOf<Name extends CallName> = Read<Shape<Name, "query">>;
export type BodyOf<Name extends CallName> = Read<Shape<Name, "body">>;
/** As a client writes them. */
export type QueryFor<Name extends CallName> = Written<Shape<Name, "query">>;
export type BodyFor<Name extends CallName> = Written<Shape<Name, "body">>;
export type AnswerOf<Name extends CallName> = z.output<Contract[Name]["answer"]>;
