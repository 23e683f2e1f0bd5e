// Makes dist/: view.js for script tags, index.js and its types for npm. Prints view.js's size and its integrity hash.
import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));

/** The script as built from what stands in src/, as text. */
export function script() {
  return bundle("src/script.ts", { format: "iife", minify: true });
}

/** The module as npm has it, as text. */
export function module() {
  return bundle("src/index.ts", { format: "esm" });
}

/** Bytes after `gzip -9`. */
export function gzipped(text) {
  return gzipSync(text, { level: 9 }).length;
}

/** What stands in a tag's `integrity`. */
export function integrity(text) {
  return "sha384-" + createHash("sha384").update(text).digest("base64");
}

function bundle(entry, options) {
  const made = buildSync({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    // What browsers of 2020 know.
    target: "es2020",
    charset: "utf8",
    write: false,
    ...options,
  });
  return made.outputFiles[0].text;
}

function build() {
  const view = script();
  // Types first: what does not pass them is not built.
  execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "--outDir", "dist"], { cwd: here, stdio: "inherit" });
  for (const inside of ["deliver", "script"]) rmSync(`${here}dist/${inside}.d.ts`);
  writeFileSync(`${here}dist/index.js`, module());
  writeFileSync(`${here}dist/view.js`, view);
  console.log(`dist/view.js  ${view.length} bytes, ${gzipped(view)} gzipped\nintegrity     ${integrity(view)}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) build();
