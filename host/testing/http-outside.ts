/**
 * A small HTTP service on this machine that counts its effects and breaks on demand. Whoever tests a connector writes
 * what the service does; when it does it, and what of it comes back, is the fault's business.
 *
 * O1. An effect is counted when it is made, and made at most once per request.
 * O2. Requests that make no effect meet a fault only where the whole service does.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Fault, Outside } from "./faults.ts";

export interface HttpRequest {
  method: string;
  /** With its query. */
  path: string;
  headers: Readonly<Record<string, string | undefined>>;
  /** Parsed if it is JSON, else text. */
  body: unknown;
}

export interface HttpAnswer {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
}

/** An answer, or the change that it takes to give one. */
export type HttpDoing = HttpAnswer | { effect: () => HttpAnswer };

export interface HttpOutside extends Outside {
  url: string;
}

const EVERY_REQUEST = new Map<Fault, HttpAnswer>([
  ["unauthorized", { status: 401, body: { error: "who are you?" } }],
  ["forbidden", { status: 403, body: { error: "not you" } }],
  ["rate-limited-negative", patience("-5")],
  ["rate-limited-huge", patience("9".repeat(400))],
  ["rate-limited-date", patience("Wed, 21 Oct 2015 07:28:00 GMT")],
  ["rate-limited-words", patience("when the moon is full")],
]);
const GARBAGE = "\0\u0001 no protocol of yours \u00ff\r\n\r\n\r\n";

function patience(retryAfter: string): HttpAnswer {
  return { status: 429, headers: { "retry-after": retryAfter }, body: { error: "not now" } };
}

/** `does` only says what it would do: a change is made by its `effect` alone. */
export async function httpOutside(
  does: (request: HttpRequest) => HttpDoing,
  connection: (url: string) => { config: unknown; secrets?: unknown },
): Promise<HttpOutside> {
  const service = new Service(does);
  await service.listen(0);
  const { config, secrets } = connection(service.url);
  return Object.assign(service, { config, ...(secrets === undefined ? {} : { secrets }) });
}

class Service implements Omit<HttpOutside, "config" | "secrets"> {
  readonly #does: (request: HttpRequest) => HttpDoing;
  readonly #server = createServer((request, response) => {
    void this.#meet(request, response).catch(() => response.destroy());
  });
  readonly #waiting: (() => void)[] = [];
  #fault: Fault | undefined;
  #port = 0;
  #effects = 0;
  #arrivals = 0;
  #hold = Promise.withResolvers<void>();

  constructor(does: (request: HttpRequest) => HttpDoing) {
    this.#does = does;
    this.#server.keepAliveTimeout = 60_000;
    this.#server.on("connection", (socket: Socket) => {
      socket.on("error", () => {});
      if (this.#fault === "dropped-before-send") socket.resetAndDestroy();
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listen(port: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject).listen(port, "127.0.0.1", resolve);
    });
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  effects(): number {
    return this.#effects;
  }

  arrivals(): number {
    return this.#arrivals;
  }

  async breakWith(fault: Fault): Promise<void> {
    this.#fault = fault;
    this.#hold = Promise.withResolvers<void>();
    // A connection that was kept open would not notice.
    if (fault === "dropped-before-send") this.#server.closeAllConnections();
    if (fault === "refused") await this.#close();
  }

  async heal(): Promise<void> {
    this.#fault = undefined;
    if (!this.#server.listening) await this.listen(this.#port);
  }

  held(): Promise<void> {
    return this.#hold.promise;
  }

  release(): void {
    for (const goOn of this.#waiting.splice(0)) goOn();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
    if (this.#server.listening) await this.#close();
  }

  async #close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #meet(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const fault = this.#fault;
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += String(piece);
    const refused = fault && EVERY_REQUEST.get(fault);
    if (refused) return answer(response, refused);
    const asked = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers: request.headers as HttpRequest["headers"],
      body: bodyOf(text),
    };
    const doing = this.#does(asked);
    if (!("effect" in doing)) return answer(response, doing); // (O2)
    this.#arrivals++;
    const effect = (): HttpAnswer => {
      // Asked anew: what was held for a while may have been made by another request meanwhile.
      const now = this.#does(asked);
      if (!("effect" in now)) return now;
      this.#effects++; // (O1)
      return now.effect();
    };
    const fate = fault && this.#fates[fault];
    return fate ? fate(effect, response) : answer(response, effect());
  }

  /** What happens to a call that would have an effect; faults of the whole service have been met before. */
  readonly #fates: Partial<Record<Fault, (effect: () => HttpAnswer, to: ServerResponse) => Promise<void>>> = {
    "dropped-after-send": async (_, to) => reset(to),
    "dropped-after-effect": async (effect, to) => {
      effect();
      reset(to);
    },
    slow: async (effect, to) => {
      const late = effect();
      await this.#pause();
      answer(to, late);
    },
    "late-effect": async (effect, to) => {
      await this.#pause();
      answer(to, effect());
    },
    "error-before-effect": async (_, to) => answer(to, { status: 500, body: { error: "out of order" } }),
    "error-after-effect": async (effect, to) => {
      effect();
      answer(to, { status: 502, body: { error: "out of order" } });
    },
    "garbage-answer": async (effect, to) => {
      effect();
      to.socket?.end(GARBAGE);
    },
    "garbage-body": async (effect, to) => {
      to.writeHead(effect().status, { "content-type": "application/json" }).end('{"id": <html>');
    },
    "answered-twice": async (effect, to) => twice(to.socket, effect()),
    "killed-before-effect": async (_, to) => {
      await this.#pause();
      reset(to);
    },
    "killed-after-effect": async (effect, to) => {
      effect();
      await this.#pause();
      reset(to);
    },
  };

  async #pause(): Promise<void> {
    const goOn = new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#hold.resolve();
    await goOn;
  }
}

function answer(response: ServerResponse, { status, headers, body }: HttpAnswer): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(body === undefined ? "" : JSON.stringify(body));
}

const reset = ({ socket }: ServerResponse): void => void socket?.resetAndDestroy();

/** The second one stays in the pipe for whoever uses the connection next. */
function twice(socket: Socket | null, { status, body }: HttpAnswer): void {
  const text = JSON.stringify(body ?? null);
  const head = `HTTP/1.1 ${status} OK\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n`;
  socket?.write(head + text + head + text);
}

function bodyOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
