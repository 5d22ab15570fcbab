/**
 * OAuth2 access tokens: got with the connection's secrets, kept in memory until shortly before they expire, and given to
 * every call of that connection. Tokens are never stored; a refresh token that the service changes is.
 *
 * K1. One token request at a time per connection; everybody who needs it meanwhile waits for that one.
 * K2. A token belongs to one config and one set of secrets: with other ones nobody gets it.
 * K3. A changed refresh token is stored before the access token that came with it is used. If that fails it is kept in
 *     memory, and stored with the next call.
 * K4. Whatever goes wrong here, the call itself was not sent.
 * K5. Every token is hidden before anybody gets it.
 */
import { createHash } from "node:crypto";
import { canonical } from "../core/intent.ts";
import type { Json } from "../core/workflow.ts";
import { auth, type OpenConnection, permission, rateLimited, transient } from "./define.ts";
import type { Network } from "./egress.ts";
import { type GuardedAnswer, guardedRequest, RequestFailed } from "./egress-request.ts";
import { retryAfter } from "./http-answer.ts";
import { type HttpAuth, type HttpConfig, type HttpSecrets, limitsOf, ruleFor } from "./http-config.ts";

type Connection = OpenConnection<HttpConfig, HttpSecrets>;
type OAuth = Extract<HttpAuth, { tokenUrl: string }>;

interface Token {
  value: string;
  /** Monotonic. */
  untilMs: number;
}

interface Entry {
  secrets: HttpSecrets;
  token?: Token;
  pending?: Promise<Token>;
  /** Changed by the service, and not stored yet. */
  isUnsaved: boolean;
  saving?: Promise<void>;
}

const MOST_ENTRIES = 1_000;
const MARGIN_MS = 30_000;
const UNTOLD_LIFETIME_MS = 300_000;
const LONGEST_LIFETIME_MS = 86_400_000;
const LONGEST_ANSWER = 65_536;
const USABLE = /^[\x21-\x7e]{1,16384}$/;

export class AccessTokens {
  readonly #entries = new Map<string, Entry>();
  readonly #nowMs: () => number;
  readonly #network: Network | undefined;

  constructor({
    nowMs = () => performance.now(),
    network,
  }: { nowMs?: () => number; network?: Network } = {}) {
    this.#nowMs = nowMs;
    this.#network = network;
  }

  /** `isFresh`: it was got for this call, so that a service which refuses it refuses the connection. */
  async get(
    connection: Connection,
    by: OAuth,
    signal: AbortSignal,
  ): Promise<{ value: string; isFresh: boolean }> {
    const entry = this.#entryOf(connection);
    if (entry.isUnsaved) await unlessCalledOff(this.#save(entry, connection), signal);
    const { token } = entry;
    if (token && token.untilMs > this.#nowMs()) {
      connection.hide(token.value); // (K5)
      return { value: token.value, isFresh: false };
    }
    const { value } = await unlessCalledOff(this.#pending(entry, connection, by), signal);
    connection.hide(value);
    return { value, isFresh: true };
  }

  /** The service does not take it any more. Of several who notice, only the first one's word counts. */
  drop(connection: Connection, value: string): void {
    const entry = this.#entryOf(connection);
    if (entry.token?.value === value) delete entry.token;
  }

  /** (K1) Nobody's giving up ends it for the others. */
  #pending(entry: Entry, connection: Connection, by: OAuth): Promise<Token> {
    if (entry.pending) return entry.pending;
    const pending = this.#renew(entry, connection, by).finally(() => delete entry.pending);
    pending.catch(() => {});
    entry.pending = pending;
    return pending;
  }

  async #renew(entry: Entry, connection: Connection, by: OAuth): Promise<Token> {
    const startedMs = this.#nowMs();
    const given = await requestToken(connection, by, entry.secrets, this.#network);
    connection.hide(given.access);
    const renews = by.scheme === "oauth2-refresh-token";
    if (renews && given.refresh !== undefined && given.refresh !== entry.secrets.refreshToken) {
      connection.hide(given.refresh);
      entry.secrets = { ...entry.secrets, refreshToken: given.refresh };
      this.#entries.set(keyOf(connection, entry.secrets), entry); // Who opens the connection anew finds the token, too.
      entry.isUnsaved = true;
      await this.#save(entry, connection); // (K3)
    }
    const marginMs = Math.min(MARGIN_MS, given.lifetimeMs / 2);
    entry.token = { value: given.access, untilMs: startedMs + given.lifetimeMs - marginMs };
    return entry.token;
  }

  /** (K3) */
  #save(entry: Entry, connection: Connection): Promise<void> {
    entry.saving ??= (async () => {
      try {
        await connection.replaceSecrets(entry.secrets);
        entry.isUnsaved = false;
      } catch {
        // Still unsaved: the next call tries again.
      } finally {
        delete entry.saving;
      }
    })();
    return entry.saving;
  }

  /** (K2) */
  #entryOf(connection: Connection): Entry {
    const key = keyOf(connection, connection.secrets);
    const known = this.#entries.get(key);
    if (known) return known;
    for (const [old, { pending, isUnsaved }] of this.#entries) {
      if (this.#entries.size < MOST_ENTRIES) break;
      if (!pending && !isUnsaved) this.#entries.delete(old);
    }
    const entry = { secrets: connection.secrets, isUnsaved: false };
    this.#entries.set(key, entry);
    return entry;
  }
}

