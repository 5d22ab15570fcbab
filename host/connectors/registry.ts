/**
 * The connectors of a host, by name: those built in, and those it was given. A given one may not take the name of another.
 */
import type { ToolsOf } from "../ports/connections.ts";
import type { Connector } from "./define.ts";
import { feed } from "./feed.ts";
import { file } from "./file.ts";
import { http } from "./http.ts";
import { smtp } from "./smtp.ts";
import { webhook } from "./webhook.ts";

/** Written with the host. A new one is one line here. */
const BUILT_IN: readonly Connector[] = [feed, file, http, smtp, webhook];

export class Registry {
  readonly #connectors = new Map<string, Connector>();

  constructor(given: readonly Connector[] = []) {
    for (const connector of [...BUILT_IN, ...given]) {
      if (this.#connectors.has(connector.name))
        throw new Error(`there is a connector ${connector.name} already: give yours another name`);
      this.#connectors.set(connector.name, connector);
    }
  }

  get(name: string): Connector | undefined {
    return this.#connectors.get(name);
  }

  get names(): string[] {
    return [...this.#connectors.keys()].sort();
  }

  readonly toolsOf: ToolsOf = (name) => {
    const connector = this.#connectors.get(name);
    if (!connector) return undefined;
    return Object.fromEntries(Object.entries(connector.tools).map(([tool, { kind }]) => [tool, kind]));
  };
}
