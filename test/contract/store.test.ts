import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openStore, type SqliteStore, type StoreOptions } from "../../host/store/open.ts";
import { describeStoreContract, type StoreHarness } from "./store.ts";

function harness(options: Omit<StoreOptions, "nowMs">): StoreHarness {
  let store: SqliteStore | undefined;
  return {
    outlivesClose: options.data !== ":memory:",
    open: async () => {
      store = openStore({ nowMs: () => 1_000, ...options });
      return store;
    },
    rows: async (sql) => {
      if (!store) throw new Error("not open");
      const statement = store.db.prepare<unknown[], Record<string, unknown>>(sql);
      if (statement.reader) return statement.all();
      statement.run();
      return [];
    },
  };
}

const folder = () => mkdtempSync(join(tmpdir(), "pawl-contract-"));

describeStoreContract("SQLite in memory", () => harness({ data: ":memory:" }));
describeStoreContract("SQLite in a file, own barrier", () =>
  harness({ data: folder(), durability: "barrier" }),
);
describeStoreContract("SQLite in a file, its own FULL", () =>
  harness({ data: folder(), durability: "full" }),
);
