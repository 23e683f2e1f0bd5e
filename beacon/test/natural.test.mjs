// Pages in the background, and back from the cache, in a browser that is left as people have it.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launchPlain } from "./support/browser.mjs";
import { startHouse } from "./support/house.mjs";
import { say } from "./support/site.mjs";
import { until } from "./support/until.mjs";

let house, site, plain, page;

before(async () => {
  [house, plain] = await Promise.all([startHouse(), launchPlain()]);
  site = house.site;
});
beforeEach(async () => {
  page = await plain.context.newPage();
});
afterEach(() => page.close());
after(async () => {
  await plain?.close();
  await house?.stop();
});

/** Lets a page say how it is, once all that it loads has run. */
const says = (what) => ({ body: `<script>addEventListener("load", () => ${say(what)})</script>` });

/** Opens a tab behind the one that is looked at. */
async function openBehind(url) {
  await page.bringToFront();
  const session = await plain.browser.newBrowserCDPSession();
  const opened = plain.context.waitForEvent("page");
  await session.send("Target.createTarget", { url, background: true });
  return opened;
}

test("a tab in the background counts when it is shown, and never before", async () => {
  const [shown, never] = ["/shown", "/never-shown"].map((path) => site.page(path, says(path)));
  const first = await openBehind(shown);
  const second = await openBehind(never);
  for (const tab of [first, second]) await tab.waitForLoadState();
  await Promise.all([site.heard("/shown"), site.heard("/never-shown")]);
  for (const tab of [first, second]) assert.equal(await tab.evaluate(() => document.visibilityState), "hidden");
  assert.equal(await house.views("/shown"), 0);

  await first.bringToFront();
  await site.answered("/shown", 1);
  assert.equal(await house.views("/shown"), 1);
  await page.bringToFront();
  await first.bringToFront();
  // This one first: when a tab is closed, the one behind it is shown.
  await second.close();
  await first.close();
  assert.equal(await house.views("/never-shown"), 0);
  assert.deepEqual(site.arrived("/never-shown"), []);
  assert.equal(site.arrived("/shown").length, 1, "who comes back to a tab has not arrived again");
});

test("time in the background is no time that a page was looked at", async () => {
  const path = "/dwell-behind";
  const tab = await openBehind(site.page(path, { ...says(path), tag: 'data-site="blog" data-dwell="0.2"' }));
  await site.heard(path);
  // Longer than the rule asks for, by the page's own clock.
  await tab.waitForFunction(() => performance.now() > 600, undefined, { polling: 100 });
  assert.equal(await house.views(path), 0);
  await tab.bringToFront();
  await site.answered(path, 1);
  assert.equal(await house.views(path), 1);
  await tab.close();
});

test("a page that comes back from the cache is sent again, and the window decides", async () => {
  for (const name of ["blog", "quick"]) {
    const path = `/cached-${name}`;
    const back = `<script>addEventListener("pageshow", (e) => e.persisted && ${say(`${path} is back`)})</script>`;
    const url = site.page(path, { tag: `data-site="${name}"`, body: back });
    await page.goto(url);
    await site.answered(path, 1);
    const leaveAndReturn = async (sent) => {
      await page.goto(site.page("/between"));
      const returned = page.waitForURL(url, { waitUntil: "commit" });
      await page.evaluate(() => history.back());
      await returned;
      return site.answered(path, sent);
    };
    await leaveAndReturn(2);
    await site.heard(`${path} is back`);
    const ids = site.arrived(path).map((entry) => entry.views[0].id);
    assert.notEqual(ids[0], ids[1]);
    if (name === "blog") {
      assert.equal(await house.views(path), 1, "inside the window");
      continue;
    }
    for (let sent = 3; (await house.views(path, name)) < 2; sent++) await leaveAndReturn(sent);
    assert.equal(await house.views(path, name), 2, "after the window");
  }
});

