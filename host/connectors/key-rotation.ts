/**
 * The keys over a host's life: found at its start, made when the first secret has to be sealed, changed while it runs.
 *
 * R1. A host that has none of the keys its data was sealed with does not start: a new key would only hide the loss.
 * R2. A rotation may die anywhere. Until its end the key file holds old and new, every secret opens under one of them, and
 *     the next start goes on where it stopped. Rows are sealed inside the transaction that stores them, so none is
 *     left to a key that has gone.
 * R3. Whoever reads a connection meanwhile finds it readable.
 * R4. A key that has sealed something is kept in a file of its own when it leaves the key file: backups need it.
 */
import { resolve } from "node:path";
import { PawlError } from "../core/errors.ts";
import type { ConnectionRow, Connections } from "../ports/connections.ts";
import { type KeyText, newKey, parseKeys, readKeyFile, writeKeyFile } from "./master-key.ts";
import { fingerprintOf, type OnSecrets, Vault } from "./secrets.ts";

export interface KeyOptions {
  /** The data folder; without it everything ends with the process, the key too. */
  data?: string;
  /** What `PAWL_MASTER_KEY` holds: the key, and behind it older ones. */
  masterKey?: string;
  /** Instead of `<data>.key`. */
  keyFile?: string;
  /** Start although the keys of stored secrets are lost: they have to be entered again. */
  withoutLostKeys?: boolean;
  onSecrets?: OnSecrets;
}

type Sealed = ConnectionRow & { sealed: string };
type Rows = Pick<Connections, "sealed" | "reseal">;
type KeyFile = { path: string; keys: KeyText[] };

export interface Rotated {
  /** Which key seals now; none before the first secret. */
  fingerprint?: string;
  /** Connections whose data key is now wrapped by it, or is a new one. */
  resealed: number;
  /** Names of connections whose secrets open with no key that is here. */
  foreign: string[];
  /** Where the key that was in use before is kept. */
  keptIn?: string;
}

/** Beside the data folder, so that whoever copies the folder does not copy the key with it. */
export const keyFileOf = ({ data, keyFile }: KeyOptions): string | undefined =>
  keyFile ?? (data === undefined ? undefined : `${resolve(data)}.key`);

