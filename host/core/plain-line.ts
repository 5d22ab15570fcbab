/** Text that came from a script or from outside, as one line that no terminal, mail header or page obeys. */

/** Control characters, line and paragraph separators, and what turns the direction of writing around. */
const UNPLAIN = /[\p{Cc}\p{Cf}\u2028\u2029]+/gu;

export function plainLine(text: string, mostChars: number): string {
  const line = text.toWellFormed().replace(UNPLAIN, " ").trim();
  return line.length <= mostChars ? line : `${line.slice(0, mostChars - 1).toWellFormed()}…`;
}
