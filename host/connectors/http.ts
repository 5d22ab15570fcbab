/**
 * The built-in connector for services that speak HTTP: reads, changes, and how a change whose answer was lost is looked
 * up. Puts its neighbours in order: `http-call.ts` makes the request, `http-auth.ts` the credentials, `egress-request.ts`
 * the exchange, `http-answer.ts` says what came of it.
 *
 * T1. A change leaves once per call; nothing here sends it again.
 * T2. Credentials go to the origin of `baseUrl` and nowhere else.
 * T3. A read that is refused with a cached access token is made once more with a new one. A change is not: it is proven
 *     unsent, and the next attempt has a new token.
 * T4. A check reads, behind the same guard; whom the service does not let in there is told so, not "not there".
 */
import { z } from "zod";
import {
  applied,
  auth,
  type CheckContext,
  defineConnector,
  type Health,
  mutation,
  notApplied,
  read,
  type ReadContext,
  ToolError,
  transient,
  unsure,
  type Verdict,
} from "./define.ts";
import type { Network } from "./egress.ts";
import { type GuardedAnswer, guardedRequest, RequestFailed } from "./egress-request.ts";
import { changeResult, readResult, resultOf, unanswered } from "./http-answer.ts";
import { missingSecrets, type Pass, passOf } from "./http-auth.ts";
import {
  bytesOf,
  type Change,
  changing,
  described,
  type HttpConnection,
  type Method,
  type MutationCall,
  mutationInput,
  type Outgoing,
  outgoing,
  outgoingQuery,
  queryInput,
  type ReadCall,
  readInput,
} from "./http-call.ts";
import { httpConfig, type HttpSecrets, httpSecrets, limitsOf, ruleOf } from "./http-config.ts";
import { isBaseOrigin } from "./http-path.ts";
import { filled, verdictOf } from "./http-recipe.ts";
import { AccessTokens } from "./http-tokens.ts";

type Connection = HttpConnection<HttpSecrets>;

const MOST_REDIRECTS = 5;

const output = z.strictObject({
  status: z.int(),
  headers: z.record(z.string(), z.string()),
  body: z.unknown(),
});

export interface HttpOptions {
  /** How the outside is reached; tests bring their own. */
  network?: Network;
  /** Monotonic. */
  nowMs?: () => number;
}

export function httpConnector({ network, nowMs }: HttpOptions = {}) {
  const reach = new Reach(network, nowMs);
  return defineConnector({
    name: "http",
    config: httpConfig,
    secrets: httpSecrets,
    fits: missingSecrets,
    check: (connection: Connection, { signal }: ReadContext) => reach.health(connection, signal),
    tools: {
      get: reach.reading("GET"),
      head: reach.reading("HEAD"),
      query: read({
        input: queryInput,
        output,
        run: (connection: Connection, call, { signal }) =>
          reach.read(connection, outgoingQuery(connection.config, call), call, signal),
      }),
      post: reach.changing("POST"),
      put: reach.changing("PUT"),
      patch: reach.changing("PATCH"),
      delete: reach.changing("DELETE"),
    },
  });
}

class Reach {
  readonly #network: { network?: Network };
  readonly #tokens: AccessTokens;

  constructor(network: Network | undefined, nowMs: (() => number) | undefined) {
    this.#network = network ? { network } : {};
    this.#tokens = new AccessTokens({ ...this.#network, ...(nowMs ? { nowMs } : {}) });
  }

  reading(method: "GET" | "HEAD") {
    return read({
      input: readInput,
      output,
      run: (connection: Connection, call: ReadCall, { signal }) =>
        this.read(connection, outgoing(connection.config, method, call), call, signal),
    });
  }

  changing(method: Method) {
    const change = ({ config }: HttpConnection, call: MutationCall) => changing(config, method, call);
    return mutation({
      input: mutationInput,
      output,
      describe: (call: MutationCall, connection: HttpConnection) => described(change(connection, call), call),
      bytes: (call: MutationCall, connection: HttpConnection) => bytesOf(change(connection, call)),
      proof: (call: MutationCall, connection: HttpConnection) => change(connection, call).proof,
      settleMs: ({ config }: HttpConnection) => config.settleMs,
      run: (connection: Connection, call: MutationCall, { signal, idempotencyKey }) =>
        this.#send(connection, { ...change(connection, call), call, key: idempotencyKey }, signal),
      reconcile: async (connection: Connection, call: MutationCall, context) => {
        try {
          return await this.#verdict(connection, change(connection, call), call, context);
        } catch (error) {
          // Ours, not the service's: new credentials would not mend it.
          if (error instanceof ToolError && error.code === "egress-refused") return unsure(error.message);
          throw error;
        }
      },
    });
  }

  async read(
    connection: Connection,
    request: Outgoing,
    { accept, timeoutMs }: Pick<ReadCall, "accept" | "timeoutMs">,
    signal: AbortSignal,
  ) {
    // An accepted redirect is the answer that was asked for.
    const follows = !accept?.some((status) => status >= 300 && status < 400);
    const answer = await this.#asked(connection, request, { timeoutMs, follows, signal });
    return readResult(answer, request.method, accept);
  }

