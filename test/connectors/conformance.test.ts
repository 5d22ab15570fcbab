// Every mutation × every fault of the kit, each against something real on this machine that counts its effects.
import { connectorSuite } from "../contract/connector.ts";
import { tickets, ticketService } from "../support/tickets.ts";

const from = new URL("../support/tickets.ts", import.meta.url);
const input = (n: number) => ({ title: `broken window ${n}` });

// A connector of a stranger, in each proof class.
connectorSuite({ connector: tickets, from, tool: "create", input, outside: ticketService });
connectorSuite({
  connector: tickets,
  from,
  tool: "createOnce",
  input,
  outside: () => ticketService({ keyed: true }),
});
connectorSuite({ connector: tickets, from, tool: "createBlindly", input, outside: ticketService });
connectorSuite({ connector: tickets, from, tool: "rename", input, outside: ticketService });
