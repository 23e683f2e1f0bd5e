// What counts as a visit.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launch } from "./support/browser.mjs";
import { startHouse } from "./support/house.mjs";
import { OTHER_AGENT } from "./support/onlooker.mjs";
import { until } from "./support/until.mjs";

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

/** Items in the order in which their views were sent. */
const items = (prefix) =>
  site.sent.flatMap((entry) => entry.views.map((view) => view.item)).filter((item) => item.startsWith(prefix));

test("a first view counts, with the script from the program itself", async () => {
  await page.goto(site.page("/first", { src: `${house.onlooker.url}/v1/view.js` }));
  await until("it counts", async () => (await house.views("/first")) === 1);
  assert.deepEqual(items("/first"), [], "nothing stood in between");
});

test("a reload inside the window does not count, and one outside does", async () => {
  await page.goto(site.page("/reload"));
  await page.reload();
  await site.answered("/reload", 2);
  assert.equal(await house.views("/reload"), 1);

  await page.goto(site.page("/quick", { tag: 'data-site="quick"' }));
  await site.answered("/quick", 1);
  for (let sent = 2; (await house.views("/quick", "quick")) < 2; sent++) {
    await page.reload();
    await site.answered("/quick", sent);
  }
  assert.equal(await house.views("/quick", "quick"), 2);
});

test("two tabs of one viewer are one view, and another viewer's is another", async () => {
  const url = site.page("/tabs");
  const second = await context.newPage();
  await Promise.all([page.goto(url), second.goto(url)]);
  await site.answered("/tabs", 2);
  assert.equal(await house.views("/tabs"), 1);
  const other = await browser.newContext({ userAgent: OTHER_AGENT });
  await (await other.newPage()).goto(url);
  await site.answered("/tabs", 3);
  assert.equal(await house.views("/tabs"), 2);
  await other.close();
});

test("each route of a single-page application counts once", async () => {
  await page.goto(site.page("/app"));
  await page.evaluate(() => {
    history.pushState(null, "", "/app/a");
    // What routers do behind a push: keep their state, add a query, jump to a heading.
    history.replaceState({ key: 1 }, "", "/app/a");
    history.replaceState({ key: 1 }, "", "/app/a?sorted=1");
    location.hash = "heading";
    history.pushState(null, "", "/app/b");
    history.replaceState(null, "", "/app/c");
  });
  const back = () => page.evaluate(() => new Promise((resolve) => {
    addEventListener("popstate", resolve, { once: true });
    history.back();
  }));
  await back();
  await site.answered("/app/a", 2);
  const expected = ["/app", "/app/a", "/app/b", "/app/c", "/app/a"];
  assert.deepEqual(items("/app").sort(), expected.sort());
  assert.deepEqual(await house.viewsOfAll(["/app", "/app/a", "/app/b", "/app/c"]), [1, 1, 1, 1]);
  const [first] = site.arrived("/app");
  const [second] = site.arrived("/app/a");
  assert.equal(first.views[0].referrer, "");
  assert.equal(second.views[0].referrer, `${site.origin}/app`, "where the viewer came from is the route before");
});

test("what is behind # is a route only where the site says so", async () => {
  await page.goto(site.page("/hash", { tag: 'data-site="blog" data-hash' }));
  await page.evaluate(() => {
    location.hash = "#/a";
    history.pushState(null, "", "#/b");
    history.replaceState({ key: 1 }, "", "#/b");
  });
  await Promise.all(["/hash", "/hash#/a", "/hash#/b"].map((item) => site.answered(item, 1)));
  assert.equal(items("/hash").length, 3);
  assert.deepEqual(await house.viewsOfAll(["/hash", "/hash#/a", "/hash#/b"]), [1, 1, 1]);
});

