/**
 * The five fields of a cron pattern, read strictly. croner is lenient ("5* * * * *" is minute 5, "janfeb" is December,
 * an ISO date fires once): what it would guess at is refused here. Which days match stays croner's business.
 *
 * F1. Only what is written plainly is read: `*`, numbers, ranges, steps of `*` or of a range, lists, names of months and
 *     days, `L`, `LW`, `15W`, `FRI#2`, `FRIL`, a leading `+` (both day fields must match), `?` for `*`, and nicknames
 *     such as `@daily`.
 * F2. Two patterns with the same fields have the same text, so that caches are keyed by meaning.
 */
export interface CronFields {
  /** Ascending. */
  minutes: number[];
  /** Ascending. */
  hours: number[];
  dayOfMonth: string;
  month: string;
  dayOfWeek: string;
}

const MAX_PATTERN_LENGTH = 256;
const NICKNAMES: Record<string, string> = {
  "@YEARLY": "0 0 1 1 *",
  "@ANNUALLY": "0 0 1 1 *",
  "@MONTHLY": "0 0 1 * *",
  "@WEEKLY": "0 0 * * 0",
  "@DAILY": "0 0 * * *",
  "@MIDNIGHT": "0 0 * * *",
  "@HOURLY": "0 * * * *",
};
const MONTH = "(?:\\d{1,2}|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)";
const WEEKDAY = "(?:[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)";
const list = (item: string) => new RegExp(`^(?:${item})(?:,(?:${item}))*$`);
const spans = (one: string) => `\\*(?:/\\d{1,2})?|${one}(?:-${one}(?:/\\d{1,2})?)?`;
const DAYS_OF_MONTH = list(`${spans("\\d{1,2}")}|\\d{1,2}W|L`);
const MONTHS = list(spans(MONTH));
const DAYS_OF_WEEK = list(`${spans(WEEKDAY)}|${WEEKDAY}#[1-5]|${WEEKDAY}L`);

/** `undefined` when the text is no pattern (F1). Values that no calendar has ("32nd") are left to croner. */
export function readCronFields(pattern: string): CronFields | undefined {
  if (pattern.length > MAX_PATTERN_LENGTH) return undefined;
  const text = pattern.trim().toUpperCase();
  const parts = (NICKNAMES[text] ?? text).split(/\s+/).map((part) => (part === "?" ? "*" : part));
  const [minute, hour, dayOfMonth, month, dayOfWeek, ...more] = parts;
  if (minute === undefined || hour === undefined || dayOfMonth === undefined) return undefined;
  if (month === undefined || dayOfWeek === undefined || more.length > 0) return undefined;
  const minutes = numbersOf(minute, 60);
  const hours = numbersOf(hour, 24);
  if (minutes === undefined || hours === undefined) return undefined;
  if (dayOfMonth !== "LW" && !DAYS_OF_MONTH.test(dayOfMonth)) return undefined;
  if (!MONTHS.test(month) || !DAYS_OF_WEEK.test(dayOfWeek.replace(/^\+/, ""))) return undefined;
  return { minutes, hours, dayOfMonth, month, dayOfWeek };
}

/** The pattern croner is given (F2); minute and hour spelled out, so that one time a day is seen as such. */
export function patternOf(fields: CronFields): string {
  return `${fields.minutes.join(",")} ${fields.hours.join(",")} ${daysOf(fields)}`;
}

/** The fields that choose days. */
export function daysOf({ dayOfMonth, month, dayOfWeek }: CronFields): string {
  return `${dayOfMonth} ${month} ${dayOfWeek}`;
}

/** "a pattern with one time a day" (02 §1.2). */
export function isOnceADay(fields: CronFields): boolean {
  return fields.minutes.length === 1 && fields.hours.length === 1;
}

function numbersOf(field: string, size: number): number[] | undefined {
  const found = new Set<number>();
  for (const item of field.split(",")) {
    const [, star, from, to, step] = /^(?:(\*)|(\d{1,2})(?:-(\d{1,2}))?)(?:\/(\d{1,2}))?$/.exec(item) ?? [];
    if (star === undefined && from === undefined) return undefined;
    if (step !== undefined && star === undefined && to === undefined) return undefined;
    const first = Number(from ?? 0);
    const last = star === undefined ? Number(to ?? first) : size - 1;
    const by = Number(step ?? 1);
    if (first > last || last >= size || by < 1 || by > size) return undefined;
    for (let value = first; value <= last; value += by) found.add(value);
  }
  return [...found].sort((a, b) => a - b);
}
