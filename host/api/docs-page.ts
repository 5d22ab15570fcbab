/** The contract as one page to read: no script, nothing from elsewhere, works offline. */
import { createHash } from "node:crypto";
import { CALLS, openApi } from "./openapi.ts";
import { routeOf } from "./contract.ts";
import { type CallName, placeOf } from "./contract-paths.ts";
import { ERRORS } from "../core/errors.ts";
import { onWire } from "./problems.ts";

const STYLE = `body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f3f3f1;border-radius:3px}code{padding:.1em .3em}pre{padding:.7rem;overflow:auto}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;border-bottom:1px solid #ddd;padding:.35rem .6rem .35rem 0}
h2{margin-top:2.5rem}summary{cursor:pointer;padding:.3rem 0}.role{color:#666}
@media (prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}code,pre{background:#242424}td,th{border-color:#333}.role{color:#999}}`;

/** What a page of ours may load: this style, and nothing else. */
export const DOCS_POLICY = `default-src 'none'; style-src 'sha256-${createHash("sha256").update(STYLE).digest("base64")}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

export function docsPage(): string {
  const document = openApi() as { components: { schemas: Record<string, unknown> } };
  const shapes = Object.entries(document.components.schemas).map(
    ([name, shape]) =>
      `<details id="${text(name)}"><summary><code>${text(name)}</code></summary><pre>${text(JSON.stringify(shape, null, 2))}</pre></details>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Pawl HTTP API</title><style>${STYLE}</style></head><body>
<h1>Pawl HTTP API, version 1</h1>
<p>Send <code>Authorization: Bearer &lt;token&gt;</code>. A token that belongs to no namespace says which one it asks about with <code>Pawl-Namespace</code>; without it, <code>default</code>. Lists take <code>limit</code> (200 at most) and <code>cursor</code>, and answer <code>{ items, nextCursor }</code>. Times are ISO 8601 in UTC. Every POST but login and hooks honours <code>Idempotency-Key</code>: the same key and the same bytes get the first answer again, for 24 hours. The machine-readable form of this page is <a href="/openapi.json">/openapi.json</a>.</p>
<h2>Calls</h2>
${CALLS.map(callSection).join("\n")}
<h2>Shapes</h2>
${shapes.join("\n")}
<h2>Errors</h2>
<p>Every refusal is <code>{ "error": { code, message, hint, path?, location?, requestId } }</code>.</p>
<table><tr><th>code</th><th>status</th><th>what happened</th><th>what to do</th></tr>
${Object.entries(ERRORS)
  .filter(([, row]) => row.http !== undefined)
  .map(
    ([code, row]) =>
      `<tr><td><code>${text(onWire(code))}</code></td><td>${row.http}</td><td>${text(row.summary)}</td><td>${text(row.fix)}</td></tr>`,
  )
  .join("\n")}
</table></body></html>
`;
}

function callSection(name: CallName): string {
  const { role, scope, summary, query, refusals = [], statuses = [200] } = routeOf(name);
  const { method, path } = placeOf(name);
  const who = role === "nobody" ? "no token" : role === "anybody" ? "any token" : `${role} and above`;
  const about = scope === "host" ? ", for the whole host" : "";
  const filters = Object.keys(query?.shape ?? {});
  const lines = [
    `<p>${text(summary)}. <span class="role">${who}${about}; answers ${statuses.join(" or ")}</span></p>`,
    ...(filters.length > 0
      ? [`<p>Query: ${filters.map((one) => `<code>${text(one)}</code>`).join(", ")}</p>`]
      : []),
    ...(refusals.length > 0
      ? [`<p>Refused with ${refusals.map((one) => `<code>${text(onWire(one))}</code>`).join(", ")}</p>`]
      : []),
  ];
  return `<details id="${name}"><summary><code>${method} ${text(path)}</code></summary>${lines.join("")}</details>`;
}

const text = (raw: string): string =>
  raw.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