test("a canonical link names the item only on the page's own host", async () => {
  const link = (href) => ({ head: `<link rel="canonical" href="${href}">` });
  await page.goto(site.page("/print?all=1".split("?")[0], link("/story?id=7")) + "?all=1");
  await site.answered("/story?id=7", 1);
  assert.equal(await house.views("/story?id=7"), 1);
  for (const [path, href] of [
    ["/foreign", "https://medium.test/u/foreign-12ab"],
    ["/broken", "http://["],
    ["/port", "http://127.0.0.1:1/elsewhere"],
  ]) {
    await page.goto(site.page(path, link(href)));
    await site.answered(path, 1);
    assert.equal(await house.views(path), 1, href);
  }
});

test("a page of another origin counts if the site knows it", async () => {
  const src = `${site.origin}/v1/view.js`;
  for (const [host, status, views] of [["blog.test", 202, 1], ["localhost", 202, 1], ["evil.test", 403, 0]]) {
    const path = `/from-${host}`;
    site.page(path, { src });
    await page.goto(`http://${host}:${site.port}${path}`);
    const [entry] = await site.answered(path, 1);
    assert.equal(entry.status, status, host);
    assert.equal(entry.headers.origin, `http://${host}:${site.port}`);
    assert.match(entry.headers["content-type"], /^text\/plain/, "so that the browser asks nobody first");
    assert.equal(await house.views(path), views, host);
  }
});

test("with a dwell rule a view counts after that many seconds", async () => {
  // An hour, and steps that leave minutes: the browser's clock goes on by itself too.
  const tag = 'data-site="blog" data-dwell="3600"';
  const minutes = (count) => page.clock.fastForward(count * 60_000);
  await page.clock.install();
  await page.goto(site.page("/skimmed", { tag }));
  await minutes(50);
  await page.goto(site.page("/read", { tag }));
  await minutes(50);
  assert.deepEqual([items("/read"), items("/skimmed")], [[], []]);
  await minutes(11);
  await site.answered("/read", 1);
  assert.equal(await house.views("/read"), 1);
  assert.equal(await house.views("/skimmed"), 0);
  // Time in the background is not time, however it falls.
  const show = (state) => page.evaluate((state) => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);
  await page.goto(site.page("/put-aside", { tag }));
  await minutes(30);
  await show("hidden");
  await minutes(50);
  await show("visible");
  await minutes(20);
  assert.deepEqual(items("/put-aside"), []);
  await minutes(11);
  await site.answered("/put-aside", 1);
  await page.goto(site.page("/read", { tag }));
  // A route that is left too early takes nobody else's time.
  await page.evaluate(() => history.pushState(null, "", "/read/a"));
  await minutes(50);
  await page.evaluate(() => history.pushState(null, "", "/read/b"));
  await minutes(50);
  assert.deepEqual(items("/read"), ["/read"]);
  await minutes(11);
  await site.answered("/read/b", 1);
  assert.deepEqual(items("/read"), ["/read", "/read/b"]);
});

test("a page says by itself what is looked at", async () => {
  await page.goto(site.page("/list", { tag: 'data-site="blog" data-manual' }));
  await page.evaluate(() => {
    onlooker.view("article-1");
    history.pushState(null, "", "/list/2");
    onlooker.view("article-2");
  });
  await site.answered("article-2", 1);
  assert.deepEqual(items("/list"), []);
  assert.deepEqual(items("article-"), ["article-1", "article-2"]);
  await page.goto(site.page("/named", { tag: 'data-site="blog" data-item="article-3"' }));
  await site.answered("article-3", 1);
  assert.equal(await house.views("article-3"), 1);
  assert.deepEqual(items("/named"), []);
});

test("a tag that is there twice counts once", async () => {
  const tag = '<script defer src="/v1/view.js" data-site="blog"></script>';
  await page.goto(site.page("/twice", { head: tag }));
  await site.answered("/twice", 1);
  assert.equal(await house.views("/twice"), 1);
  assert.equal(items("/twice").length, 1);
});
