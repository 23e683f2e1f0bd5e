// How a view gets to the program when something is in the way.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launch } from "./support/browser.mjs";
import { startHouse } from "./support/house.mjs";
import { RENAMED } from "./support/site.mjs";
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

const CONFIRM = 'data-site="blog" data-confirm';
/** How a request says of itself that a beacon, a fetch, or a picture made it. */
const maker = ({ headers }) => `${headers["sec-fetch-mode"]} ${headers["sec-fetch-dest"]}`;
const BEACON = "no-cors empty";
const FETCH = "cors empty";
const PICTURE = "no-cors image";

/** Sends that were made for an item, and what the program counts of them. */
async function sentAndCounted(item) {
  const views = await house.views(item);
  const sent = site.arrived(item);
  const ids = sent.flatMap((entry) => entry.views.filter((view) => view.item === item).map((view) => view.id));
  return { makers: sent.map(maker), ids: new Set(ids).size, views };
}

test("a view is sent by beacon", async () => {
  await page.goto(site.page("/beacon"));
  await site.answered("/beacon", 1);
  assert.deepEqual(await sentAndCounted("/beacon"), { makers: [BEACON], ids: 1, views: 1 });
});

test("where beacons are refused or unknown it is sent by fetch", async () => {
  const ways = {
    refused: () => (navigator.sendBeacon = () => false),
    unknown: () => (navigator.sendBeacon = undefined),
  };
  for (const [way, stub] of Object.entries(ways)) {
    const tab = await context.newPage();
    await tab.addInitScript(stub);
    await tab.goto(site.page(`/${way}`));
    await site.answered(`/${way}`, 1);
    assert.deepEqual(await sentAndCounted(`/${way}`), { makers: [FETCH], ids: 1, views: 1 }, way);
  }
});

test("where fetch is refused too it is a picture", async () => {
  await page.addInitScript(() => {
    navigator.sendBeacon = () => false;
    window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
  });
  await page.goto(site.page("/picture"));
  await site.answered("/picture", 1);
  assert.deepEqual(await sentAndCounted("/picture"), { makers: [PICTURE], ids: 1, views: 1 });
});

test("what all three refuse is sent again later, and counts once", async () => {
  await page.clock.install();
  await page.addInitScript(() => {
    navigator.sendBeacon = () => false;
    window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
  });
  site.instead.push({ status: 503 }, { lost: true });
  await page.goto(site.page("/later"));
  await site.answered("/later", 1);
  for (const sent of [2, 3]) {
    // Whenever the page gets to know that it failed, its next try is less than a minute off.
    await until(`send ${sent}`, async () => {
      await page.clock.fastForward(60_000);
      return site.arrived("/later").length >= sent;
    });
  }
  await site.answered("/later", 3);
  const { ids, views } = await sentAndCounted("/later");
  assert.deepEqual({ ids, views }, { ids: 1, views: 1 });
});

test("who wants to be sure sees a 503, waits as long as it says, and sends the same view again", async () => {
  await page.clock.install();
  site.instead.push({ status: 503, headers: { "retry-after": "600", "access-control-expose-headers": "retry-after" } });
  const refused = page.waitForResponse((answer) => answer.status() === 503);
  await page.goto(site.page("/sure", { tag: CONFIRM }));
  await refused;
  await page.clock.fastForward(500_000);
  assert.equal(site.arrived("/sure").length, 1, "it was told to wait longer");
  await until("the second send", async () => {
    await page.clock.fastForward(100_000);
    return site.arrived("/sure").length === 2;
  });
  await site.answered("/sure", 2);
  assert.deepEqual(await sentAndCounted("/sure"), { makers: [FETCH, FETCH], ids: 1, views: 1 });
});

test("a view whose answer got lost is sent again and counts once", async () => {
  site.instead.push({ lost: true });
  await page.goto(site.page("/answer-lost", { tag: CONFIRM }));
  await site.answered("/answer-lost", 2);
  const { ids, views } = await sentAndCounted("/answer-lost");
  assert.deepEqual({ ids, views }, { ids: 1, views: 1 });
});

