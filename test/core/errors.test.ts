import { describe, expect, test } from "vitest";
import { ERRORS, type ErrorCode, PawlError, unreachable } from "../../host/core/errors.ts";

const rows = Object.entries(ERRORS);

describe("the catalogue", () => {
  test.each(rows)("%s says in whole sentences what happened and what to do", (code, row) => {
    expect(code).toMatch(/^[a-z]+(-[a-z]+)*$/);
    expect(row.summary).toMatch(/^[A-Z`].*\.$/);
    expect(row.fix).toMatch(/^[A-Z`].*\.$/);
    expect(row.summary.length).toBeLessThanOrEqual(120);
  });

  test("no two codes say the same", () => {
    const summaries = rows.map(([, row]) => row.summary);
    expect(new Set(summaries).size).toBe(summaries.length);
  });

  test("a script's fault is of class logic: it is neither retried by itself nor the host's to repair", () => {
    const classes = rows.filter(([, row]) => row.blame === "script").map(([, row]) => row.class);
    expect(classes.length).toBeGreaterThan(40);
    expect([...new Set(classes)]).toEqual(["logic"]);
  });

  test("a request is answered with a status that says whose fault it is", () => {
    const answered = rows.filter(([, row]) => row.http !== undefined);
    expect(answered.length).toBeGreaterThan(40);
    for (const [code, { blame, http = 0 }] of answered)
      expect([code, http >= 500]).toEqual([code, blame === "host"]);
  });

  test("whatever makes a setting or an upload unusable is refused with a status", () => {
    const codes: ErrorCode[] = ["script-syntax", "reserved-alias", "policy-invalid", "not-yet-enforced"];
    expect(codes.map((code) => ERRORS[code].http)).toEqual([422, 422, 422, 422]);
    expect([ERRORS["script-too-large"].http, ERRORS["cursor-invalid"].http]).toEqual([413, 400]);
    expect(ERRORS["handler-throws"].http).toBeUndefined();
  });
});

describe("PawlError", () => {
  test("carries its code, its class by the catalogue, its message and its cause", () => {
    const cause = new Error("inner");
    const error = new PawlError("sandbox-start", "no binary", { cause });
    expect(error).toBeInstanceOf(Error);
    expect([error.name, error.code, error.class, error.message, error.cause]).toEqual([
      "PawlError",
      "sandbox-start",
      "internal",
      "no binary",
      cause,
    ]);
  });

  test.each(rows.map(([code]) => code as ErrorCode))("%s has the class of its row", (code) => {
    expect(new PawlError(code, "x").class).toBe(ERRORS[code].class);
  });
});

test("an impossible case is a programmer's error that names the value", () => {
  expect(() => unreachable({ kind: "surprise" } as never)).toThrow('unreachable: {"kind":"surprise"}');
});
