/**
 * One conversation with a mail server: opened to a checked address, logged in, at most one message, closed. Knows what
 * each failure proves (06); not what is in the mail.
 *
 * P1. Until the first byte of the message is asked for, whatever goes wrong proves that nothing was sent. After it only the
 *     server's own definite refusal does.
 * P2. A definite refusal of a message is a 5xx, or a 4xx that gives a reason about the mail: mailbox, room or policy. Any
 *     other 4xx there is a server in trouble, which may have taken the message all the same.
 * P3. A password goes over TLS, or to a private address; certificates are always verified.
 * P4. The time is one budget for all of it; an end that is asked for comes at once.
 */
import { isIP, type Socket } from "node:net";
import { Readable } from "node:stream";
import { getCACertificates } from "node:tls";
import SMTPConnection from "nodemailer/lib/smtp-connection";
import { plainLine } from "../core/plain-line.ts";
import { auth, invalid, permission, precondition, ToolError, transient, unknownOutcome } from "./define.ts";
import { addressesOf, EgressRefused, type Network, open } from "./egress.ts";
import { reachOf } from "./egress-address.ts";

export interface MailServer {
  host: string;
  port: number;
  security: "tls" | "starttls" | "none";
  allowPrivateNetwork: boolean;
  ca?: string | undefined;
  limits: { totalMs: number; connectMs: number };
}

export interface Login {
  user?: string | undefined;
  password?: string | undefined;
}

export interface Accepted {
  accepted: string[];
  rejected: string[];
  response: string;
}

type Done<T> = (error?: Error | null, value?: T) => void;

/** What nodemailer knows about a failure. */
interface Trouble {
  code?: string;
  command?: string;
  response?: string;
}

const LONGEST_ANSWER = 65_536;
const GOODBYE_MS = 2_000;
const LONGEST_QUOTE = 300;

/** Rejects with a `ToolError` only. Calls `use` once logged in; says goodbye afterwards. */
export async function withSession<T>(
  server: MailServer,
  login: Login,
  { signal, network }: { signal: AbortSignal; network: Network },
  use: (session: Session) => Promise<T>,
): Promise<T> {
  const ending = new AbortController();
  const late = new Error(`no end within ${server.limits.totalMs} ms`);
  const timer = setTimeout(() => ending.abort(late), server.limits.totalMs); // (P4)
  const aborted = (): void => ending.abort(new Error("the call was ended early"));
  signal.addEventListener("abort", aborted, { once: true });
  if (signal.aborted) aborted();
  let session: Session | undefined;
  try {
    const socket = await socketTo(server, network, ending.signal);
    session = new Session(socket, server, ending.signal);
    await session.begin(login);
    return await use(session);
  } catch (error) {
    throw error instanceof ToolError ? error : failureOf(error, session?.hasBegun ?? false);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", aborted);
    session?.end();
  }
}

