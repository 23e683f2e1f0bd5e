// Who does not want to be counted is not, and nothing is left behind on anybody's device.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launch } from "./support/browser.mjs";
import { startHouse } from "./support/house.mjs";

let house, site, browser, context, page;

before(async () => {
  [house, browser] = await Promise.all([startHouse(), launch()]);
  site = house.site;
});
beforeEach(async () => {
  context = await browser.newContext();
  page = await context.newPage();
});
afterEach(() => context.close());
after(async () => {
  await browser?.close();
  await house?.stop();
});

const GPC = () => Object.defineProperty(Navigator.prototype, "globalPrivacyControl", { get: () => true });
const DNT = () => Object.defineProperty(Navigator.prototype, "doNotTrack", { get: () => "1" });

/** Opens a page in a new tab of `context`; what it sends, it has begun to send then. */
async function open(path, tag, wish) {
  const tab = await context.newPage();
  if (wish) await tab.addInitScript(wish);
  await tab.goto(site.page(path, { tag: `data-site="blog" ${tag}` }));
  return tab;
}

test("Global Privacy Control and Do Not Track are honoured as the site says, and by default both", async () => {
  const cases = [
    ["gpc-default", "", GPC, 0],
    ["gpc-respected", 'data-respect="gpc"', GPC, 0],
    ["gpc-not-asked", 'data-respect="dnt"', GPC, 1],
    ["gpc-none", 'data-respect="none"', GPC, 1],
    ["dnt-default", "", DNT, 0],
    ["dnt-respected", 'data-respect="dnt"', DNT, 0],
    ["dnt-not-asked", 'data-respect="gpc"', DNT, 1],
    ["dnt-none", 'data-respect="none"', DNT, 1],
    ["no-wish", "", undefined, 1],
  ];
  for (const [name, tag, wish, views] of cases) await open(`/${name}`, tag, wish);
  // The last one sent something, and so have all before it that were going to.
  await Promise.all(cases.filter((one) => one[3]).map(([name]) => site.answered(`/${name}`, 1)));
  const counted = await house.viewsOfAll(cases.map(([name]) => `/${name}`));
  assert.deepEqual(counted, cases.map((one) => one[3]));
  for (const [name, , , views] of cases) {
    assert.equal(site.arrived(`/${name}`).length, views, `${name}: not counted is not sent`);
  }
});

test("a visitor who switches it off is not counted until they switch it on", async () => {
  const tab = await open("/off", 'data-dwell="3600"');
  await tab.evaluate(() => onlooker.off());
  await open("/off/after", "");
  await tab.evaluate(() => history.pushState(null, "", "/off/route"));
  await tab.evaluate(() => onlooker.on());
  await open("/off/on-again", "");
  await site.answered("/off/on-again", 1);
  assert.equal(await house.views("/off/on-again"), 1);
  for (const item of ["/off", "/off/after", "/off/route"]) {
    assert.deepEqual(site.arrived(item), [], item);
    assert.equal(await house.views(item), 0, item);
  }
});

test("a site's own people switch themselves off by an address", async () => {
  site.page("/own");
  const visit = async (hash) => {
    const tab = await context.newPage();
    await tab.goto(`${site.origin}/own${hash}`);
  };
  await visit("#onlooker=off");
  await visit("");
  await visit("#somewhere");
  assert.deepEqual(site.arrived("/own"), []);
  await visit("#onlooker=on");
  await site.answered("/own", 1);
  assert.equal(await house.views("/own"), 1);
});

test("nothing is stored for anybody else", async () => {
  const tab = await open("/traceless", "");
  await site.answered("/traceless", 1);
  const stored = await tab.evaluate(async () => [
    document.cookie,
    localStorage.length,
    sessionStorage.length,
    (await indexedDB.databases()).length,
    (await caches.keys()).length,
  ]);
  assert.deepEqual(stored, ["", 0, 0, 0, 0]);
  assert.deepEqual(await context.cookies(), []);
  const [{ headers }] = site.arrived("/traceless");
  assert.equal(headers.cookie, undefined);
});

test("a frame without storage counts like any page", async () => {
  site.page("/framed", { src: `${site.origin}/v1/view.js` });
  await page.goto(site.page("/frame", { src: "", body: '<iframe sandbox="allow-scripts" src="/framed"></iframe>' }));
  const [{ headers }] = await site.answered("/framed", 1);
  assert.equal(headers.origin, "null");
  assert.equal(await house.views("/framed"), 1);
});
