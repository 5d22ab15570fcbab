/**
 * Whether a POST only reads. A connection lists the paths; where one path takes both kinds, the body must show that it is
 * of the reading one. What cannot be told is refused (06).
 */
import { isBaseOrigin, isPathLike, pathBelow } from "./http-path.ts";
import type { HttpConfig, ReadOnlyPath } from "./http-config.ts";

/** Why `query` may not be sent; nothing when it may. */
export function readOnlyProblem(
  config: Pick<HttpConfig, "baseUrl" | "hosts" | "readOnly">,
  url: URL,
  body: unknown,
): string | undefined {
  const path = isBaseOrigin(url, config) ? pathBelow(url, config) : undefined;
  const listed = config.readOnly.filter((one) => path !== undefined && isPathLike(path, one.path));
  if (listed.length === 0)
    return `${url.pathname} is not listed in \`readOnly\` of the connection: whoever runs it says which POSTs only read`;
  if (url.searchParams.has("_method") || fieldOf(body, "_method") !== undefined)
    return "`_method` would turn the call into another one";
  const problems = listed.map((one) => bodyProblem(one, body));
  return problems.includes(undefined) ? undefined : problems[0];
}

function bodyProblem({ graphql, methods, path }: ReadOnlyPath, body: unknown): string | undefined {
  if (!graphql && !methods) return undefined;
  const calls: unknown[] = Array.isArray(body) ? body : [body];
  if (calls.length === 0) return `an empty batch is nothing to ask ${path}`;
  for (const call of calls) {
    if (graphql && !isGraphqlQuery(fieldOf(call, "query")))
      return `${path} takes only GraphQL queries: \`query\` must be one, and no mutation or subscription`;
    const method = fieldOf(call, "method");
    if (methods && !(typeof method === "string" && methods.includes(method)))
      return `${path} takes only the methods ${methods.join(", ")}`;
  }
  return undefined;
}

const fieldOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;

const TEXTS = /"""(?:\\"""|[^])*?"""|"(?:\\.|[^"\\\n\r])*"|#[^\n\r]*/g;

/** Only the words outside of all brackets say what a document does. Strict where it is unsure: a name may look like one. */
function isGraphqlQuery(text: unknown): boolean {
  if (typeof text !== "string" || text.trim() === "") return false;
  const plain = text.replace(TEXTS, " ");
  if (plain.includes('"')) return false;
  let depth = 0;
  let outside = "";
  for (const c of plain) {
    if (c === "{" || c === "(" || c === "[") depth++;
    outside += depth === 0 ? c : " ";
    if ((c === "}" || c === ")" || c === "]") && --depth < 0) return false;
  }
  return depth === 0 && !/\b(mutation|subscription|extend|schema)\b/.test(outside);
}
