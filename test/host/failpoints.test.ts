import { expect, test } from "vitest";
import { failpointOf } from "../../host/system/failpoints.ts";

test.each([
  ["after:sending", ["after start", "before sending", "after prepared+intended+sending"], 3],
  ["after:sending:2", ["after sending", "before sending", "after sending+x"], 3],
  ["before:*:3", ["before a", "after a", "before b", "before c"], 4],
])("%s dies at its moment, not before", (text, moments, diesAt) => {
  let count = 0;
  let died: number | undefined;
  const point = failpointOf(text, () => {
    died ??= count;
  });
  for (const moment of moments) {
    count++;
    const [when, verb] = moment.split(" ") as ["before" | "after", string];
    point?.reached(when, verb);
  }
  expect(died).toBe(diesAt);
});

test("a failpoint that cannot be read is refused, none is none", () => {
  expect(() => failpointOf("sending")).toThrow('is not like "after:sending:3"');
  expect(failpointOf(undefined)).toBeUndefined();
});
