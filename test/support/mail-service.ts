// A real mail server on this machine that counts the messages it takes, and breaks on demand.
import type { AddressInfo, Socket } from "node:net";
import { text } from "node:stream/consumers";
import { SMTPServer, type SMTPServerOptions, type SMTPServerSession } from "smtp-server";
import type { Fault, Outside } from "../../host/testing.ts";

export const USER = "robot";
export const PASSWORD = "password-of-the-robot";

export interface Delivery {
  from: string;
  to: string[];
  source: string;
}

export interface MailService extends Outside {
  port: number;
  deliveries: Delivery[];
}

type Answer = (error?: Error | null, message?: string) => void;
type Fate = (take: () => void, to: { socket: Socket; answer: Answer }) => Promise<void> | void;

const GARBAGE = "\0\u0001 no protocol of yours \u00ff\r\n\r\n\r\n";
const PATIENCE: Partial<Record<Fault, string>> = {
  "rate-limited-negative": "-5",
  "rate-limited-huge": "9".repeat(400),
  "rate-limited-date": "until Wed, 21 Oct 2015 07:28:00 GMT",
  "rate-limited-words": "when the moon is full",
};

export const refusal = (responseCode: number, message: string): Error =>
  Object.assign(new Error(message), { responseCode });

export async function mailService(options: SMTPServerOptions = {}): Promise<MailService> {
  const service = new Service(options);
  await service.listen(0);
  const { port } = service;
  return Object.assign(service, {
    config: { host: "127.0.0.1", port, security: "none", from: FROM, allowPrivateNetwork: true },
    secrets: { user: USER, password: PASSWORD },
  });
}

const FROM = "Robot <robot@pawl.example>";

class Service implements Omit<MailService, "config" | "secrets"> {
  readonly deliveries: Delivery[] = [];
  readonly #options: SMTPServerOptions;
  readonly #sockets = new Map<number, Socket>();
  readonly #waiting: (() => void)[] = [];
  #server: SMTPServer | undefined;
  #fault: Fault | undefined;
  #arrivals = 0;
  #hold = Promise.withResolvers<void>();
  port = 0;

  constructor(options: SMTPServerOptions) {
    this.#options = options;
  }

  async listen(port: number): Promise<void> {
    const server = new SMTPServer({
      hideSTARTTLS: true,
      allowInsecureAuth: true,
      disableReverseLookup: true,
      logger: false,
      closeTimeout: 100,
      onAuth: ({ username, password }, _, callback) => {
        const fits = username === USER && password === PASSWORD && this.#fault !== "unauthorized";
        callback(fits ? null : refusal(535, "5.7.8 who are you?"), fits ? { user: USER } : undefined);
      },
      onMailFrom: (_, __, callback) => callback(this.#refusalOf()),
      onData: (stream, session, callback) => {
        void text(stream).then((source) => this.#meet(source, session, callback));
      },
      ...this.#options,
    });
    server.on("error", () => {});
    server.server.prependListener("connection", (socket: Socket) => {
      socket.on("error", () => {});
      const { remotePort } = socket;
      if (remotePort !== undefined) this.#sockets.set(remotePort, socket);
      socket.once("close", () => this.#sockets.delete(remotePort ?? 0));
      if (this.#fault === "dropped-before-send") socket.resetAndDestroy();
    });
    await new Promise<void>((resolve, reject) => {
      server.server.once("error", reject);
      server.listen(port, "127.0.0.1", resolve);
    });
    this.#server = server;
    this.port = (server.server.address() as AddressInfo).port;
  }

  effects(): number {
    return this.deliveries.length;
  }

  arrivals(): number {
    return this.#arrivals;
  }

  async breakWith(fault: Fault): Promise<void> {
    this.#fault = fault;
    this.#hold = Promise.withResolvers<void>();
    if (fault === "refused") await this.#close();
  }

  async heal(): Promise<void> {
    this.#fault = undefined;
    if (!this.#server) await this.listen(this.port);
  }

  held(): Promise<void> {
    return this.#hold.promise;
  }

  release(): void {
    for (const goOn of this.#waiting.splice(0)) goOn();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
    await this.#close();
  }

  async #close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (!server) return;
    const closed = new Promise<void>((resolve) => server.close(resolve));
    for (const socket of this.#sockets.values()) socket.destroy();
    await closed;
  }

  #refusalOf(): Error | null {
    if (this.#fault === "forbidden") return refusal(550, "5.7.1 not in this name");
    const wait = this.#fault && PATIENCE[this.#fault];
    return wait === undefined ? null : refusal(450, `4.7.1 too many, try again in ${wait} seconds`);
  }

  async #meet(source: string, session: SMTPServerSession, answer: Answer): Promise<void> {
    this.#arrivals++;
    const { mailFrom, rcptTo } = session.envelope;
    const take = (): void => {
      const to = rcptTo.map(({ address }) => address);
      this.deliveries.push({ from: mailFrom ? mailFrom.address : "", to, source });
    };
    const socket = this.#sockets.get(session.remotePort);
    const fate = this.#fault && this.#fates[this.#fault];
    if (fate && socket) return fate(take, { socket, answer });
    take();
    answer(null);
  }

  readonly #fates: Partial<Record<Fault, Fate>> = {
    "dropped-after-send": (_, { socket }) => void socket.resetAndDestroy(),
    "dropped-after-effect": (take, { socket }) => {
      take();
      socket.resetAndDestroy();
    },
    slow: async (take, { answer }) => {
      take();
      await this.#pause();
      answer(null);
    },
    "late-effect": async (take, { answer }) => {
      await this.#pause();
      take();
      answer(null);
    },
    "error-before-effect": (_, { answer }) => answer(refusal(451, "4.3.0 out of order")),
    "error-after-effect": (take, { answer }) => {
      take();
      answer(refusal(451, "4.3.0 out of order"));
    },
    "garbage-answer": (take, { socket }) => {
      take();
      socket.end(GARBAGE);
    },
    "garbage-body": (take, { answer }) => {
      take();
      answer(null, '{"id": <html>');
    },
    "answered-twice": (take, { socket }) => {
      take();
      socket.write("250 2.0.0 taken\r\n250 2.0.0 taken\r\n");
    },
    "killed-before-effect": async (_, { socket }) => {
      await this.#pause();
      socket.resetAndDestroy();
    },
    "killed-after-effect": async (take, { socket }) => {
      take();
      await this.#pause();
      socket.resetAndDestroy();
    },
  };

  async #pause(): Promise<void> {
    const goOn = new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#hold.resolve();
    await goOn;
  }
}