/** The guard speaks of URLs; this one stands for host and port alone. */
async function socketTo(server: MailServer, network: Network, signal: AbortSignal): Promise<Socket> {
  const url = urlOf(server);
  const { allowPrivateNetwork } = server;
  const rule = { hosts: [`${url.hostname}:${server.port}`], allowPrivateNetwork };
  let stop = (): void => {};
  const ended = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason as Error);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
  ended.catch(() => {});
  try {
    const addresses = await Promise.race([addressesOf(url, rule, network), ended]);
    return await open(url, addresses, rule, { network, signal, timeoutMs: server.limits.connectMs });
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

export function urlOf({ host, port }: Pick<MailServer, "host" | "port">): URL {
  return new URL(`http://${isIP(host) === 6 ? `[${host}]` : host}:${port}`);
}

export class Session {
  /** (P1) */
  hasBegun = false;
  readonly #socket: Socket;
  readonly #connection: SMTPConnection;
  readonly #broken: Promise<never>;

  constructor(socket: Socket, server: MailServer, signal: AbortSignal) {
    this.#socket = socket;
    const { host, port, security, ca } = server;
    const { totalMs } = server.limits;
    this.#connection = new SMTPConnection({
      connection: socket,
      host,
      port,
      secure: security === "tls",
      requireTLS: security === "starttls",
      ignoreTLS: security === "none",
      connectionTimeout: totalMs,
      greetingTimeout: totalMs,
      socketTimeout: totalMs,
      maxResponseSize: LONGEST_ANSWER,
      tls: {
        rejectUnauthorized: true, // (P3)
        minVersion: "TLSv1.2",
        ...(ca === undefined ? {} : { ca: [ca, ...getCACertificates("default")] }),
      },
    });
    this.#broken = new Promise<never>((_, reject) => {
      this.#connection.on("error", (error: Error) => reject(error));
      this.#connection.on("end", () => reject(new Error("the server closed the connection")));
      signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      if (signal.aborted) reject(signal.reason as Error);
    });
    this.#broken.catch(() => {});
  }

  async begin({ user, password }: Login): Promise<void> {
    await this.#step<void>((done) => this.#connection.connect(done));
    if (user === undefined || password === undefined) return;
    if (!this.#connection.secure && reachOf(this.#socket.remoteAddress ?? "") === "public")
      throw precondition("a password goes to a public address over TLS only: set `security`"); // (P3)
    await this.#step((done) => this.#connection.login({ user, pass: password }, done));
  }

  async send(envelope: { from: string; to: string[] }, bytes: Buffer): Promise<Accepted> {
    const begin = (): void => void (this.hasBegun = true);
    const message = new Readable({
      read() {
        begin(); // (P1)
        this.push(bytes);
        this.push(null);
      },
    });
    const given = { ...envelope, size: bytes.byteLength };
    const info = await this.#step<Accepted>((done) =>
      this.#connection.send(given, message, done as Parameters<SMTPConnection["send"]>[2]),
    );
    if (replyOf(info.response) === undefined)
      throw unknownOutcome("the server's answer to the message is none", {
        evidence: { response: plainLine(info.response, LONGEST_QUOTE) },
      });
    return { accepted: info.accepted, rejected: info.rejected, response: info.response };
  }

  /** Politely where that is still possible. */
  end(): void {
    const goodbye = setTimeout(() => this.#destroy(), GOODBYE_MS).unref();
    this.#connection.once("end", () => clearTimeout(goodbye));
    if (this.#connection.destroyed) return this.#destroy();
    this.#broken.catch(() => this.#destroy());
    this.#connection.quit();
  }

  #destroy(): void {
    this.#connection.close();
    this.#socket.destroy();
  }

  #step<T>(act: (done: Done<T>) => void): Promise<T> {
    const answered = new Promise<T>((resolve, reject) => {
      act((error, value) => (error ? reject(error) : resolve(value as T)));
    });
    answered.catch(() => {});
    return Promise.race([answered, this.#broken]);
  }
}

interface Reply {
  code: number;
  /** Class, subject, detail of the enhanced code. */
  enhanced: string;
}

function replyOf(response: string): Reply | undefined {
  const [, code, enhanced = ""] =
    /^([2-5]\d\d)(?:[ -](?:([245]\.\d{1,3}\.\d{1,3})\b)?|$)/.exec(response) ?? [];
  return code === undefined ? undefined : { code: Number(code), enhanced };
}

/** (P1) */
function failureOf(error: unknown, hasBegun: boolean): ToolError {
  if (error instanceof EgressRefused) return permission(error.message, { code: "egress-refused" });
  const said = plainLine(error instanceof Error ? error.message : String(error), LONGEST_QUOTE);
  const { code: kind, command, response = "" } = error as Trouble;
  const reply = replyOf(response);
  const evidence = {
    ...(command === undefined ? {} : { after: command }),
    ...(response === "" ? {} : { response: plainLine(response, LONGEST_QUOTE) }),
  };
  const more = { evidence };
  if (hasBegun && !(reply && isDefinite(reply)))
    return unknownOutcome(`the message had begun when it went wrong: ${said}`, more);
  if (kind === "EAUTH" && !hasBegun)
    return response !== "" && reply?.code.toString()[0] !== "5" ? transient(said, more) : auth(said, more);
  if (!reply || reply.code < 500) return transient(said, more);
  if (hasBegun) return invalid(`the server does not take this message: ${said}`, more);
  if ([530, 534, 535, 538].includes(reply.code)) return auth(said, more);
  if (reply.enhanced.startsWith("5.7.")) return permission(said, more);
  return invalid(said, more);
}

/** (P2) */
function isDefinite({ code, enhanced }: Reply): boolean {
  return code >= 500 || code === 452 || (code !== 421 && /^4\.[27]\./.test(enhanced));
}
