/**
 * A syscall filter for children, as the classic BPF program that bubblewrap loads. It answers EPERM to what a script's
 * process never needs and an escaped one would want: sockets beyond the inherited one, tracing, mounting, modules,
 * keys, io_uring, other processes' memory. Written as a deny list, because V8 and libuv differ by kernel in what they
 * need; a foreign architecture kills.
 */
const ARCH = { x64: 0xc000003e, arm64: 0xc00000b7 } as const;

/** name: [x64, arm64]; -1 where the architecture lacks the call. */
const DENIED: Record<string, [number, number]> = {
  socket: [41, 198],
  connect: [42, 203],
  accept: [43, 202],
  bind: [49, 200],
  listen: [50, 201],
  socketpair: [53, 199],
  ptrace: [101, 117],
  setuid: [105, 146],
  setgid: [106, 144],
  chroot: [161, 51],
  mount: [165, 40],
  umount2: [166, 39],
  init_module: [175, 105],
  delete_module: [176, 106],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  perf_event_open: [298, 241],
  accept4: [288, 242],
  unshare: [272, 97],
  setns: [308, 268],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  finit_module: [313, 273],
  kexec_load: [246, 104],
  bpf: [321, 280],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  pidfd_open: [434, 434],
  pidfd_getfd: [438, 438],
};

const LOAD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_NOT_BELOW = 0x35;
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const X32_BIT = 0x40000000;

/** The filter for this machine, or `undefined` where none is written. */
export function seccompFilter(arch: string = process.arch): Buffer | undefined {
  if (arch !== "x64" && arch !== "arm64") return undefined;
  const denied = Object.values(DENIED).map((numbers) => numbers[arch === "x64" ? 0 : 1]);
  const code: [op: number, yes: number, no: number, value: number][] = [
    [LOAD, 0, 0, 4],
    [JUMP_EQUAL, 1, 0, ARCH[arch]],
    [RETURN, 0, 0, KILL],
    [LOAD, 0, 0, 0],
    [JUMP_NOT_BELOW, denied.length + 1, 0, X32_BIT],
  ];
  for (const [i, number] of denied.entries()) code.push([JUMP_EQUAL, denied.length - i, 0, number]);
  code.push([RETURN, 0, 0, ALLOW], [RETURN, 0, 0, EPERM]);
  const out = Buffer.alloc(code.length * 8);
  for (const [i, [op, yes, no, value]] of code.entries()) {
    out.writeUInt16LE(op, i * 8);
    out.writeUInt8(yes, i * 8 + 2);
    out.writeUInt8(no, i * 8 + 3);
    out.writeUInt32LE(value >>> 0, i * 8 + 4);
  }
  return out;
}
