// Debian's Chromium, in two ways.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { until } from "./until.mjs";

const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Hosts that are this machine, so that pages have other hosts than the collector. */
const HOSTS = "MAP *.test 127.0.0.1";
const QUIET = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  `--host-resolver-rules=${HOSTS}`,
];

/** A browser whose pages are apart from each other (`newContext`), and never in the background. */
export function launch() {
  return chromium.launch({ executablePath: EXECUTABLE, args: QUIET });
}

/**
 * A browser as people have it: pages go to the background, come back from the cache, and are prerendered, all of which
 * Playwright otherwise prevents.
 */
export async function launchPlain() {
  const profile = await mkdtemp(join(tmpdir(), "onlooker-browser-"));
  const flags = [...QUIET, "--headless=new", "--remote-debugging-port=0", `--user-data-dir=${profile}`];
  const child = spawn(EXECUTABLE, [...flags, "about:blank"], { stdio: "ignore" });
  const ended = new Promise((resolve) => child.once("close", resolve));
  const port = await until("the browser listens", () =>
    readFile(join(profile, "DevToolsActivePort"), "utf8").then((text) => text.split("\n")[0], () => undefined),
  );
  const browser = await chromium.connectOverCDP(`http://127.0.0.1:${port}`, { noDefaults: true });
  return {
    browser,
    context: browser.contexts()[0],
    async close() {
      const session = await browser.newBrowserCDPSession();
      await session.send("Browser.close").catch(() => {});
      await ended;
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
