// What is built: the script that the program has in it, and the module.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { gzipped, integrity, module, script } from "../build.mjs";
import { launch } from "./support/browser.mjs";
import { startHouse } from "./support/house.mjs";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

let house, site, browser;

before(async () => {
  [house, browser] = await Promise.all([startHouse(), launch()]);
  site = house.site;
});
after(async () => {
  await browser?.close();
  await house?.stop();
});

test("the script that is checked in is what src/ gives, and what the program serves", async () => {
  const fresh = script();
  assert.ok(read("../dist/view.js") === fresh, "it is not: npm run build");
  const answer = await fetch(`${house.onlooker.url}/v1/view.js`);
  assert.ok((await answer.text()) === fresh, "the program is older than the script: cargo build");
});

test("the script stays small", () => {
  const size = gzipped(script());
  assert.ok(size <= 1536, `${size} bytes gzipped`);
});

test("the lock file names no place to fetch from", () => {
  assert.doesNotMatch(read("../package-lock.json"), /"resolved"/);
});

test("a page may insist on the script's hash", async () => {
  const page = await browser.newPage();
  // Another host than the page's, where a browser checks a hash only of what may be read.
  const src = `http://localhost:${site.port}/v1/view.js`;
  const tagged = (hash) => `data-site="blog" crossorigin integrity="${hash}"`;
  await page.goto(site.page("/other-hash", { src, tag: tagged(integrity("something else")) }));
  assert.equal(await page.evaluate(() => typeof onlooker), "undefined");
  await page.goto(site.page("/hash", { src, tag: tagged(integrity(script())) }));
  await site.answered("/hash", 1);
  assert.equal(await house.views("/hash"), 1);
  assert.equal(await house.views("/other-hash"), 0);
});

test("a bundle that imports the module counts the same", async () => {
  const page = await browser.newPage();
  const code = Buffer.from(module()).toString("base64");
  const body = `<script type="module">
    import { start } from "data:text/javascript;base64,${code}";
    start({ to: "/v1/views", site: "blog", item: "by-module" }).view("by-hand");
  </script>`;
  await page.goto(site.page("/module", { src: "", body }));
  await Promise.all(["by-module", "by-hand"].map((item) => site.answered(item, 1)));
  assert.equal(await house.views("by-module"), 1);
  assert.equal(await house.views("by-hand"), 1);
});
