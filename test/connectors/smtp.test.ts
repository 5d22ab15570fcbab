// What the connector `smtp` sends, refuses and says, against a real mail server on this machine.
import { createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import type { OpenConnection } from "../../host/connectors/define.ts";
import { SYSTEM_NETWORK } from "../../host/connectors/egress.ts";
import { invokeMutation } from "../../host/connectors/invoke.ts";
import { smtp, smtpOver } from "../../host/connectors/smtp.ts";
import type { SendAnswer } from "../../host/ports/connector.ts";
import { CERTIFICATE, CERTIFICATE_KEY } from "../support/loopback-certificate.ts";
import { type MailService, mailService, PASSWORD, refusal, USER } from "../support/mail-service.ts";

const MAIL = { to: "reader@pawl.example", subject: "news", text: "All is well." };
const TLS = { cert: CERTIFICATE, key: CERTIFICATE_KEY, hideSTARTTLS: false };

type Set = { config?: Record<string, unknown>; secrets?: unknown };

function opened(service: Pick<MailService, "config" | "secrets">, { config, secrets }: Set = {}) {
  return {
    namespace: "default",
    name: "post",
    config: smtp.config.parse({ ...(service.config as object), ...config }),
    secrets: smtp.secrets.parse(secrets ?? service.secrets ?? {}),
    configVersion: 1,
    hide: () => {},
    replaceSecrets: async () => {},
  } satisfies OpenConnection;
}

function send(
  connection: OpenConnection,
  mail: unknown,
  { key = "decision-1", signal = AbortSignal.timeout(20_000), connector = smtp } = {},
): Promise<SendAnswer> {
  const tool = connector.tools["send"];
  if (tool?.kind !== "mutation") throw new Error("no send");
  const context = { idempotencyKey: key, signal, origin: { workflow: 1, hops: 0, maxHops: 100 } };
  return invokeMutation(tool, { connection, args: JSON.stringify(mail), label: "post.send", context });
}

/** Headers of the one mail, unfolded. */
function headersOf({ deliveries }: MailService): Map<string, string> {
  const [head = ""] = (deliveries[0]?.source ?? "").split("\r\n\r\n");
  const lines = head.replace(/\r\n[ \t]/g, " ").split("\r\n");
  return new Map(lines.map((line) => [line.split(":")[0]!.toLowerCase(), line.slice(line.indexOf(":") + 2)]));
}

/** Stands for the line that has not come yet: the server speaks first. */
const GREETING = "\0";

/** A mail server that says what it is told to, line by line. */
async function scripted(answer: (line: string, socket: Socket) => string | undefined) {
  const lines: string[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => {});
    const say = (text: string | undefined): void => void (text !== undefined && socket.write(`${text}\r\n`));
    say(answer(GREETING, socket));
    let rest = "";
    socket.setEncoding("latin1").on("data", (piece: string) => {
      rest += piece;
      for (let end = rest.indexOf("\r\n"); end >= 0; end = rest.indexOf("\r\n")) {
        const line = rest.slice(0, end);
        rest = rest.slice(end + 2);
        lines.push(line);
        say(answer(line, socket));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    lines,
    config: { host: "127.0.0.1", port, security: "none", from: "a@pawl.example", allowPrivateNetwork: true },
    secrets: {},
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => void server.close(() => resolve())),
  };
}

/** A usual conversation, but for what `changed` says; `.` is the end of the message. */
const usual =
  (changed: Record<string, string>) =>
  (line: string, socket: Socket): string | undefined => {
    const verb = line === GREETING ? "greeting" : (/^[A-Z.]+/.exec(line)?.[0] ?? "");
    if (changed[verb] === "drop") return void socket.destroy();
    if (changed[verb] !== undefined) return changed[verb];
    if (verb === "greeting") return "220 mail.pawl.example";
    if (verb === "DATA") return "354 go on";
    if (verb === "QUIT") return "221 bye";
    return ["EHLO", "MAIL", "RCPT", "."].includes(verb) ? "250 fine" : undefined;
  };

describe("a mail", () => {
  test("goes to everybody it names, and nobody sees the blind copies", async () => {
    await using service = await mailService();
    const mail = {
      to: ["Ann Bee <ann@pawl.example>", "bob@pawl.example"],
      cc: "cy@pawl.example",
      bcc: ["dee@pawl.example", "ann@pawl.example"],
      replyTo: "Desk <desk@pawl.example>",
      subject: "Grüße, and more",
      text: "Hello",
      html: "<p>Hello</p>",
    };
    const answer = await send(opened(service), mail);
    const everybody = ["ann@pawl.example", "bob@pawl.example", "cy@pawl.example", "dee@pawl.example"];
    expect(answer).toMatchObject({ outcome: "applied" });
    expect(JSON.parse((answer as { result: string }).result)).toMatchObject({
      accepted: everybody,
      rejected: [],
    });
    expect(service.deliveries[0]?.to).toEqual(everybody);
    expect(service.deliveries[0]?.source).not.toContain("dee@pawl.example");
    const headers = headersOf(service);
    expect(headers.get("from")).toBe("Robot <robot@pawl.example>");
    expect(headers.get("to")).toBe("Ann Bee <ann@pawl.example>, bob@pawl.example");
    expect(headers.get("reply-to")).toBe("Desk <desk@pawl.example>");
    expect(headers.get("content-type")).toContain("multipart/alternative");
  });

  test("carries the same Message-ID for the same decision, another for another, and never the key (L3)", async () => {
    await using service = await mailService();
    const connection = opened(service);
    for (const key of ["decision-1", "decision-1", "decision-2"]) await send(connection, MAIL, { key });
    const ids = service.deliveries.map(({ source }) => /^Message-ID: (.*)$/im.exec(source)?.[1]);
    expect(ids[0]).toMatch(/^<[0-9a-f]{40}@pawl\.example>$/);
    expect(ids[1]).toBe(ids[0]);
    expect(ids[2]).not.toBe(ids[0]);
    expect(JSON.stringify(service.deliveries)).not.toContain("decision-");
  });

  test("may look like the end of itself, in its text, without ending there (L1)", async () => {
    await using service = await mailService();
    const text = "one\r\n.\r\nMAIL FROM:<x@y.example>\n.\nQUIT\r.\r.two\n..";
    expect(await send(opened(service), { ...MAIL, text })).toMatchObject({ outcome: "applied" });
    expect(service.deliveries).toHaveLength(1);
    expect(service.deliveries[0]?.source).toContain("\r\nMAIL FROM:<x@y.example>\r\n.\r\nQUIT");
  });

  test("is described in one line, with everybody who gets it", () => {
    const tool = smtp.tools["send"];
    const connection = opened({ config: { host: "Mail.Example", from: "robot@pawl.example" }, secrets: {} });
    const mail = { ...MAIL, to: ["a@b.example", "Cy <c@b.example>"], bcc: "d@b.example", subject: 'New "x"' };
    expect(tool?.kind === "mutation" && tool.describe(tool.input.parse(mail), connection)).toBe(
      'Send the mail "New "x"" to a@b.example, c@b.example, blind copy to d@b.example, from robot@pawl.example through mail.example:587',
    );
  });
});

describe("what is refused before anything leaves (L1, L2)", () => {
  const wrong: [what: string, mail: Record<string, unknown>][] = [
    ["a line break in the subject", { subject: "news\r\nBcc: spy@evil.example" }],
    ["a bare line feed in the subject", { subject: "news\nX: y" }],
    ["a line separator in the subject", { subject: "news\u2028X: y" }],
    ["a NUL in the subject", { subject: "news\0" }],
    ["a line break in an address", { to: "a@b.example\r\nRCPT TO:<spy@evil.example>" }],
    ["a line break in a name", { to: "A\r\nBcc: spy@evil.example <a@b.example>" }],
    ["a line break in a copy", { cc: ["a@b.example\n"] }],
    ["a line break in replyTo", { replyTo: "a@b.example\r\nX: y" }],
    ["two addresses in one text", { to: "a@b.example, c@d.example" }],
    ["a group", { to: "all: a@b.example, c@d.example;" }],
    ["an address with angle brackets inside", { to: "<a@b.example>@c.example" }],
    ["a quoted local part", { to: '"a b"@c.example' }],
    ["a comment", { to: "a(b)@c.example" }],
    ["an address with a parameter", { to: "a@b.example> ORCPT=x <" }],
    ["no at", { to: "nobody" }],
    ["two dots", { to: "a..b@c.example" }],
    ["an address literal", { to: "a@[127.0.0.1]" }],
    ["an empty list", { to: [] }],
    ["nobody in the list", { to: [""] }],
    ["neither text nor html", { text: undefined }],
    ["an attachment", { attachments: [{ path: "/etc/passwd" }] }],
    ["a text that is a file", { text: { path: "/etc/passwd" } }],
    ["headers of its own", { headers: { bcc: "spy@evil.example" } }],
    ["101 recipients", { to: Array.from({ length: 101 }, (_, n) => `r${n}@b.example`) }],
    ["more bytes than the connection allows", { text: "x".repeat(2_200_000) }],
  ];
  test.each(wrong)("%s", async (_, mail) => {
    await using service = await mailService();
    const answer = await send(opened(service), { ...MAIL, ...mail });
    expect(answer).toMatchObject({ outcome: "failed", class: "logic", code: "tool-input-invalid" });
    expect([service.effects(), service.arrivals?.()]).toEqual([0, 0]);
  });

  test("the config's own sender is held to the same", () => {
    const config = { host: "mail.example", from: "Robot\r\nBcc: spy@evil.example <a@b.example>" };
    expect(smtp.config.safeParse(config).success).toBe(false);
  });

  test.each(["mail.example/x", "mail.example:25", "a b", "user@mail.example", "[::1", "fe80::1%eth0", ""])(
    "the host %j",
    (host) => {
      expect(smtp.config.safeParse({ host, from: "a@b.example" }).success).toBe(false);
    },
  );
});

describe("what a failure proves (P1, P2)", () => {
  const failed = (kind: string) => ({ outcome: "failed", class: kind });
  const unknown = { outcome: "unknown", code: "outcome-unknown" };
  const cases: [what: string, changed: Record<string, string>, expected: object][] = [
    ["closed before the greeting", { greeting: "drop" }, failed("transient")],
    ["554 as greeting", { greeting: "554 5.3.2 no service" }, failed("logic")],
    ["421 as greeting", { greeting: "421 4.3.2 too busy" }, failed("transient")],
    ["garbage as greeting", { greeting: "HTTP/1.1 400 Bad Request" }, failed("transient")],
    ["closed at MAIL", { MAIL: "drop" }, failed("transient")],
    ["451 at MAIL", { MAIL: "451 4.3.0 not now" }, failed("transient")],
    ["530 at MAIL", { MAIL: "530 5.7.0 log in first" }, failed("auth")],
    ["553 5.7.1 at MAIL", { MAIL: "553 5.7.1 not in this name" }, failed("permission")],
    ["501 at MAIL", { MAIL: "501 5.1.7 bad sender" }, failed("logic")],
    ["450 at RCPT", { RCPT: "450 4.2.0 grey" }, failed("transient")],
    ["550 at RCPT", { RCPT: "550 5.1.1 unknown" }, failed("logic")],
    ["554 5.7.1 at RCPT", { RCPT: "554 5.7.1 relay denied" }, failed("permission")],
    ["closed at DATA", { DATA: "drop" }, failed("transient")],
    ["451 at DATA", { DATA: "451 4.3.0 not now" }, failed("transient")],
    ["closed at the end of the message", { ".": "drop" }, unknown],
    ["garbage at the end of the message", { ".": "what?" }, unknown],
    ["a number that is no code", { ".": "25 fine" }, unknown],
    ["421 at the end of the message", { ".": "421 4.3.2 going down" }, unknown],
    ["421 4.7.0 at the end of the message", { ".": "421 4.7.0 going down" }, unknown],
    ["451 without a reason at the end", { ".": "451 error in processing" }, unknown],
    ["451 4.3.0 at the end", { ".": "451 4.3.0 error in processing" }, unknown],
    ["451 4.7.1 at the end: policy", { ".": "451 4.7.1 grey" }, failed("transient")],
    ["452 at the end: no room", { ".": "452 4.3.1 no room" }, failed("transient")],
    ["554 at the end", { ".": "554 5.7.1 spam" }, failed("logic")],
  ];
  test.each(cases)("%s", async (_, changed, expected) => {
    await using server = await scripted(usual(changed));
    expect(await send(opened(server), MAIL)).toMatchObject(expected);
  });

  test("what the server said is evidence, in one line", async () => {
    await using server = await scripted(usual({ RCPT: "550-5.1.1 no\u0007body\r\n550 5.1.1 of that name" }));
    const { raw } = await send(opened(server), MAIL);
    const { evidence } = JSON.parse(raw) as { evidence: object };
    expect(evidence).toEqual({ after: "RCPT TO", response: "550-5.1.1 no body 550 5.1.1 of that name" });
  });

  test("a message called off in its middle is unknown; one called off before is not", async () => {
    for (const [until, expected] of [
      ["MAIL", failed("transient")],
      [".", unknown],
    ] as const) {
      const abort = new AbortController();
      const answer = usual({});
      await using server = await scripted((line, socket) => {
        if (!line.startsWith(until)) return answer(line, socket);
        abort.abort();
        return undefined;
      });
      expect(await send(opened(server), MAIL, { signal: abort.signal })).toMatchObject(expected);
    }
  });

  test("a server that never answers is left when the time is up (P4)", async () => {
    await using server = await scripted(() => undefined);
    const connection = opened(server, { config: { limits: { totalMs: 150 } } });
    expect(await send(connection, MAIL)).toMatchObject({ ...failed("transient"), message: /within 150 ms/ });
  });

  test("an answer that does not end is cut off (P4)", async () => {
    await using server = await scripted((line, socket) => {
      if (line !== GREETING) return undefined;
      const pour = (): void => {
        while (!socket.destroyed && socket.write(`220-${"x".repeat(4_096)}\r\n`));
        if (!socket.destroyed) socket.once("drain", pour);
      };
      pour();
      return undefined;
    });
    expect(await send(opened(server), MAIL)).toMatchObject({ ...failed("transient"), message: /maximum/ });
  });
});

describe("recipients (N2)", () => {
  const picky = (code: number) =>
    mailService({
      onRcptTo: ({ address }, _, callback) =>
        callback(address.startsWith("no") ? refusal(code, "5.1.1 unknown here") : null),
    });

  test("a mail that somebody gets is sent, and the result names who does not get it", async () => {
    await using service = await picky(550);
    const answer = await send(opened(service), { ...MAIL, to: ["yes@b.example", "no@b.example"] });
    expect(answer).toMatchObject({ outcome: "applied" });
    expect(JSON.parse((answer as { result: string }).result)).toMatchObject({
      accepted: ["yes@b.example"],
      rejected: ["no@b.example"],
    });
    expect(service.deliveries[0]?.to).toEqual(["yes@b.example"]);
  });

  test.each([
    [550, "logic"],
    [450, "transient"],
  ])("all of them refused with %i is no mail at all", async (code, kind) => {
    for (const hidePIPELINING of [false, true]) {
      await using service = await mailService({
        hidePIPELINING,
        onRcptTo: (_, __, callback) => callback(refusal(code, "unknown here")),
      });
      const answer = await send(opened(service), { ...MAIL, to: ["no1@b.example", "no2@b.example"] });
      expect(answer).toMatchObject({ outcome: "failed", class: kind });
      expect(service.effects()).toBe(0);
    }
  });
});

describe("TLS and passwords (P3)", () => {
  const ca = CERTIFICATE;

  test.each([
    ["tls", { secure: true }],
    ["starttls", {}],
  ])("%s with a certificate that is trusted", async (security, how) => {
    await using service = await mailService({ ...TLS, ...how });
    const connection = opened(service, { config: { security, ca, host: "localhost" } });
    expect(await send(connection, MAIL)).toMatchObject({ outcome: "applied" });
  });

  test.each([
    ["tls", { secure: true }],
    ["starttls", {}],
  ])("%s with a certificate that nobody knows: nothing is sent", async (security, how) => {
    await using service = await mailService({ ...TLS, ...how });
    const answer = await send(opened(service, { config: { security } }), MAIL);
    expect(answer).toMatchObject({ outcome: "failed", class: "transient" });
    expect(service.arrivals?.()).toBe(0);
  });

  test("a certificate for another name: nothing is sent", async () => {
    await using service = await mailService({ ...TLS, secure: true });
    const network = { ...SYSTEM_NETWORK, resolve: async () => ["127.0.0.1"] };
    const connection = opened(service, { config: { security: "tls", ca, host: "other.pawl.example" } });
    const answer = await send(connection, MAIL, { connector: smtpOver(network) });
    expect(answer).toMatchObject({ outcome: "failed", class: "transient", message: /altnames/ });
  });

  test("a server that offers no STARTTLS where it is asked for: nothing is sent", async () => {
    let logins = 0;
    await using service = await mailService({ onAuth: (_, __, callback) => callback(null, (logins++, {})) });
    const answer = await send(opened(service, { config: { security: "starttls" } }), MAIL);
    expect(answer).toMatchObject({ outcome: "failed" });
    expect([service.effects(), logins]).toEqual([0, 0]);
  });

  test("a password does not go to a public address in the clear", async () => {
    await using server = await scripted(usual({}));
    const network = {
      resolve: async () => ["93.184.216.34"],
      dial: () => {
        const socket = SYSTEM_NETWORK.dial({
          host: "127.0.0.1",
          port: (server.config as { port: number }).port,
        });
        return Object.defineProperty(socket, "remoteAddress", { get: () => "93.184.216.34" });
      },
    };
    const connection = opened(server, {
      config: { host: "mail.example" },
      secrets: { user: USER, password: PASSWORD },
    });
    const answer = await send(connection, MAIL, { connector: smtpOver(network) });
    expect(answer).toMatchObject({ outcome: "failed", class: "precondition" });
    expect(server.lines.some((line) => line.startsWith("AUTH"))).toBe(false);
  });

  test("a user needs a password, and a password a user", () => {
    expect(smtp.secrets.safeParse({ user: USER }).success).toBe(false);
    expect(smtp.secrets.safeParse({ password: PASSWORD }).success).toBe(false);
  });
});

describe("the address of the server", () => {
  test.each(["127.0.0.1", "2130706433", "0x7f.1", "::ffff:127.0.0.1", "::1", "localhost", "169.254.169.254"])(
    "%s is not connected to unless private networks are allowed",
    async (host) => {
      let connects = 0;
      await using service = await mailService({ onConnect: (_, callback) => callback((connects++, null)) });
      const connection = opened(service, { config: { host, allowPrivateNetwork: false } });
      const answer = await send(connection, MAIL);
      expect(answer).toMatchObject({ outcome: "failed", class: "permission", code: "egress-refused" });
      expect(connects).toBe(0);
    },
  );

  test("is resolved once, and one bad address among several refuses them all", async () => {
    let asked = 0;
    const network = {
      resolve: async () => (asked++ === 0 ? ["93.184.216.34", "10.0.0.1"] : ["93.184.216.34"]),
      dial: () => {
        throw new Error("dialled");
      },
    };
    const connection = opened({
      config: { host: "mail.example", from: "a@b.example" },
      secrets: {},
    });
    const answer = await send(connection, MAIL, { connector: smtpOver(network) });
    expect(answer).toMatchObject({ outcome: "failed", code: "egress-refused" });
    expect(asked).toBe(1);
  });
});

describe("the check of a connection", () => {
  const check = (connection: OpenConnection) =>
    smtp.check?.(connection as Parameters<NonNullable<typeof smtp.check>>[0], {
      signal: AbortSignal.timeout(20_000),
    });

  test("finds it good, logged in and without a mail", async () => {
    await using service = await mailService();
    expect(await check(opened(service))).toEqual({ status: "ok" });
    expect(service.effects()).toBe(0);
  });

  test("says when the password is refused, and does not repeat it", async () => {
    await using service = await mailService();
    const health = await check(opened(service, { secrets: { user: USER, password: "wrong-password" } }));
    expect(health).toMatchObject({ status: "auth" });
    expect(JSON.stringify(health)).not.toContain("wrong-password");
  });

  test("says when nobody is there", async () => {
    const service = await mailService();
    await service[Symbol.asyncDispose]();
    expect(await check(opened(service))).toMatchObject({ status: "unreachable" });
  });
});
