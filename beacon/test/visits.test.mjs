// What counts as a visit, in a browser that nothing is the matter with.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./support/browser.mjs";
import { startOnlooker } from "./support/onlooker.mjs";
import { startSite } from "./support/site.mjs";

let onlooker, site, browser;

before(async () => {
  onlooker = await startOnlooker();
  [site, browser] = await Promise.all([startSite(onlooker.url), launch()]);
});
after(async () => {
  await browser?.close();
  await site?.stop();
  await onlooker?.stop();
});

test("a first view counts once", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(site.page("/first"));
  await site.answered("/first", 1);
  assert.equal(await onlooker.views("/first"), 1);
  await context.close();
});