function keyOf({ namespace, name, configVersion, config }: Connection, secrets: HttpSecrets): string {
  const parts = [namespace, name, configVersion, config.auth, secrets];
  return createHash("sha256")
    .update(canonical(parts as Json))
    .digest("base64url");
}

interface Given {
  access: string;
  refresh?: string;
  lifetimeMs: number;
}

/** One request to the token endpoint; where it is, is the config's word. (K4) */
async function requestToken(
  connection: Connection,
  by: OAuth,
  secrets: HttpSecrets,
  network: Network | undefined,
): Promise<Given> {
  const { config } = connection;
  const { body, headers } = tokenRequest(connection, by, secrets);
  let answer: GuardedAnswer;
  try {
    answer = await guardedRequest({
      method: "POST",
      url: new URL(by.tokenUrl),
      headers: { accept: "application/json", "content-type": "application/x-www-form-urlencoded" },
      credentials: { headers },
      body,
      rule: ruleFor(config, by.tokenUrl),
      limits: { ...limitsOf(config), bodyBytes: LONGEST_ANSWER },
      ...(network ? { network } : {}),
    });
  } catch (error) {
    if (!(error instanceof RequestFailed)) throw error;
    if (error.why === "refused") throw permission(error.message, { code: "egress-refused" });
    throw transient(`no access token could be had, and the call was not sent: ${error.message}`);
  }
  if (answer.status !== 200) throw refusedBy(answer);
  return givenBy(answer);
}

function tokenRequest(
  connection: Connection,
  { scheme, clientId, clientAuth, scope, params }: OAuth,
  { clientSecret, refreshToken }: HttpSecrets,
): { body: string; headers: Record<string, string> } {
  const renews = scheme === "oauth2-refresh-token";
  const form = new URLSearchParams(params);
  form.set("grant_type", renews ? "refresh_token" : "client_credentials");
  if (scope !== undefined) form.set("scope", scope);
  if (renews) {
    if (refreshToken === undefined) throw auth("the connection lacks the secret refreshToken");
    form.set("refresh_token", refreshToken);
  } else if (clientSecret === undefined) throw auth("the connection lacks the secret clientSecret");
  if (clientAuth === "body" || clientSecret === undefined) {
    form.set("client_id", clientId);
    if (clientSecret !== undefined) form.set("client_secret", clientSecret);
    return { body: form.toString(), headers: {} };
  }
  const pair = Buffer.from(`${encoded(clientId)}:${encoded(clientSecret)}`).toString("base64");
  connection.hide(pair);
  return { body: form.toString(), headers: { authorization: `Basic ${pair}` } };
}

/** As a form would hold it, which is what OAuth2 wants inside of HTTP basic. */
const encoded = (text: string): string => new URLSearchParams([["", text]]).toString().slice(1);

function givenBy(answer: GuardedAnswer): Given {
  const {
    access_token: access,
    refresh_token: refresh,
    expires_in: lifetime,
    token_type: type,
  } = fieldsOf(answer);
  if (typeof access !== "string" || !USABLE.test(access))
    throw transient("the token endpoint answered without an access token, and the call was not sent");
  if (typeof type === "string" && type.toLowerCase() !== "bearer")
    throw auth("the token endpoint gives out tokens of another kind than bearer");
  const seconds = typeof lifetime === "string" ? Number.parseInt(lifetime, 10) : lifetime;
  const told =
    typeof seconds === "number" && Number.isFinite(seconds) ? Math.max(0, seconds * 1_000) : undefined;
  return {
    access,
    ...(typeof refresh === "string" && refresh !== "" ? { refresh } : {}),
    lifetimeMs: Math.min(told ?? UNTOLD_LIFETIME_MS, LONGEST_LIFETIME_MS),
  };
}

/** (K4) */
function refusedBy(answer: GuardedAnswer): Error {
  const { status } = answer;
  const { error } = fieldsOf(answer);
  const word = typeof error === "string" && /^[\w.-]{1,40}$/.test(error) ? ` (${error})` : "";
  const what = `the token endpoint answered ${status}${word}, and the call was not sent`;
  const retryAfterMs = retryAfter(answer);
  const wish = retryAfterMs === undefined ? {} : { retryAfterMs };
  if (status === 429) return rateLimited({ ...wish, message: what });
  if (status === 408 || status === 425 || status < 400 || status >= 500) return transient(what);
  const isRevoked = error === "invalid_grant";
  return auth(isRevoked ? `${what}: the refresh token was revoked, or is too old` : what);
}

function fieldsOf({ bytes }: GuardedAnswer): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(bytes.toString());
    return typeof found === "object" && found !== null ? (found as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Who gives up no longer waits; the work goes on for the others. */
async function unlessCalledOff<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = (): void => {};
  const ended = new Promise<never>((_, reject) => {
    stop = () => reject(transient("the call was ended early, and nothing was sent"));
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
  });
  try {
    return await Promise.race([work, ended]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
