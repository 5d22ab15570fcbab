/** A schema's complaint → a JSON pointer and one sentence. Nothing of the value is repeated: it may be a secret. */
import type { z } from "zod";

const MOST_KEYS = 5;
const MOST_CHARS = 100;

export function readable(issue: z.core.$ZodIssue, at = ""): { path: string; message: string } {
  const path = issue.path.reduce<string>((whole, key) => `${whole}/${escaped(String(key))}`, at);
  if (issue.code === "unrecognized_keys") {
    const keys = issue.keys.slice(0, MOST_KEYS).map((key) => key.slice(0, MOST_CHARS));
    return { path: `${path}/${escaped(keys[0] ?? "")}`, message: `there is no ${keys.join(", ")} here` };
  }
  if (issue.code === "invalid_union") {
    const [inner] = issue.errors.flatMap((list) => list.filter((one) => one.path.length > 0));
    if (inner) return readable(inner, path);
  }
  return { path, message: issue.message.slice(0, 4 * MOST_CHARS) };
}

const escaped = (key: string): string => key.slice(0, MOST_CHARS).replaceAll("~", "~0").replaceAll("/", "~1");
