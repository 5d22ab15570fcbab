// Run after a dependency change: node .ci/complete-lock.mjs
// Some registries carry only part of the platform packages. npm then leaves them out of the lockfile, and
// `npm ci` refuses it as out of sync. This adds each missing one as an optional entry at the exact version
// its parent pins; os and cpu come from the newest version the registry does carry, else from the name.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const root = new URL("../", import.meta.url);
const lockFile = new URL("package-lock.json", root);
const lock = JSON.parse(readFileSync(lockFile, "utf8"));
const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8"));
const packages = lock.packages;
packages[""].optionalDependencies = manifest.optionalDependencies;

function newestManifest(name) {
  const fields = ["version", "os", "cpu", "libc", "license", "engines", "bin"];
  try {
    const out = execFileSync("npm", ["view", name, ...fields, "--json"], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
    return [JSON.parse(out)].flat().at(-1);
  } catch {
    return {};
  }
}

function platformFromName(name) {
  const os = /(android|darwin|freebsd|linux|openharmony|win32)/.exec(name)?.[1];
  const cpu = /(arm64|x64|ia32|wasm32|ppc64|riscv64|s390x|arm)/.exec(name)?.[1];
  return { os, cpu };
}

const list = (value) => (value === undefined ? undefined : [value].flat());

for (const [path, parent] of Object.entries({ ...packages })) {
  for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
    const held = packages[`node_modules/${name}`] ?? packages[`${path}/node_modules/${name}`];
    if (held || !/^\d+\.\d+\.\d+$/.test(version)) continue;
    const known = newestManifest(name);
    const guess = platformFromName(name);
    const entry = {
      version,
      cpu: list(known.cpu ?? guess.cpu),
      dev: parent.dev,
      libc: list(known.libc),
      license: known.license,
      optional: true,
      os: list(known.os ?? guess.os),
      bin: known.bin,
      engines: known.engines,
    };
    packages[`node_modules/${name}`] = JSON.parse(JSON.stringify(entry));
    console.log(`added ${name}@${version}`);
  }
}

const { "": top, ...rest } = packages;
const sorted = Object.entries(rest).sort(([a], [b]) => a.localeCompare(b, "en"));
lock.packages = { "": top, ...Object.fromEntries(sorted) };
writeFileSync(lockFile, `${JSON.stringify(lock, null, 2)}\n`);