export class Keys {
  readonly vault: Vault;
  /** What the start found: a rotation that it finished, secrets it cannot open. */
  found: Rotated = { resealed: 0, foreign: [] };
  readonly #rows: Rows;
  readonly #onSecrets: OnSecrets;
  /** Absent when the key is given from outside, or ends with the process. */
  readonly #file: KeyFile | undefined;
  readonly #isGiven: boolean;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(rows: Rows, options: KeyOptions) {
    const { masterKey, onSecrets = () => {} } = options;
    const path = masterKey === undefined ? keyFileOf(options) : undefined;
    const given = masterKey === undefined ? undefined : parseKeys(masterKey, "PAWL_MASTER_KEY");
    const keys = given ?? (path === undefined ? undefined : readKeyFile(path)) ?? [];
    this.#rows = rows;
    this.#onSecrets = onSecrets;
    this.#isGiven = given !== undefined;
    this.#file = path === undefined ? undefined : { path, keys };
    for (const { text } of keys) onSecrets(text, "master key");
    const firstKey = () => this.#kept(newKey()).key;
    this.vault = new Vault(
      keys.map((one) => one.key),
      { onSecrets, firstKey },
    );
  }

  static async open(rows: Rows, options: KeyOptions = {}): Promise<Keys> {
    const keys = new Keys(rows, options);
    const { vault } = keys;
    const sealed = await sealedRows(rows);
    if (sealed.length > 0 && !sealed.some((row) => vault.hasKeyOf(row.sealed)) && !options.withoutLostKeys)
      throw missing(sealed, vault.fingerprint, keyFileOf(options)); // (R1)
    keys.found = await rewrapAll(vault, rows); // (R2)
    keys.#finish();
    return keys;
  }

  /** A new master key: every data key is wrapped by it. Only where the host keeps the key itself. */
  rotateMaster(): Promise<Rotated> {
    return this.#alone(async () => {
      if (this.#isGiven)
        throw new PawlError(
          "master-key-external",
          "the master key is given from outside: put the new one in front of it and start again",
        );
      this.vault.adopt(this.#kept(newKey()).key); // (R2)
      const rotated = await rewrapAll(this.vault, this.#rows);
      const keptIn = this.#finish();
      return { ...rotated, ...(keptIn === undefined ? {} : { keptIn }) };
    });
  }

  /** Every bundle is encrypted anew, with a new data key. */
  renewDataKeys(): Promise<Rotated> {
    return this.#alone(async () => {
      const { vault } = this;
      return resealAll(vault, this.#rows, (row) => {
        const version = row.sealedVersion + 1;
        return { text: vault.seal({ ...row, version, secrets: vault.open(row) }), version };
      });
    });
  }

  /** On disk, where there is a file, before it seals anything. */
  #kept(made: KeyText): KeyText {
    this.#onSecrets(made.text, "master key");
    if (!this.#file) return made;
    const { path, keys } = this.#file;
    try {
      writeKeyFile(path, [made, ...keys]);
    } catch (cause) {
      const why = (cause as NodeJS.ErrnoException).code;
      const message = `the master key cannot be kept in ${path} (${why}): name another file, or set PAWL_MASTER_KEY`;
      throw new PawlError("master-key-missing", message, { cause });
    }
    keys.unshift(made);
    return made;
  }

  /** Nothing is sealed with the older keys any more: they leave the key file (R4). */
  #finish(): string | undefined {
    const [newest, ...older] = this.#file?.keys ?? [];
    if (!this.#file || !newest || older.length === 0) return undefined;
    const { path, keys } = this.#file;
    const names = older.map((old) => `${path}.${old.key.fingerprint}`);
    for (const [at, old] of older.entries()) writeKeyFile(names[at] as string, [old]);
    writeKeyFile(path, [newest]);
    keys.splice(1);
    return names[0];
  }

  /** One rotation at a time. */
  #alone<Result>(act: () => Promise<Result>): Promise<Result> {
    const turn = this.#turn.then(act);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}

function missing(rows: Sealed[], has: string | undefined, path: string | undefined): PawlError {
  const needed = [...new Set(rows.map((row) => fingerprintOf(row.sealed)))].join(", ");
  const instead = has === undefined ? `there is no ${path ?? "key"}` : `this host has the key ${has}`;
  const message = `${rows.length} connections have secrets sealed with the key ${needed}; ${instead}`;
  return new PawlError("master-key-missing", message);
}

/** For the redactor's sake; one that does not open says so when it is used. */
function tryOpen(vault: Vault, row: Sealed): boolean {
  try {
    vault.open(row);
    return true;
  } catch {
    return false;
  }
}

/** The versions stay: only the wrapping of the data keys changes. */
function rewrapAll(vault: Vault, rows: Rows): Promise<Rotated> {
  return resealAll(vault, rows, (row) => {
    const text = vault.rewrap(row);
    return text === undefined ? undefined : { text, version: row.sealedVersion };
  });
}

/** Again and again until a round finds nothing: rows that somebody changed meanwhile are met in the next one (R3). */
async function resealAll(
  vault: Vault,
  from: Rows,
  anew: (row: Sealed) => { text: string; version: number } | undefined,
): Promise<Rotated> {
  const met = new Set<number>();
  const foreign: string[] = [];
  for (let resealed = 0; ; ) {
    const rows = (await sealedRows(from)).filter((row) => !met.has(row.id));
    if (rows.length === 0) {
      const { fingerprint } = vault;
      return { ...(fingerprint === undefined ? {} : { fingerprint }), resealed, foreign };
    }
    for (const row of rows) {
      if (!tryOpen(vault, row)) foreign.push(row.name);
      else {
        const sealed = anew(row);
        if (sealed && !(await from.reseal(row.id, row.sealedVersion, sealed))) continue;
        if (sealed) resealed++;
      }
      met.add(row.id);
    }
  }
}

const sealedRows = async (from: Rows): Promise<Sealed[]> =>
  (await from.sealed()).filter((row): row is Sealed => row.sealed !== undefined);
