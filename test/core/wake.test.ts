// wakeAt: what a script's text becomes.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { clampWake } from "../../host/core/wake.ts";

const MIN = 30_000;
const MAX = 86_400_000;
const NOW = Date.parse("2027-03-01T12:00:00Z");
const clamp = (text: string | undefined) => clampWake(text, NOW, MIN, MAX);

describe("1.6 wakeAt is clamped once, when prepare returned", () => {
  it("1.6 a time within the limits is kept", () => {
    expect(clamp("2027-03-01T13:00:00.250Z")).toEqual({ wakeAtMs: NOW + 3_600_250 });
  });

  it("1.6 none is none", () => {
    expect(clamp(undefined)).toEqual({});
  });

  it("1.6 past → min", () => {
    for (const text of [
      "2027-03-01T11:59:59Z",
      "1970-01-01T00:00:00Z",
      "-271821-04-20T00:00:00Z",
      "2027-03-01T12:00:29Z",
    ])
      expect(clamp(text)).toEqual({ wakeAtMs: NOW + MIN });
  });

  it("1.6 too far → max", () => {
    for (const text of ["2027-03-02T12:00:01Z", "9999-12-31T23:59:59Z", "+275760-09-13T00:00:00Z"])
      expect(clamp(text)).toEqual({ wakeAtMs: NOW + MAX });
  });

  it.each([
    "",
    "tomorrow",
    "2027-03-01",
    "2027-03-01T13:00",
    "2027-03-01T13:00:00",
    "2027-03-01 13:00:00Z",
    "2027-03-01t13:00:00z",
    "20270301T130000Z",
    "2027-02-29T00:00:00Z",
    "2027-13-01T00:00:00Z",
    "2027-00-01T00:00:00Z",
    "2027-03-01T24:00:00Z",
    "2027-03-01T13:60:00Z",
    "2027-03-01T13:00:60Z",
    "2027-03-01T13:00:00+24:00",
    "2027-03-01T13:00:00+01",
    "2027-03-01T13:00:00+01:00[Europe/Zurich]",
    " 2027-03-01T13:00:00Z",
    "-000000-01-01T00:00:00Z",
    "+275760-09-13T00:00:01Z",
    "1772370000000",
    "Mon, 01 Mar 2027 13:00:00 GMT",
  ])("1.6 (W2) unparsable → max with a warning: %j", (text) => {
    expect(clamp(text)).toEqual({
      wakeAtMs: NOW + MAX,
      warning: expect.stringContaining(JSON.stringify(text)) as string,
    });
  });

  it("1.6 a warning quotes only the start of a long text", () => {
    expect(clamp("x".repeat(100_000)).warning?.length).toBeLessThan(250);
  });

  it.each([
    "2027-03-01T13:00Z",
    "2027-03-01T14:00:00+01:00",
    "2027-03-01T14:00:00+0100",
    "2027-03-01T08:00:00-05:00",
    "2027-03-01T18:45:00.000+05:45",
    "2027-03-01T13:00:00.000999999Z",
    "2027-03-01T13:00:00,0Z",
    "2027-02-28T14:00:00-23:00",
  ])("1.6 (W2) %s is that instant", (text) => {
    expect(clamp(text)).toEqual({ wakeAtMs: NOW + 3_600_000 });
  });

  it("1.6 (W1) property: whatever a date prints is read back, and always lands within the limits", () => {
    fc.assert(
      fc.property(fc.integer({ min: -8.64e15, max: 8.64e15 }), (ms) => {
        expect(clamp(new Date(ms).toISOString())).toEqual({
          wakeAtMs: Math.min(Math.max(ms, NOW + MIN), NOW + MAX),
        });
      }),
    );
    fc.assert(
      fc.property(fc.integer({ min: NOW + MIN, max: NOW + MAX }), (ms) => {
        expect(clamp(new Date(ms).toISOString())).toEqual({ wakeAtMs: ms });
      }),
    );
  });

  it("1.6 (W1) property: any text gives a wake within the limits", () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        const { wakeAtMs } = clamp(text);
        expect(wakeAtMs).toBeGreaterThanOrEqual(NOW + MIN);
        expect(wakeAtMs).toBeLessThanOrEqual(NOW + MAX);
      }),
    );
  });

  it("a policy whose limits cross is a programmer's error", () => {
    expect(() => clampWake("2027-03-01T13:00:00Z", NOW, 2, 1)).toThrow("shortest wake");
  });
});
