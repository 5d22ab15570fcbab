/**
 * A schedule as a person reads it: "every 5 minutes", "at 09:00 on weekdays, Europe/Zurich". Decides wording only.
 *
 * P1. It never says less, more or other than the schedule does: what it has no words for is shown as it was written.
 * P2. A time of day always names its zone.
 */
import { type CronFields, readCronFields } from "./cron-fields.ts";
import type { Schedule } from "./workflow.ts";

const UNITS = [
  [86_400_000, "day"],
  [3_600_000, "hour"],
  [60_000, "minute"],
  [1_000, "second"],
  [1, "millisecond"],
] as const;
const WEEKDAYS = ["Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays"];
const DAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const MONTH_NAMES = MONTHS.map((month) => month.slice(0, 3).toUpperCase());
/** More times a day than this are a table, not a sentence. */
const MAX_TIMES = 4;

export function describeSchedule(schedule: Schedule): string {
  if ("intervalMs" in schedule) return every(schedule.intervalMs);
  const fields = readCronFields(schedule.cron);
  const times = fields && timesInWords(fields);
  const days = fields && daysInWords(fields);
  if (times === undefined || days === undefined)
    return `by the cron pattern "${schedule.cron.trim()}", ${schedule.timezone}`; // (P1)
  return `${times}${days === "" ? "" : ` ${days}`}, ${schedule.timezone}`; // (P2)
}

function every(ms: number): string {
  const [size, unit] = UNITS.find(([one]) => ms % one === 0) ?? [1, "millisecond"];
  return ms === size ? `every ${unit}` : `every ${ms / size} ${unit}s`;
}

function timesInWords({ minutes, hours }: CronFields): string | undefined {
  const minuteStep = evenStep(minutes, 60);
  const hourStep = evenStep(hours, 24);
  if (minutes.length * hours.length <= MAX_TIMES)
    return `at ${and(hours.flatMap((hour) => minutes.map((minute) => clock(hour, minute))))}`;
  if (minutes.length === 1) {
    const minute =
      minutes[0] === 0 ? "" : ` at ${minutes[0]} ${minutes[0] === 1 ? "minute" : "minutes"} past`;
    if (hourStep === 1) return `every hour${minute}`;
    if (hourStep !== undefined) return `every ${hourStep} hours from ${clock(0, minutes[0] ?? 0)}`;
  }
  if (minuteStep === undefined) return undefined;
  const often = every(minuteStep * 60_000);
  if (hourStep === 1) return often;
  const first = hours[0] ?? 0;
  const last = hours.at(-1) ?? 0;
  if (last - first !== hours.length - 1) return undefined;
  return `${often} from ${clock(first, 0)} to ${clock(last, minutes.at(-1) ?? 0)}`;
}

/** The step when the values start at 0 and are evenly spaced all the way round. */
function evenStep(values: number[], size: number): number | undefined {
  const step = size / values.length;
  return values.every((value, i) => value === i * step) ? step : undefined;
}

/** "" when every day, and the times say so themselves. */
function daysInWords(fields: CronFields): string | undefined {
  const months = listed(fields.month, MONTH_NAMES, 1, 12);
  if (months === undefined) return undefined;
  const inMonths = months === "all" ? "" : ` in ${and(months.map((month) => MONTHS[month - 1] as string))}`;
  const everyDay =
    fields.minutes.length * fields.hours.length <= MAX_TIMES || inMonths !== "" ? "every day" : "";
  if (fields.dayOfWeek === "*" && fields.dayOfMonth === "*") return `${everyDay}${inMonths}`;
  // Both restricted means "either": too easy to misread, so it is shown as written.
  if (fields.dayOfMonth === "*") {
    const days = listed(fields.dayOfWeek, DAY_NAMES, 0, 7);
    if (days === undefined || days === "all") return undefined;
    return `on ${weekdays([...new Set(days.map((day) => day % 7))])}${inMonths}`;
  }
  if (fields.dayOfWeek !== "*") return undefined;
  const ofMonths = months === "all" ? " of every month" : inMonths;
  if (fields.dayOfMonth === "L")
    return `on the last day${months === "all" ? ofMonths : ` of the month${inMonths}`}`;
  const days = listed(fields.dayOfMonth, [], 1, 31);
  if (days === undefined || days === "all" || days.length > MAX_TIMES) return undefined;
  return `on the ${and(days.map(ordinal))}${ofMonths}`;
}

function weekdays(days: number[]): string {
  // The week starts on Monday for people.
  const sorted = days.sort((a, b) => ((a + 6) % 7) - ((b + 6) % 7));
  if (sorted.join() === "1,2,3,4,5") return "weekdays";
  if (sorted.join() === "6,0") return "weekends";
  return and(sorted.map((day) => WEEKDAYS[day] as string));
}

/** The values of a field of plain numbers, names and ranges; `undefined` for anything else. */
function listed(field: string, names: string[], first: number, last: number): number[] | "all" | undefined {
  if (field === "*") return "all";
  const values = new Set<number>();
  const read = (text: string) => (names.includes(text) ? names.indexOf(text) + first : Number(text));
  for (const item of field.split(",")) {
    if (!/^[A-Z0-9]+(-[A-Z0-9]+)?$/.test(item)) return undefined;
    const [from, to = from] = item.split("-").map(read) as [number, number?];
    // Sunday ends a week when it stands at the end of a range.
    const end = names === DAY_NAMES && to === 0 && from > 0 ? 7 : to;
    if (!(from >= first && end <= last)) return undefined;
    for (let value = from; value <= end; value += 1) values.add(value);
  }
  return [...values].sort((a, b) => a - b);
}

const clock = (hour: number, minute: number) =>
  `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;

const and = (words: string[]) =>
  words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

function ordinal(day: number): string {
  const ending = day >= 11 && day <= 13 ? "th" : (["th", "st", "nd", "rd"][day % 10] ?? "th");
  return `${day}${ending}`;
}
