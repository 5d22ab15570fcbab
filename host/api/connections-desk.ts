/**
 * The connections of one namespace, for whoever configures them. Secrets go in and never come out.
 *
 * C1. A host whose outside is made up has no connections, and says so.
 */
import type { GrantMode } from "../core/change.ts";
import { PawlError } from "../core/errors.ts";
import type { NamespaceId } from "../core/ids.ts";
import type {
  Checked,
  Connected,
  Connecting,
  ConnectionRefused,
  ConnectionView,
  GivenConnection,
} from "../engine/connecting.ts";
import type { Connections } from "../ports/connections.ts";
import { type Acting, type Open, person } from "./open.ts";

export class ConnectionsDesk {
  readonly #name: string;
  readonly #open: () => Open;

  constructor(name: string, open: () => Open) {
    this.#name = name;
    this.#open = open;
  }

  async list(): Promise<ConnectionView[]> {
    return this.#connecting.list(await this.#namespace());
  }

  async get(name: string): Promise<ConnectionView | undefined> {
    return this.#connecting.get(await this.#namespace(), name);
  }

  /** Creates or changes. Without `secrets` those that are stored stay; `null` removes them. */
  async put(given: GivenConnection, acting: Acting = {}): Promise<Connected> {
    return this.#connecting.put(await this.#namespace(), given, person(acting));
  }

  async remove(name: string, acting: Acting = {}): Promise<{ ok: true } | ConnectionRefused> {
    return this.#connecting.remove(await this.#namespace(), name, person(acting));
  }

  /** Asks the service itself; when all is well, every run that waits for it goes on. */
  async check(name: string, acting: Acting = {}): Promise<Checked> {
    const namespace = { id: await this.#namespace(), name: this.#name };
    return this.#connecting.check(namespace, name, person(acting));
  }

  /** For mutations that nobody granted; `undefined` leaves it to the host. */
  async setDefaultGrant(mode: GrantMode | undefined, acting: Acting = {}): Promise<void> {
    const { by: actor, note } = person(acting);
    const atMs = this.#open().parts.clock.nowMs();
    const by = { actor, atMs, ...(note === undefined ? {} : { note }) };
    await this.#stored.setDefaultGrant(await this.#namespace(), mode, by);
  }

  async #namespace(): Promise<NamespaceId> {
    return this.#stored.namespace(this.#name, this.#open().parts.clock.nowMs());
  }

  get #stored(): Connections {
    return (this.#open().parts.outside ?? none()).connections;
  }

  get #connecting(): Connecting {
    return this.#open().engine.connecting ?? none();
  }
}

/** (C1) */
function none(): never {
  throw new PawlError("no-connections", "this host was given a world of its own and has no connections");
}