test("nothing is sent again once its id may be forgotten", async () => {
  await page.clock.install();
  await page.addInitScript(() => {
    window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
  });
  await page.goto(site.page("/too-late", { tag: `${CONFIRM} data-keep="1000"`, head: "<base href='/'>" }));
  // The picture goes through; so that this one does not, the whole network is away before the next route.
  await site.answered("/too-late", 1);
  await context.setOffline(true);
  await page.evaluate(() => history.pushState(null, "", "/too-late/a"));
  await page.clock.fastForward(1_001_000);
  await until("it is given up", () => page.evaluate(() => {
    dispatchEvent(new Event("online"));
    return onlooker.lost;
  }));
  await context.setOffline(false);
  await page.evaluate(() => history.pushState(null, "", "/too-late/b"));
  await site.answered("/too-late/b", 1);
  assert.equal(await page.evaluate(() => onlooker.lost), 1);
  assert.deepEqual(site.arrived("/too-late/a"), []);
});

test("views of a time without network arrive together, in pieces that fit, the oldest left out", async () => {
  // 40 of 3 KB are twice what all beacons under way may be; 100 is what waits at most.
  for (const [name, routes, padding, lost] of [["large", 40, 3000, 0], ["many", 120, 10, 20]]) {
    const tab = await context.newPage();
    const tag = `data-site="blog" data-session="${"s".repeat(padding)}"`;
    await tab.goto(site.page(`/${name}`, { tag }));
    await site.answered(`/${name}`, 1);
    await context.setOffline(true);
    let failed = 0;
    tab.on("requestfailed", (request) => (failed += request.url().includes("/v1/view.gif?") ? 1 : 0));
    await tab.evaluate(({ name, routes }) => {
      for (let i = 0; i < routes; i++) history.pushState(null, "", `/${name}/${i}`);
    }, { name, routes });
    assert.equal(await tab.evaluate(() => onlooker.lost), lost);
    // What is still under way might get through when the network is back, given up or not.
    await until("each has failed in every way", () => failed >= routes);
    await context.setOffline(false);
    const kept = Array.from({ length: routes - lost }, (_, i) => `/${name}/${i + lost}`);
    await Promise.all(kept.map((item) => site.answered(item, 1)));
    assert.deepEqual(await house.viewsOfAll(kept), kept.map(() => 1));
    for (let i = 0; i < lost; i++) assert.deepEqual(site.arrived(`/${name}/${i}`), []);
    await tab.close();
  }
});

test("a page that is left at once on a slow network still counts", async () => {
  site.page("/next", { src: "" });
  const slow = await context.newCDPSession(page);
  await slow.send("Network.enable");
  const [latency, bytes] = [400, 50_000];
  await slow.send("Network.emulateNetworkConditions", {
    offline: false,
    latency,
    downloadThroughput: bytes,
    uploadThroughput: bytes,
  });
  // Right behind the tag, and so in the same breath as the send.
  const leave = `<script defer src="data:text/javascript,location.href='/next'"></script>`;
  site.page("/left", { src: "" });
  const tag = `<script defer src="/v1/view.js" data-site="blog"></script>`;
  await page.goto(site.page("/left", { src: "", head: tag + leave }));
  await page.waitForURL("**/next");
  await site.answered("/left", 1);
  assert.equal(await house.views("/left"), 1);

  const closed = await context.newPage();
  await closed.goto(site.page("/closed"), { waitUntil: "domcontentloaded" });
  await closed.close();
  await site.answered("/closed", 1);
  assert.equal(await house.views("/closed"), 1);
});

