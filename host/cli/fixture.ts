/** The fixture beside a script: `orders.ts` → `orders.fixture.json`. */
import { existsSync, readFileSync } from "node:fs";
import { z } from "zod";
import { type Fixture, fixtureShape } from "../host.ts";
import { CliFailure, inert, type ScriptFile } from "./render.ts";

export function readFixture({ path: script }: Pick<ScriptFile, "path">): Fixture {
  const path = script.replace(/\.m?[jt]s$/, ".fixture.json");
  if (!existsSync(path)) return { handlers: {} };
  try {
    return fixtureShape.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch (error) {
    const why = error instanceof z.ZodError ? z.prettifyError(error) : (error as Error).message;
    throw new CliFailure(2, `the fixture ${inert(path)} cannot be used: ${inert(why, 400)}`);
  }
}
