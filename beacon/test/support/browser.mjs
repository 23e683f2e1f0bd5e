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
/** A browser that says it is headless is taken for a machine, which these tests are not about. */
const AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";
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
  `--user-agent=${AGENT}`,
];

/** A browser whose pages are apart from each other (`newContext`), and never in the background. */
export function launch() {
  return chromium.launch({ executablePath: EXECUTABLE, args: QUIET });
}

/** A browser as people have it, at a page. Nothing is attached to it: a debugger would prevent prerendering. */
export async function launchAt(url) {
  const profile = await mkdtemp(join(tmpdir(), "onlooker-browser-"));
  const flags = [...QUIET, "--headless=new", "--remote-debugging-port=0", `--user-data-dir=${profile}`];
  const child = spawn(EXECUTABLE, [...flags, url], { stdio: "ignore" });
  const ended = new Promise((resolve) => child.once("close", resolve));
  const debuggers = () => readFile(join(profile, "DevToolsActivePort"), "utf8").catch(() => undefined);
  const port = (await until("the browser listens", debuggers)).split("\n")[0];
  return {
    debugger: `http://127.0.0.1:${port}`,
    async close() {
      child.kill();
      await ended;
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** The same, driven: its pages go to the background and come back from the cache, which Playwright prevents otherwise. */
export async function launchPlain() {
  const running = await launchAt("about:blank");
  const browser = await chromium.connectOverCDP(running.debugger, { noDefaults: true });
  return {
    browser,
    context: browser.contexts()[0],
    async close() {
      await browser.close();
      await running.close();
    },
  };
}
