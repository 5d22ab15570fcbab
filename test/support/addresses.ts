// Every way we know to write an address that a request from this machine must not reach. Hosts, as they stand in a URL.

const FORBIDDEN_4 = [
  "127.0.0.1",
  "127.255.255.254",
  "10.0.0.1",
  "172.16.5.4",
  "172.31.255.255",
  "192.168.1.1",
  "169.254.169.254",
  "168.63.129.16",
  "100.64.0.1",
  "100.100.100.200",
  "192.0.0.192",
  "198.18.0.1",
  "240.0.0.1",
  "0.0.0.0",
  "224.0.0.1",
  "255.255.255.255",
];

const hex = (value: number, width = 1): string => value.toString(16).padStart(width, "0");
const octal = (value: number): string => `0${value.toString(8)}`;
const percent = (text: string): string =>
  Array.from(Buffer.from(text))
    .map((byte) => `%${hex(byte, 2).toUpperCase()}`)
    .join("");

function formsOf(address: string): string[] {
  const [a = 0, b = 0, c = 0, d = 0] = address.split(".").map(Number);
  const whole = ((a * 256 + b) * 256 + c) * 256 + d;
  const low = (b * 256 + c) * 256 + d;
  const words = `${hex(a * 256 + b)}:${hex(c * 256 + d)}`;
  const wide = Array.from(address)
    .map((char) => (char === "." ? "．" : String.fromCodePoint(0xff10 + Number(char))))
    .join("");
  return [
    address,
    `${address}.`,
    String(whole),
    `0x${hex(whole)}`,
    `0X${hex(whole).toUpperCase()}`,
    octal(whole),
    `0x${hex(a)}.0x${hex(b)}.0x${hex(c)}.0x${hex(d)}`,
    [a, b, c, d].map(octal).join("."),
    `0000${octal(a)}.${b}.${c}.${d}`,
    `${a}.0x${hex(b)}.${octal(c)}.${d}`,
    `${a}.${low}`,
    `${a}.${b}.${c * 256 + d}`,
    `0x${hex(a)}.0x${hex(low)}`,
    percent(address),
    address.replaceAll(".", "。"),
    address.replaceAll(".", "｡"),
    wide,
    percent(wide),
    `[::ffff:${address}]`,
    `[::FFFF:${words}]`,
    `[0:0:0:0:0:ffff:${words}]`,
    `[0000:0000:0000:0000:0000:FFFF:${address}]`,
    `[::ffff:0:${words}]`,
    `[::${words}]`,
    `[64:ff9b::${address}]`,
    `[64:ff9b::${words}]`,
    `[64:ff9b:1::${words}]`,
    `[2002:${words}::]`,
    `[2002:${words}::1]`,
    `[2001:0:${words}::1]`,
    `[fe80::5efe:${words}]`,
  ];
}

const FORBIDDEN_6 = [
  "::",
  "::1",
  "0:0:0:0:0:0:0:1",
  "0000:0000:0000:0000:0000:0000:0000:0001",
  "::0.0.0.1",
  "fe80::1",
  "FE80:0::A",
  "febf::1",
  "fec0::1",
  "fc00::1",
  "fd00:ec2::254",
  "FDFF:ffff::1",
  "ff02::1",
  "ff0e::1",
  "100::1",
  "2001::1",
  "2001:2::1",
  "2001:10::1",
  "2001:20::1",
  "2001:db8::1",
  "2002::1",
  "3fff::1",
  "4000::1",
  "5f00::1",
  "8000::1",
];

/** Names that lead to such an address wherever they are asked for. */
const NAMES: readonly [name: string, address: string][] = [
  ["localhost", "127.0.0.1"],
  ["LOCALHOST", "::1"],
  ["localhost.", "127.0.0.1"],
  ["a.localhost", "127.0.0.1"],
  ["localhost.localdomain", "127.0.0.1"],
  ["ip6-localhost", "::1"],
  ["localtest.me", "127.0.0.1"],
  ["127.0.0.1.nip.io", "127.0.0.1"],
  ["metadata.google.internal", "169.254.169.254"],
  ["Metadata.Google.Internal.", "169.254.169.254"],
  ["metadata", "169.254.169.254"],
  ["instance-data", "169.254.169.254"],
  ["metadata.azure.internal", "169.254.169.254"],
  ["kubernetes.default.svc", "10.96.0.1"],
  ["host.docker.internal", "172.17.0.1"],
  ["router.lan", "192.168.0.1"],
  ["mapped.example", "::ffff:127.0.0.1"],
  ["nat64.example", "64:ff9b::7f00:1"],
  ["zoned.example", "fe80::1%eth0"],
  ["nothing.example", "not an address"],
  ["empty.example", ""],
  ["bücher.example", "10.0.0.1"],
  ["loc%61lhost", "127.0.0.1"],
  ["ｌｏｃａｌｈｏｓｔ", "127.0.0.1"],
  ["ⓛocalhost", "127.0.0.1"],
];

const UNPARSED = [
  "[fe80::1%25eth0]",
  "[::1%25lo]",
  "[::ffff:127.0.0.1%251]",
  "[::1",
  "1.2.3.4.5",
  "256.1.1.1",
  "0x100000000",
  "08.0.0.1",
];

export const hosts: readonly string[] = [
  ...FORBIDDEN_4.flatMap(formsOf),
  ...FORBIDDEN_6.map((address) => `[${address}]`),
  ...NAMES.map(([name]) => name),
  ...UNPARSED,
];

/** What else may stand in a URL than a host, to the same end. */
export const urls: readonly string[] = [
  ...["127.0.0.1", "2130706433", "[::1]", "localhost"].flatMap((host) => [
    `http://public.example@${host}/`,
    `http://public.example:80@${host}/`,
    `http://public.example%40${host}/`,
    `http:${host}/`,
    `http:\\\\${host}\\`,
    `http:///${host}/`,
    `https://${host}/`,
    `hTTp://${host}:80/`,
    `http://\t${host}/`,
    `ftp://${host}/`,
    `ws://${host}/`,
    `gopher://${host}/`,
  ]),
  "file:///etc/passwd",
  "data:text/plain,x",
  "javascript:1",
  "unix:/var/run/docker.sock",
  "http://user:password@public.example/",
  "http://user@public.example/",
];

const answers = new Map(
  NAMES.map(([name, address]) => [
    URL.canParse(`http://${name}/`) ? new URL(`http://${name}/`).hostname : name,
    address,
  ]),
);

/** As a name server would answer. */
export function resolved(hostname: string): string[] {
  const address = answers.get(hostname);
  if (address === undefined) throw new Error(`nobody knows ${hostname}`);
  return address === "" ? [] : [address];
}
