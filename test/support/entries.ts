// A small service as the `http` connector meets them: entries that are made, changed and taken away, each with a tag of
// its state; and where asked, a place that gives out access tokens.
import { httpOutside, type HttpDoing, type HttpOutside, type HttpRequest } from "../../host/testing.ts";

const REFRESH = "refresh-token-of-the-entries";

interface Entry {
  title: string;
  version: number;
}

export interface EntriesOptions {
  /** Knows the keys that it has seen, for every method. */
  keyed?: boolean;
  /** Gives out tokens at /token, and asks for them. */
  oauth?: boolean;
}

/** Entries called `old-…` have always been there, in version 1. */
export function entriesService(
  { keyed = false, oauth = false }: EntriesOptions = {},
  connection: object = {},
  secrets: object = { token: "token-of-the-entries" },
): Promise<HttpOutside> {
  const entries = new Map<string, Entry>();
  const gone = new Set<string>();
  const known = new Map<string, object>();
  let given = 0;
  let access = oauth ? "" : "token-of-the-entries";
  const find = (id: string): Entry | undefined => {
    if (gone.has(id)) return undefined;
    return entries.get(id) ?? (id.startsWith("old-") ? { title: "old", version: 1 } : undefined);
  };
  const shown = (id: string): HttpDoing => {
    const entry = find(id);
    if (!entry) return { status: 404, body: { error: "not here" } };
    return { status: 200, headers: { etag: `"v${entry.version}"` }, body: { id, ...entry } };
  };
  const change = (method: string, id: string, title: string): object => {
    if (method === "DELETE") {
      gone.add(id);
      return {};
    }
    gone.delete(id);
    entries.set(id, { title, version: (find(id)?.version ?? 0) + 1 });
    return { id, title };
  };
  const token = (body: unknown): HttpDoing => {
    const form = new URLSearchParams(String(body));
    if (form.get("refresh_token") !== REFRESH) return { status: 400, body: { error: "invalid_grant" } };
    access = `access-token-${++given}`;
    return { status: 200, body: { access_token: access, token_type: "bearer", expires_in: 3_600 } };
  };
  const does = ({ method, path, headers, body }: HttpRequest): HttpDoing => {
    const url = new URL(path, "http://entries");
    if (url.pathname === "/token") return token(body);
    if (headers["authorization"] !== `Bearer ${access}`) return { status: 401, body: { error: "who?" } };
    const asked = (body ?? {}) as { id?: string; title?: string };
    const id = method === "POST" ? (asked.id ?? "") : (url.pathname.split("/").at(-1) ?? "");
    if (url.pathname.startsWith("/by-title/")) {
      const has = [...entries].some(([one, { title }]) => !gone.has(one) && title === decodeURIComponent(id));
      return { status: has ? 200 : 404, body: {} };
    }
    if (method === "GET") return shown(id);
    const key = headers["idempotency-key"] ?? "";
    const before = keyed ? known.get(key) : undefined;
    if (before) return { status: 200, body: before };
    const wanted = headers["if-match"];
    if (wanted !== undefined && wanted !== `"v${find(id)?.version ?? 0}"`) return { status: 412, body: {} };
    return {
      effect: () => {
        const made = change(method, id, asked.title ?? "");
        known.set(key, made);
        return { status: method === "POST" ? 201 : 200, body: made };
      },
    };
  };
  const auth = (url: string) =>
    oauth
      ? { scheme: "oauth2-refresh-token", tokenUrl: `${url}/token`, clientId: "pawl", clientAuth: "body" }
      : { scheme: "bearer" };
  return httpOutside(does, (url) => ({
    config: { baseUrl: url, allowPrivateNetwork: true, auth: auth(url), ...connection },
    secrets: oauth ? { refreshToken: REFRESH } : secrets,
  }));
}
