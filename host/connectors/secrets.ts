/**
 * Secrets at rest. A bundle of secrets is encrypted with a data key of its own, the data key with the master key; both
 * stand in one text that the store keeps: `pawl1.<key>.<wrapped data key>.<bundle>`, where `<key>` is the fingerprint of
 * the master key. Where keys come from is decided in `master-key.ts`, when they change in `key-rotation.ts`.
 *
 * S1. A sealed text opens only as the namespace, name and version it was sealed for: moved to another row it is refused.
 * S2. AES-256-GCM with a fresh data key and fresh nonces for every seal; nothing is encrypted twice under one nonce.
 * S3. What is opened or sealed is told to the redactor before anybody else gets it.
 * S4. Old and new master keys are accepted side by side; only the newest seals.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { PawlError } from "../core/errors.ts";
import type { NamespaceId } from "../core/ids.ts";

const FORMAT = "pawl1";
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** What a sealed text is bound to (S1). */
export interface SealedFor {
  namespace: NamespaceId;
  name: string;
}

/** Told every bundle that is in the clear; `owner` names the connection. */
export type OnSecrets = (secrets: unknown, owner: string) => void;

export class MasterKey {
  /** Says which key it is, and nothing about it. */
  readonly fingerprint: string;
  readonly #wrapping: Buffer;

  constructor(bytes: Uint8Array) {
    if (bytes.length !== KEY_BYTES) throw new PawlError("master-key-invalid", "a master key has 32 bytes");
    const derived = (use: string, length: number) => Buffer.from(hkdfSync("sha256", bytes, "", use, length));
    this.fingerprint = derived("pawl fingerprint", 8).toString("hex");
    this.#wrapping = derived("pawl wrapping", KEY_BYTES);
  }

  wrap(dataKey: Buffer, aad: string): Buffer {
    return encrypted(this.#wrapping, dataKey, aad);
  }

  unwrap(wrapped: Buffer, aad: string): Buffer {
    return decrypted(this.#wrapping, wrapped, aad);
  }
}

export class Vault {
  /** Newest first (S4). */
  #keys: MasterKey[];
  readonly #onSecrets: OnSecrets;
  readonly #firstKey: () => MasterKey;

  /** `firstKey` is asked when something has to be sealed and there is no key yet. */
  constructor(
    keys: readonly MasterKey[],
    { onSecrets = () => {}, firstKey }: { onSecrets?: OnSecrets; firstKey: () => MasterKey },
  ) {
    this.#keys = [...keys];
    this.#onSecrets = onSecrets;
    this.#firstKey = firstKey;
  }

  /** Of the key that seals; none before the first one is needed. */
  get fingerprint(): string | undefined {
    return this.#keys[0]?.fingerprint;
  }

  /** From now on this one seals; the others still open what they have sealed, until the process ends. */
  adopt(key: MasterKey): void {
    this.#keys = [key, ...this.#keys.filter((one) => one.fingerprint !== key.fingerprint)];
  }

  seal({ version, secrets, ...of }: SealedFor & { version: number; secrets: unknown }): string {
    this.#onSecrets(secrets, ownerOf(of)); // (S3)
    const dataKey = randomBytes(KEY_BYTES); // (S2)
    const bundle = encrypted(dataKey, Buffer.from(JSON.stringify(secrets)), aadOf("secrets", of, version));
    return this.#text(dataKey, aadOf("key", of, version), bundle);
  }

  open({ sealed, sealedVersion, ...of }: SealedFor & { sealed: string; sealedVersion: number }): unknown {
    const { dataKey, bundle } = this.#unwrapped(sealed, of, sealedVersion);
    const secrets = refusing(of, (): unknown =>
      JSON.parse(decrypted(dataKey, bundle, aadOf("secrets", of, sealedVersion)).toString()),
    );
    this.#onSecrets(secrets, ownerOf(of)); // (S3)
    return secrets;
  }

  /** The same bundle and data key under the newest master key, or nothing when they are already. */
  rewrap({
    sealed,
    sealedVersion,
    ...of
  }: SealedFor & { sealed: string; sealedVersion: number }): string | undefined {
    if (fingerprintOf(sealed) === this.fingerprint) return undefined;
    const { dataKey, bundle } = this.#unwrapped(sealed, of, sealedVersion);
    return this.#text(dataKey, aadOf("key", of, sealedVersion), bundle);
  }

  hasKeyOf(sealed: string): boolean {
    return this.#keys.some((key) => key.fingerprint === fingerprintOf(sealed));
  }

  #unwrapped(sealed: string, of: SealedFor, version: number): { dataKey: Buffer; bundle: Buffer } {
    const [format, fingerprint, wrapped = "", bundle = ""] = sealed.split(".");
    const key = this.#keys.find((one) => one.fingerprint === fingerprint);
    if (format !== FORMAT || !key)
      throw new PawlError("secret-sealed-elsewhere", `${whose(of)} are sealed with a key that is not here`);
    const aad = aadOf("key", of, version);
    const dataKey = refusing(of, () => key.unwrap(Buffer.from(wrapped, "base64url"), aad));
    return { dataKey, bundle: Buffer.from(bundle, "base64url") };
  }

  #text(dataKey: Buffer, aad: string, bundle: Buffer): string {
    const newest = this.#keys[0] ?? this.#firstKey();
    if (this.#keys.length === 0) this.adopt(newest);
    const wrapped = newest.wrap(dataKey, aad).toString("base64url");
    return [FORMAT, newest.fingerprint, wrapped, bundle.toString("base64url")].join(".");
  }
}

/** Which master key a sealed text needs. */
export const fingerprintOf = (sealed: string): string => sealed.split(".")[1] ?? "";

const ownerOf = ({ namespace, name }: SealedFor): string => `${namespace}/${name}`;
const whose = ({ name }: SealedFor): string => `the secrets of the connection ${name}`;

/** (S1) */
const aadOf = (part: "key" | "secrets", { namespace, name }: SealedFor, version: number): string =>
  JSON.stringify([FORMAT, part, namespace, name, version]);

function encrypted(key: Buffer, plain: Buffer, aad: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(Buffer.from(aad));
  const text = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([nonce, text, cipher.getAuthTag()]);
}

function decrypted(key: Buffer, sealed: Buffer, aad: string): Buffer {
  const cipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  });
  cipher.setAAD(Buffer.from(aad));
  cipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  return Buffer.concat([cipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), cipher.final()]);
}

/** The library's own words say nothing to an operator, and might say too much. */
function refusing<Result>(of: SealedFor, act: () => Result): Result {
  try {
    return act();
  } catch {
    throw new PawlError(
      "secret-sealed-elsewhere",
      `${whose(of)} were not sealed for it as it stands, or were changed since`,
    );
  }
}
