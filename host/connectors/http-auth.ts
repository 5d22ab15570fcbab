/**
 * How a connection shows who it is, by scheme. Credentials are made for one request at a time and added last; they are
 * never part of what is described, fingerprinted or recorded.
 */
import type { Misfit } from "../ports/connections.ts";
import { auth, type OpenConnection } from "./define.ts";
import type { Credentials } from "./egress-request.ts";
import type { HttpConfig, HttpSecrets } from "./http-config.ts";
import type { AccessTokens } from "./http-tokens.ts";

type Connection = OpenConnection<HttpConfig, HttpSecrets>;

export interface Pass {
  credentials: Credentials;
  /** OAuth2. */
  token?: { value: string; isFresh: boolean };
}

/** Throws typed errors only, all of which prove that the call was not sent. */
export async function passOf(
  connection: Connection,
  tokens: AccessTokens,
  signal: AbortSignal,
): Promise<Pass> {
  const { config, secrets } = connection;
  const by = config.auth;
  switch (by.scheme) {
    case "none":
      return { credentials: {} };
    case "basic": {
      const pair = Buffer.from(`${by.username}:${needed(secrets, "password")}`).toString("base64");
      connection.hide(pair);
      return bearing(`Basic ${pair}`);
    }
    case "bearer":
      return bearing(`Bearer ${needed(secrets, "token")}`);
    case "api-key-header":
      return { credentials: { headers: { [by.name]: needed(secrets, "apiKey") } } };
    case "api-key-query":
      return { credentials: { query: { [by.name]: needed(secrets, "apiKey") } } };
    case "oauth2-client-credentials":
    case "oauth2-refresh-token": {
      const token = await tokens.get(connection, by, signal);
      return { ...bearing(`Bearer ${token.value}`), token };
    }
    default:
      return by satisfies never;
  }
}

const NEEDED: Record<HttpConfig["auth"]["scheme"], readonly (keyof HttpSecrets)[]> = {
  none: [],
  basic: ["password"],
  bearer: ["token"],
  "api-key-header": ["apiKey"],
  "api-key-query": ["apiKey"],
  "oauth2-client-credentials": ["clientSecret"],
  "oauth2-refresh-token": ["refreshToken"],
};

/** Secrets that the scheme cannot do without, before anybody tries. */
export function missingSecrets({ auth: { scheme } }: HttpConfig, secrets: HttpSecrets): Misfit[] {
  return NEEDED[scheme]
    .filter((name) => secrets[name] === undefined)
    .map((name) => ({ path: `secrets.${name}`, message: `is missing: the scheme ${scheme} needs it` }));
}

const bearing = (authorization: string): Pass => ({ credentials: { headers: { authorization } } });

function needed(secrets: HttpSecrets, name: keyof HttpSecrets): string {
  const value = secrets[name];
  if (value === undefined) throw auth(`the connection lacks the secret ${name}`);
  return value;
}
