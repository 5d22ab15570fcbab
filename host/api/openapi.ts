/** The contract as an OpenAPI 3.1 document: the schemas that validate requests are the ones it shows. */
import { z } from "zod";
import { ERRORS, type ErrorCode } from "../core/errors.ts";
import { routeOf } from "./contract.ts";
import { type CallName, PATHS, placeOf } from "./contract-paths.ts";
import type { Route } from "./contract-route.ts";
import { problem } from "./contract-shapes.ts";

type Schema = Record<string, unknown>;
type Io = "input" | "output";

export const CALLS = Object.keys(PATHS) as CallName[];

const COMPONENT = "#/components/schemas/";

class Components {
  readonly schemas: Record<string, Schema> = {};

  /** Shapes with a name stand once, under it. */
  of(shape: z.ZodType, io: Io): Schema {
    const {
      $schema: _,
      $defs = {},
      ...schema
    } = z.toJSONSchema(shape, {
      io,
      unrepresentable: "any",
      target: "draft-2020-12",
    }) as Schema & { $defs?: Record<string, Schema> };
    for (const [name, definition] of Object.entries($defs))
      this.schemas[name] = renamed(definition) as Schema;
    const { id, ...rest } = schema as Schema & { id?: string };
    if (id === undefined) return renamed(rest) as Schema;
    this.schemas[id] = renamed(rest) as Schema;
    return { $ref: `${COMPONENT}${id}` };
  }
}

/** `#/$defs/Run` → `#/components/schemas/Run` */
function renamed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(renamed);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([key]) => key !== "id" || !("properties" in value));
  return Object.fromEntries(
    entries.map(([key, one]) =>
      key === "$ref" && typeof one === "string"
        ? [key, one.replace("#/$defs/", COMPONENT)]
        : [key, renamed(one)],
    ),
  );
}

export function openApi(): Schema {
  const components = new Components();
  components.of(problem, "output");
  const paths: Record<string, Record<string, Schema>> = {};
  for (const name of CALLS) {
    const { method, path } = placeOf(name);
    const at = (paths[path] ??= {});
    at[method.toLowerCase()] = operationOf(name, routeOf(name), components);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Pawl",
      version: "1",
      description:
        "Every call of a Pawl host. Errors have one shape; lists go on by `cursor`; `Idempotency-Key` is honoured on every POST.",
    },
    servers: [{ url: "/" }],
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: {
        token: { type: "http", scheme: "bearer" },
        session: { type: "apiKey", in: "cookie", name: "pawl_session" },
      },
      schemas: components.schemas,
    },
  };
}

function operationOf(name: CallName, route: Route, components: Components): Schema {
  const { method, path } = placeOf(name);
  const { answer, body, query, role, media = "application/json", statuses = [200] } = route;
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, param = ""]) => ({
    name: param,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const content = { [media.split(";")[0] ?? media]: { schema: components.of(answer, "output") } };
  const responses: Record<string, Schema> = {};
  for (const status of statuses) responses[String(status)] = { description: route.summary, content };
  const asProblem = { "application/json": { schema: { $ref: `${COMPONENT}Problem` } } };
  for (const [status, said] of refusalsOf(route))
    responses[status] = { description: said, content: asProblem };
  responses["default"] = { description: "Why it was refused", content: asProblem };
  return {
    operationId: name,
    summary: route.summary,
    "x-pawl-role": role,
    ...(route.scope ? { "x-pawl-scope": route.scope } : {}),
    parameters: [...inPath, ...parametersOf(query, components), ...headersOf(route, method)],
    ...(body
      ? {
          requestBody: {
            required: !body.safeParse(undefined).success,
            content: { "application/json": { schema: components.of(body, "input") } },
          },
        }
      : {}),
    ...(route.raw
      ? { requestBody: { required: true, content: { "application/json": { schema: {} } } } }
      : {}),
    ...(role === "nobody" ? { security: [] } : {}),
    responses,
  };
}

function parametersOf(query: z.ZodObject | undefined, components: Components): Schema[] {
  return Object.entries(query?.shape ?? {}).map(([name, shape]) => ({
    name,
    in: "query",
    required: !(shape as z.ZodType).safeParse(undefined).success,
    schema: components.of(shape as z.ZodType, "input"),
  }));
}

function headersOf({ role, scope }: Route, method: string): Schema[] {
  const text = { type: "string" };
  return [
    ...(role === "nobody" || scope === "host"
      ? []
      : [{ name: "Pawl-Namespace", in: "header", required: false, schema: text }]),
    ...(method === "POST" && role !== "nobody"
      ? [{ name: "Idempotency-Key", in: "header", required: false, schema: { ...text, maxLength: 255 } }]
      : []),
  ];
}

/** Status → its codes, in words. */
function refusalsOf({ refusals = [] }: Route): [status: string, said: string][] {
  const byStatus = Map.groupBy(refusals as readonly ErrorCode[], (code) => String(ERRORS[code].http ?? 500));
  return [...byStatus].map(([status, codes]) => [
    status,
    codes.map((code) => code.replaceAll("-", "_")).join(", "),
  ]);
}