/** A page with 24 views of 3 KB that could not be sent, of which half and a quarter are what beacons may be together. */
async function withViewsThatWait(path) {
  await page.addInitScript(() => {
    const { sendBeacon } = navigator;
    const { fetch } = window;
    navigator.sendBeacon = (...all) => !!window.isOpen && sendBeacon.apply(navigator, all);
    window.fetch = (...all) => (window.isOpen ? fetch(...all) : Promise.reject(new TypeError("Failed to fetch")));
  });
  const tag = `data-site="blog" data-session="${"s".repeat(3000)}" data-pixel="/nowhere"`;
  await page.goto(site.page(path, { tag }));
  await page.evaluate((path) => {
    for (let i = 1; i < 24; i++) history.pushState(null, "", `${path}/${i}`);
    window.isOpen = true;
  }, path);
}

test("a page that closes sends what waits, as much as the browser takes", async () => {
  const hides = () => {};
  // As in browsers that do not say so of a page that is left.
  const onlyLeaves = () => document.addEventListener("visibilitychange", (event) => event.stopImmediatePropagation());
  for (const [path, browsers] of [["/hides", hides], ["/leaves", onlyLeaves]]) {
    await page.addInitScript(browsers);
    await withViewsThatWait(path);
    await page.goto(site.page("/after", { src: "" }));
    const came = await until("most have arrived", () => {
      const views = site.sent.filter((sent) => sent.status).flatMap((sent) => sent.views);
      const found = views.map((view) => view.item).filter((item) => item.startsWith(path));
      return found.length >= 18 && found;
    });
    assert.equal(new Set(came).size, came.length);
    assert.deepEqual(await house.viewsOfAll(came), came.map(() => 1));
  }
});

test("a view that a second tab sends again, long after the window, counts once", async () => {
  const tag = 'data-site="quick"';
  await page.goto(site.page("/again", { tag }));
  const [first] = await site.answered("/again", 1);
  await page.goto(site.page("/control", { tag }));
  await site.answered("/control", 1);
  for (let sent = 2; (await house.views("/control", "quick")) < 2; sent++) {
    await page.reload();
    await site.answered("/control", sent);
  }
  // The window is over for what came before the control, too.
  const tab = await context.newPage();
  await tab.goto(site.page("/empty", { src: "" }));
  const resend = (views) => tab.evaluate((body) => navigator.sendBeacon("/v1/views", body), JSON.stringify(views));
  await resend(first.views);
  await site.answered("/again", 2);
  assert.equal(await house.views("/again", "quick"), 1);
  await resend(first.views.map((view) => ({ ...view, id: "another" })));
  await site.answered("/again", 3);
  assert.equal(await house.views("/again", "quick"), 2, "by another id it would have counted");
});

test("a strict policy has to name the program's host, and nothing else", async () => {
  const { port } = site;
  const ours = `http://localhost:${port}`;
  const policy = `default-src 'none'; script-src ${ours}; connect-src ${ours}; require-trusted-types-for 'script'`;
  const violations = [];
  page.on("console", (message) => message.type() === "error" && violations.push(message.text()));
  const headers = {
    "content-security-policy": policy,
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
  };
  await page.goto(site.page("/strict", { src: `${ours}/v1/view.js`, headers }));
  await site.answered("/strict", 1);
  assert.equal(await house.views("/strict"), 1);
  assert.deepEqual(violations.filter((text) => !text.includes("favicon")), []);
});

test("paths may have any names", async () => {
  const [views, picture, script] = Object.keys(RENAMED);
  const seen = [];
  page.on("request", (request) => seen.push(new URL(request.url()).pathname));
  const tag = `data-site="blog" data-to="${views}" data-pixel="${picture}"`;
  await page.goto(site.page("/renamed", { src: script, tag }));
  const [sent] = await site.answered("/renamed", 1);
  assert.equal(sent.path, views);
  assert.equal(await house.views("/renamed"), 1);
  await page.addInitScript(() => {
    navigator.sendBeacon = () => false;
    window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
  });
  await page.goto(site.page("/renamed-picture", { src: script, tag }));
  assert.equal((await site.answered("/renamed-picture", 1))[0].path, picture);
  assert.deepEqual(seen.filter((path) => path.startsWith("/v1")), []);
});
