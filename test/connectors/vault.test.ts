import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { keyFileOf, Keys } from "../../host/connectors/key-rotation.ts";
import { newKey, parseKeys } from "../../host/connectors/master-key.ts";
import { fingerprintOf, type OnSecrets, Vault } from "../../host/connectors/secrets.ts";
import type { ConnectionRow } from "../../host/ports/connections.ts";

const SECRETS = { token: "canary-5f1d0c", nested: { password: "canary-77ab" } };
const OF = { namespace: 1, name: "shop" };

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-vault-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const codeOf = async (act: () => unknown): Promise<string | undefined> => {
  try {
    await act();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
};

const vaultOf = (onSecrets: OnSecrets = () => {}): Vault =>
  new Vault([], { onSecrets, firstKey: () => newKey().key });

/** The rows of a store, in order, which may stop to answer where a host dies. */
class Rows {
  rows: ConnectionRow[] = [];
  /** How many more rows are sealed anew before the host dies. */
  left = Number.POSITIVE_INFINITY;

  add(vault: Vault, name: string, secrets: unknown = SECRETS): ConnectionRow {
    const sealed = vault.seal({ namespace: 1, name, version: 1, secrets });
    const row = {
      id: this.rows.length + 1,
      namespace: 1,
      name,
      connector: "http",
      config: "{}",
      configVersion: 1,
      sealed,
      sealedVersion: 1,
      createdAtMs: 0,
      updatedAtMs: 0,
    };
    this.rows.push(row);
    return row;
  }

  async sealed(): Promise<ConnectionRow[]> {
    await new Promise((resolve) => setImmediate(resolve));
    return this.rows.map((row) => ({ ...row }));
  }

  async reseal(id: number, from: number, { text, version }: { text: string; version: number }) {
    await new Promise((resolve) => setImmediate(resolve));
    if (this.left-- <= 0) throw new Error("the host died");
    const row = this.rows.find((one) => one.id === id);
    if (!row || row.sealedVersion !== from) return false;
    row.sealed = text;
    row.sealedVersion = version;
    return true;
  }

  opened(vault: Vault): unknown[] {
    return this.rows.map((row) => vault.open(row as ConnectionRow & { sealed: string }));
  }
}

async function withRows(count: number): Promise<{ rows: Rows; keys: Keys; data: string }> {
  const data = join(folder, "data");
  const rows = new Rows();
  const keys = await Keys.open(rows, { data });
  for (let n = 0; n < count; n++) rows.add(keys.vault, `c${n}`, { token: `canary-${n}` });
  return { rows, keys, data };
}

const tokens = (count: number) => Array.from({ length: count }, (_, n) => ({ token: `canary-${n}` }));

describe("(S1) a sealed text opens only where it was sealed for", () => {
  const vault = vaultOf();
  const sealed = vault.seal({ ...OF, version: 3, secrets: SECRETS });

  test("as itself", () => {
    expect(vault.open({ ...OF, sealed, sealedVersion: 3 })).toEqual(SECRETS);
  });

  test.each([
    ["another namespace", { namespace: 2, name: "shop", sealedVersion: 3 }],
    ["another name", { namespace: 1, name: "bank", sealedVersion: 3 }],
    ["another version", { namespace: 1, name: "shop", sealedVersion: 4 }],
  ])("not in %s", async (_, row) => {
    expect(await codeOf(() => vault.open({ ...row, sealed }))).toBe("secret-sealed-elsewhere");
    const newer = vaultOf();
    expect(await codeOf(() => newer.open({ ...row, sealed }))).toBe("secret-sealed-elsewhere");
  });

  test("not with one character changed, in any place", async () => {
    for (let at = 0; at < sealed.length; at++) {
      const other = sealed[at] === "A" ? "B" : "A";
      const changed = sealed.slice(0, at) + other + sealed.slice(at + 1);
      // The last character of base64 may hold bits that mean nothing.
      const bytes = (text: string) =>
        text.split(".").map((part) => Buffer.from(part, "base64url").toString("hex"));
      if (bytes(changed).join() === bytes(sealed).join() && fingerprintOf(changed) === fingerprintOf(sealed))
        continue;
      expect(await codeOf(() => vault.open({ ...OF, sealed: changed, sealedVersion: 3 })), `at ${at}`).toBe(
        "secret-sealed-elsewhere",
      );
    }
  });

  test("not with the data key of another row, whose bundle it is", async () => {
    const other = vault.seal({ ...OF, name: "bank", version: 3, secrets: SECRETS });
    const mixed = [...other.split(".").slice(0, 3), sealed.split(".")[3]].join(".");
    expect(await codeOf(() => vault.open({ ...OF, sealed: mixed, sealedVersion: 3 }))).toBe(
      "secret-sealed-elsewhere",
    );
  });
});

test("(S2) the same secrets sealed twice have nothing in common, and show nothing of themselves", () => {
  const vault = vaultOf();
  const [one, two] = [1, 2].map(() => vault.seal({ ...OF, version: 1, secrets: SECRETS }).split("."));
  expect(one?.[2]).not.toBe(two?.[2]);
  expect(one?.[3]?.slice(0, 16)).not.toBe(two?.[3]?.slice(0, 16));
  expect(Buffer.from(one?.[3] ?? "", "base64url").includes("canary")).toBe(false);
});

test("(S3) whoever seals or opens tells the redactor", () => {
  const told: unknown[] = [];
  const vault = vaultOf((...both) => told.push(both));
  const sealed = vault.seal({ ...OF, version: 1, secrets: SECRETS });
  vault.open({ ...OF, sealed, sealedVersion: 1 });
  expect(told).toEqual([
    [SECRETS, "1/shop"],
    [SECRETS, "1/shop"],
  ]);
});

describe("the master key", () => {
  test("is not made before there is something to seal", async () => {
    const data = join(folder, "data");
    const keys = await Keys.open(new Rows(), { data });
    expect(keys.found).toEqual({ resealed: 0, foreign: [] });
    expect(existsSync(`${data}.key`)).toBe(false);
  });

  test("is made for the first secret, beside the data, for its owner alone, and found again", async () => {
    const { rows, data } = await withRows(2);
    const file = keyFileOf({ data }) as string;
    expect(file).toBe(`${data}.key`);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const again = await Keys.open(rows, { data });
    expect(rows.opened(again.vault)).toEqual(tokens(2));
    expect(again.found).toMatchObject({ resealed: 0, foreign: [] });
  });

  test.each([0o640, 0o604, 0o660, 0o644, 0o620])(
    "(K1) is refused when its file has the mode %o",
    async (mode) => {
      const { rows, data } = await withRows(1);
      chmodSync(`${data}.key`, mode);
      expect(await codeOf(() => Keys.open(rows, { data }))).toBe("master-key-exposed");
    },
  );

  test("(R1) that is lost stops the start, and no new one is made", async () => {
    const { rows, data } = await withRows(1);
    rmSync(`${data}.key`);
    expect(await codeOf(() => Keys.open(rows, { data }))).toBe("master-key-missing");
    expect(existsSync(`${data}.key`)).toBe(false);
  });

  test("(R1) that is another one stops the start, from a file and from the environment", async () => {
    const { rows, data } = await withRows(1);
    const { text } = newKey();
    expect(await codeOf(() => Keys.open(rows, { data, masterKey: text }))).toBe("master-key-missing");
    writeFileSync(`${data}.key`, text);
    expect(await codeOf(() => Keys.open(rows, { data }))).toBe("master-key-missing");
  });

  test("that is lost for good can be done without: what it sealed is named, and has to be entered again", async () => {
    const { rows, data } = await withRows(2);
    rmSync(`${data}.key`);
    const keys = await Keys.open(rows, { data, withoutLostKeys: true });
    expect(keys.found.foreign).toEqual(["c0", "c1"]);
    expect(await codeOf(() => rows.opened(keys.vault))).toBe("secret-sealed-elsewhere");
    rows.rows = [];
    rows.add(keys.vault, "c0");
    expect(rows.opened((await Keys.open(rows, { data })).vault)).toEqual([SECRETS]);
  });

  test("is read in base64, base64url and hex", () => {
    const bytes = Buffer.alloc(32, 0xfb);
    const prints = (["base64", "base64url", "hex"] as const).map(
      (form) => parseKeys(bytes.toString(form), "test")[0]?.key.fingerprint,
    );
    expect(new Set(prints).size).toBe(1);
  });

  test.each(["", "short", "g".repeat(64), "A".repeat(42), "A".repeat(45), "#"])(
    "(K3) is refused as %j, in words that do not repeat it",
    async (text) => {
      expect(await codeOf(() => parseKeys(text, "PAWL_MASTER_KEY"))).toBe("master-key-invalid");
      expect(() => parseKeys(text, "PAWL_MASTER_KEY")).not.toThrow(text.length > 1 ? text : "\0");
    },
  );

  test("that cannot be kept seals nothing, and does not stop a host without secrets", async () => {
    const keyFile = join(folder, "nowhere", "key");
    const { vault } = await Keys.open(new Rows(), { data: folder, keyFile });
    for (let n = 0; n < 2; n++)
      expect(await codeOf(() => vault.seal({ ...OF, version: 1, secrets: SECRETS }))).toBe(
        "master-key-missing",
      );
  });

  test("is told to the redactor when it is made and when it is found", async () => {
    const told: unknown[] = [];
    const options = { data: join(folder, "data"), onSecrets: (secrets: unknown) => told.push(secrets) };
    (await Keys.open(new Rows(), options)).vault.seal({ ...OF, version: 1, secrets: SECRETS });
    await Keys.open(new Rows(), options);
    const [key] = parseKeys(readFileSync(join(folder, "data.key"), "utf8"), "test");
    expect(told).toEqual([SECRETS, key?.text, key?.text]);
  });

  test("of a host in memory ends with it, and can be rotated", async () => {
    const rows = new Rows();
    const keys = await Keys.open(rows);
    rows.add(keys.vault, "c0");
    expect(await keys.rotateMaster()).toMatchObject({ resealed: 1 });
    expect(rows.opened(keys.vault)).toEqual([SECRETS]);
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe("a new master key", () => {
  test("wraps every data key anew; the old one is kept for old backups, and opens nothing new", async () => {
    const { rows, keys, data } = await withRows(5);
    const before = keys.vault.fingerprint;
    const backup = rows.rows.map((row) => ({ ...row }));
    const rotated = await keys.rotateMaster();
    expect(rotated).toMatchObject({ resealed: 5, foreign: [], keptIn: `${data}.key.${before}` });
    expect(new Set(rows.rows.map((row) => fingerprintOf(row.sealed ?? "")))).toEqual(
      new Set([rotated.fingerprint]),
    );
    expect(rows.opened((await Keys.open(rows, { data })).vault)).toEqual(tokens(5));
    expect(await codeOf(() => Keys.open(rows, { keyFile: rotated.keptIn as string }))).toBe(
      "master-key-missing",
    );
    rows.rows = backup;
    expect(rows.opened((await Keys.open(rows, { keyFile: rotated.keptIn as string })).vault)).toEqual(
      tokens(5),
    );
  });

  test.each([0, 1, 4, 5])("(R2) goes on after a host that died behind %i of 5 rows", async (behind) => {
    const { rows, keys, data } = await withRows(5);
    rows.left = behind;
    await keys.rotateMaster().catch(() => {});
    rows.left = 0;
    await Keys.open(rows, { data }).catch(() => {});
    rows.left = Number.POSITIVE_INFINITY;
    const again = await Keys.open(rows, { data });
    expect(rows.opened(again.vault)).toEqual(tokens(5));
    expect(again.found.resealed).toBe(5 - behind);
    const prints = new Set(rows.rows.map((row) => fingerprintOf(row.sealed ?? "")));
    expect(prints).toEqual(new Set([again.vault.fingerprint]));
    expect(parseKeys(readFileSync(`${data}.key`, "utf8"), "test")).toHaveLength(1);
    expect(readdirSync(folder).filter((name) => name.startsWith("data.key"))).toHaveLength(2);
  });

  test("(R3) comes and goes, with new data keys, during 1,000 reads without an error", async () => {
    const { rows, keys } = await withRows(10);
    let [reads, isOver] = [0, false];
    const reading = async () => {
      while (reads < 1_000 || !isOver) {
        const row = { ...(rows.rows[reads++ % 10] as ConnectionRow & { sealed: string }) };
        // What was read from the store is opened a little later, when a rotation may have passed.
        await new Promise((resolve) => setImmediate(resolve));
        expect(keys.vault.open(row)).toEqual({ token: `canary-${row.id - 1}` });
      }
    };
    const rotating = async () => {
      for (let n = 0; n < 10; n++) await (n % 2 === 0 ? keys.rotateMaster() : keys.renewDataKeys());
      isOver = true;
    };
    await Promise.all([rotating(), reading(), reading()]);
    expect(reads).toBeGreaterThanOrEqual(1_000);
    expect(rows.rows.map((row) => row.sealedVersion)).toEqual(Array.from({ length: 10 }, () => 6));
  });

  test("given from outside stands before the old one: a start re-wraps, then the old one may go", async () => {
    const [old, next] = [newKey().text, newKey().text];
    const rows = new Rows();
    rows.add((await Keys.open(rows, { masterKey: old })).vault, "c0");
    const both = await Keys.open(rows, { masterKey: `${next},${old}` });
    expect(both.found.resealed).toBe(1);
    expect(await codeOf(() => both.rotateMaster())).toBe("master-key-external");
    expect(rows.opened((await Keys.open(rows, { masterKey: next })).vault)).toEqual([SECRETS]);
  });
});

test("new data keys encrypt every bundle anew, under the same master key", async () => {
  const { rows, keys, data } = await withRows(3);
  const before = rows.rows.map((row) => row.sealed);
  expect(await keys.renewDataKeys()).toMatchObject({ resealed: 3, fingerprint: keys.vault.fingerprint });
  expect(rows.rows.map((row) => row.sealedVersion)).toEqual([2, 2, 2]);
  expect(rows.rows.some((row, at) => row.sealed?.split(".")[3] === before[at]?.split(".")[3])).toBe(false);
  expect(rows.opened((await Keys.open(rows, { data })).vault)).toEqual(tokens(3));
});

test("a row that cannot be opened is named and left alone while the others are rotated", async () => {
  const { rows, keys } = await withRows(3);
  const [first, second] = rows.rows as [ConnectionRow & { sealed: string }, ConnectionRow];
  second.sealed = first.sealed;
  const rotated = await keys.rotateMaster();
  expect(rotated).toMatchObject({ resealed: 2, foreign: ["c1"] });
});
