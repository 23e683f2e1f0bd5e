// Pages that the browser loads ahead.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launchAt } from "./support/browser.mjs";
import { startHouse } from "./support/house.mjs";
import { say, when } from "./support/site.mjs";

let house, site;

before(async () => {
  house = await startHouse();
  site = house.site;
});
after(() => house?.stop());

/** Starts a browser at a page that has `ahead` loaded ahead, and goes to `then` once the test allows it. Returns when it is loaded. */
async function startBefore(t, ahead, then) {
  const activated = 'performance.getEntriesByType("navigation")[0].activationStart > 0';
  const tells = `<script>
    addEventListener("load", () => document.prerendering && ${say(`${ahead} is ready`)});
    document.addEventListener("prerenderingchange", () => ${activated} && ${say(`${ahead} is seen`)});
  </script>`;
  site.page(ahead, { body: tells });
  const rules = JSON.stringify({ prerender: [{ urls: [ahead], eagerness: "immediate" }] });
  const start = site.page(`${ahead}/start`, {
    head: `<script type="speculationrules">${rules}</script>`,
    body: `<script>${when(then, `location.href = "${then}"`)}</script>`,
  });
  const browser = await launchAt(start);
  t.after(() => browser.close());
  await site.heard(`${ahead} is ready`);
}

test("a prerendered page counts when somebody goes there", async (t) => {
  await startBefore(t, "/ahead", "/ahead");
  assert.equal(await house.views("/ahead"), 0);
  site.allow("/ahead");
  await site.heard("/ahead is seen");
  await site.answered("/ahead", 1);
  assert.equal(await house.views("/ahead"), 1);
  assert.equal(await house.views("/ahead/start"), 1);
});

test("a prerendered page where nobody goes never counts", async (t) => {
  site.page("/elsewhere");
  await startBefore(t, "/unseen", "/elsewhere");
  site.allow("/elsewhere");
  await site.answered("/elsewhere", 1);
  assert.equal(await house.views("/unseen"), 0);
  assert.equal(await house.views("/unseen/start"), 1);
  assert.deepEqual(site.arrived("/unseen"), []);
});