  /** (T3) */
  async #asked(
    connection: Connection,
    request: Outgoing,
    { signal, timeoutMs, follows = true }: Asking,
  ): Promise<GuardedAnswer> {
    const how = { redirects: follows ? MOST_REDIRECTS : 0, timeoutMs, signal };
    try {
      const pass = await this.#pass(connection, request, signal);
      const answer = await this.#exchange(connection, request, pass, how);
      if (answer.status !== 401 || !pass.token) return answer;
      this.#tokens.drop(connection, pass.token.value);
      if (pass.token.isFresh) return answer;
      return await this.#exchange(connection, request, await this.#pass(connection, request, signal), how);
    } catch (error) {
      throw error instanceof RequestFailed ? unanswered(error, "read") : error;
    }
  }

  /** (T1) */
  async #send(connection: Connection, change: Sending, signal: AbortSignal) {
    const { config } = connection;
    const { method, call, key, sendsKey } = change;
    const { timeoutMs, accept } = call;
    const keyed = sendsKey ? { [config.idempotencyHeader]: key } : {};
    const request = { ...change, headers: { ...change.headers, ...keyed } };
    const pass = await this.#pass(connection, request, signal);
    let answer: GuardedAnswer;
    try {
      answer = await this.#exchange(connection, request, pass, { redirects: 0, timeoutMs, signal });
    } catch (error) {
      throw error instanceof RequestFailed ? unanswered(error, "change") : error;
    }
    const isRefused = answer.status === 401 && pass.token !== undefined && !accept?.includes(401);
    if (isRefused && pass.token) {
      this.#tokens.drop(connection, pass.token.value); // (T3)
      if (!pass.token.isFresh)
        throw transient("the service answered 401 to an access token that was not new: it is got anew");
    }
    return changeResult(answer, method, { accept, retryAfterIsProof: config.retryAfterIsProof });
  }

  /** (T4) */
  async #verdict(
    connection: Connection,
    { proof, recipe, ifMatch, url }: Change,
    call: MutationCall,
    { signal, idempotencyKey }: CheckContext,
  ): Promise<Verdict> {
    const { config } = connection;
    const ask = async (url?: URL, path = "") => {
      const request = outgoing(config, "GET", { path });
      return unlessShutOut(await this.#asked(connection, url ? { ...request, url } : request, { signal }));
    };
    if (proof === "lookup" && recipe) {
      const path = filled(recipe, { key: idempotencyKey, args: { ...call } });
      if (!path.ok) return unsure(`the call has no ${path.missing}`);
      const found = resultOf(await ask(undefined, path.path), "GET");
      const { status, headers, body } = found;
      const isWhole = !("problem" in found);
      const verdict = verdictOf(recipe, isWhole ? { status, body } : { status });
      if (verdict === "notApplied") return notApplied();
      if (verdict === "applied") return isWhole ? applied({ status, headers, body }) : applied();
      return unsure(`the check answered ${status}, which fits both conditions, or neither`);
    }
    if (proof === "conditional" && ifMatch !== undefined) {
      const { status, headers } = await ask(url);
      const isSame = status >= 200 && status < 300 && bare(headers["etag"]) === bare(ifMatch);
      return isSame ? notApplied() : unsure(`the state is not the one the call was made for (${status})`);
    }
    return unsure("nothing can be asked about this call");
  }

  async health(connection: Connection, signal: AbortSignal): Promise<Health> {
    const { config } = connection;
    const { checkPath } = config;
    try {
      const request = outgoing(config, "GET", { path: checkPath ?? "" });
      const { status } = unlessShutOut(await this.#asked(connection, request, { signal }));
      const isGood = status < 300 || (checkPath === undefined && status < 500 && status !== 429);
      const message = `the service answered ${status} to GET ${request.url.href}`;
      return isGood ? { status: "ok" } : { status: "unreachable", message };
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      return { status: error.class === "auth" ? "auth" : "unreachable", message: error.message };
    }
  }

  /** (T2) */
  async #pass(connection: Connection, { url }: Outgoing, signal: AbortSignal): Promise<Pass> {
    if (!isBaseOrigin(url, connection.config)) return { credentials: {} };
    return passOf(connection, this.#tokens, signal);
  }

  #exchange(
    { config }: Connection,
    { method, url, headers, body }: Outgoing,
    { credentials }: Pass,
    {
      redirects,
      timeoutMs,
      signal,
    }: { redirects: number; timeoutMs: number | undefined; signal: AbortSignal },
  ): Promise<GuardedAnswer> {
    return guardedRequest({
      method,
      url,
      headers,
      credentials,
      rule: ruleOf(config),
      limits: limitsOf(config, timeoutMs),
      redirects,
      signal,
      ...(body === undefined ? {} : { body }),
      ...this.#network,
    });
  }
}

interface Asking {
  signal: AbortSignal;
  timeoutMs?: number | undefined;
  follows?: boolean;
}

type Sending = Change & { call: MutationCall; key: string };

/** (T4) */
function unlessShutOut(answer: GuardedAnswer): GuardedAnswer {
  if (answer.status === 401 || answer.status === 403)
    throw auth(`the service answered ${answer.status} to a check`);
  return answer;
}

/** Some services show a tag without its quotes. */
const bare = (tag: string | undefined): string | undefined => tag?.replace(/^"|"$/g, "");

export const http = httpConnector();
