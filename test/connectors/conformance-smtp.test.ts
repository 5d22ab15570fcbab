// `smtp.send` × every fault of the kit, against a real mail server on this machine that counts what it takes. No fault is
// left out. There is no proof: what is unknown goes to a person.
import { smtp } from "../../host/connectors/smtp.ts";
import { connectorSuite } from "../contract/connector.ts";
import { mailService } from "../support/mail-service.ts";

const from = new URL("../../host/connectors/smtp.ts", import.meta.url);

connectorSuite({
  connector: smtp,
  from,
  tool: "send",
  input: (n) => ({ to: `reader-${n}@pawl.example`, subject: `news ${n}`, text: `This is number ${n}.` }),
  outside: mailService,
});
// With PIPELINING the whole envelope and DATA leave at once, and the answers come later.
connectorSuite({
  title: "smtp.send, one command at a time",
  connector: smtp,
  from,
  tool: "send",
  input: (n) => ({ to: [`reader-${n}@pawl.example`], subject: `news ${n}`, html: `<p>Number ${n}</p>` }),
  outside: () => mailService({ hidePIPELINING: true }),
});
