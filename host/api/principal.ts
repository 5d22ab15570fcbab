/**
 * Who asks: a bearer token, or a session that one opened. Nothing is remembered of a token but its hash; what it may is
 * looked up with every request, so that revoking it holds at once.
 *
 * T1. A token has 256 random bits, is shown once, and is known by its SHA-256.
 * T2. Roles are ordered, and what is not allowed is refused. A token of one namespace asks about no other, and not about
 *     the host.
 * T3. A session is no more than its token: it ends with it. Its cookie alone changes nothing (CSRF).
 * T4. A one-time link opens one session, once, within five minutes.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { NAME_PATTERN } from "../core/workflow.ts";
import { formatId } from "../core/ids.ts";
import type { Token, TokenId, TokenRole, Tokens } from "../ports/principals.ts";
import { ROLES, type Route } from "./contract-route.ts";
import { Refusal } from "./problems.ts";

export const COOKIE = "pawl_session";
const SESSION_MS = 12 * 3_600_000;
const LINK_MS = 5 * 60_000;
const MOST_SESSIONS = 10_000;
const HOME = "default";

export interface Principal {
  token: TokenId;
  /** As the audit names it. */
  name: string;
  role: TokenRole;
  /** Absent: it may ask for any, and about the host. */
  namespace?: string;
  expiresAtMs?: number;
  /** Of the session, where it came with a cookie. */
  session?: string;
}

interface Session {
  token: TokenId;
  csrf: string;
  untilMs: number;
}

export interface Credentials {
  authorization: string | undefined;
  cookie: string | undefined;
  csrf: string | undefined;
  isChange: boolean;
}

export const newSecret = (prefix: string): string => `${prefix}_${randomBytes(32).toString("base64url")}`; // (T1)
export const hashOf = (secret: string): string => createHash("sha256").update(secret).digest("hex");

const unknown = (message: string): Refusal =>
  new Refusal("unauthenticated", message, {}, { "www-authenticate": 'Bearer realm="pawl"' });

export class Principals {
  readonly #tokens: () => Tokens;
  readonly #nowMs: () => number;
  readonly #sessions = new Map<string, Session>();
  readonly #links = new Map<string, { token: TokenId; untilMs: number }>();

  constructor(tokens: () => Tokens, nowMs: () => number) {
    this.#tokens = tokens;
    this.#nowMs = nowMs;
  }

  async of({ authorization, cookie, csrf, isChange }: Credentials): Promise<Principal> {
    if (authorization !== undefined) {
      const secret = /^Bearer ([\w-]{1,200})$/i.exec(authorization)?.[1];
      const token = secret === undefined ? undefined : await this.#tokens().hashed(hashOf(secret));
      return this.#living(token);
    }
    const id = cookieOf(cookie);
    if (id === undefined) throw unknown("the request says nobody's name");
    const session = this.#sessions.get(hashOf(id));
    if (!session || session.untilMs <= this.#nowMs()) throw unknown("the session has ended");
    const principal = this.#living(await this.#tokens().one(session.token)); // (T3)
    if (isChange && !same(csrf ?? "", session.csrf))
      throw new Refusal("csrf-missing", "a session's cookie alone changes nothing");
    return { ...principal, session: hashOf(id) };
  }

  /** Still good? For what stays open for long. */
  async holds(id: TokenId): Promise<boolean> {
    const token = await this.#tokens().one(id);
    return token !== undefined && this.#isLiving(token);
  }

  async login(given: { token?: string | undefined; link?: string | undefined }): Promise<{
    id: string;
    csrf: string;
    untilMs: number;
    principal: Principal;
  }> {
    const principal = this.#living(await this.#named(given));
    const [id, csrf] = [newSecret("session"), newSecret("csrf")];
    const untilMs = Math.min(this.#nowMs() + SESSION_MS, principal.expiresAtMs ?? Number.POSITIVE_INFINITY);
    this.#forget(this.#sessions);
    this.#sessions.set(hashOf(id), { token: principal.token, csrf, untilMs });
    return { id, csrf, untilMs, principal };
  }

  logout({ session }: Principal): void {
    if (session !== undefined) this.#sessions.delete(session);
  }

  /** (T4) */
  link({ token }: Principal): { link: string; untilMs: number } {
    const link = newSecret("link");
    const untilMs = this.#nowMs() + LINK_MS;
    this.#forget(this.#links);
    this.#links.set(hashOf(link), { token, untilMs });
    return { link, untilMs };
  }

  async #named({ token, link }: { token?: string | undefined; link?: string | undefined }) {
    if ((token === undefined) === (link === undefined))
      throw new Refusal("request-invalid", "say a token or a link", { path: "" });
    if (token !== undefined) return this.#tokens().hashed(hashOf(token));
    const hash = hashOf(link ?? "");
    const known = this.#links.get(hash);
    this.#links.delete(hash);
    return known && known.untilMs > this.#nowMs() ? this.#tokens().one(known.token) : undefined;
  }

  #living(token: Token | undefined): Principal {
    if (!token || !this.#isLiving(token)) throw unknown("nobody has this token, or not any more");
    const { id, name, role, namespace, expiresAtMs } = token;
    return {
      token: id,
      name: `${name} (${formatId("token", id)})`,
      role,
      ...(namespace === undefined ? {} : { namespace }),
      ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
    };
  }

  #isLiving({ revokedAtMs, expiresAtMs = Number.POSITIVE_INFINITY }: Token): boolean {
    return revokedAtMs === undefined && expiresAtMs > this.#nowMs();
  }

  #forget(known: Map<string, { untilMs: number }>): void {
    const nowMs = this.#nowMs();
    for (const [key, { untilMs }] of known)
      if (untilMs <= nowMs || known.size >= MOST_SESSIONS) known.delete(key);
  }
}

/** Which namespace is asked about. (T2) */
export function namespaceOf(principal: Principal | undefined, asked: string | undefined): string {
  if (asked !== undefined && !NAME_PATTERN.test(asked))
    throw new Refusal("request-invalid", "Pawl-Namespace is no name", { path: "Pawl-Namespace" });
  const own = principal?.namespace;
  if (asked !== undefined && own !== undefined && asked !== own)
    throw new Refusal("forbidden", "the token is one of another namespace");
  return asked ?? own ?? HOME;
}

/** Deny by default. (T2) */
export function authorize({ role, namespace }: Principal, route: Pick<Route, "role" | "scope">): void {
  if (route.scope === "host" && namespace !== undefined)
    throw new Refusal("forbidden", "this is about the whole host; the token is one of a namespace");
  if (route.role === "anybody" || route.role === "nobody") return;
  if (ROLES.indexOf(role) < ROLES.indexOf(route.role))
    throw new Refusal("forbidden", `this takes the role ${route.role}; the token has ${role}`);
}

function cookieOf(header: string | undefined): string | undefined {
  for (const pair of header?.split(";") ?? []) {
    const [name, value] = pair.trim().split("=", 2);
    if (name === COOKIE && value !== undefined && /^[\w-]{1,200}$/.test(value)) return value;
  }
  return undefined;
}

const same = (a: string, b: string): boolean =>
  timingSafeEqual(Buffer.from(hashOf(a), "hex"), Buffer.from(hashOf(b), "hex"));
