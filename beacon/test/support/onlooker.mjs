// The program itself, with a folder of its own, and what its counts say.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { until } from "./until.mjs";

const BINARY = process.env.ONLOOKER_BIN ?? fileURLToPath(new URL("../../../target/debug/onlooker", import.meta.url));

/** A viewer that is no browser of these tests. */
export const OTHER_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

/** Seconds within which views by one viewer are one, by site. */
export const SITES = { blog: 1800, quick: 2 };

/** Starts `onlooker run`. `origins`: whose pages may send views. */
export async function startOnlooker(origins = ["*"]) {
  const folder = await mkdtemp(join(tmpdir(), "onlooker-pages-"));
  const config = join(folder, "onlooker.toml");
  await writeFile(
    config,
    [
      // One partition: what came before a marker is counted before it.
      `[embedded]\npartitions = 1\n[embedded.log]\ndurability = "process"`,
      `[collector]\nlisten = "127.0.0.1:0"\n[admin]\nlisten = "127.0.0.1:0"`,
      ...Object.entries(SITES).map(
        ([name, window]) => `[sites.${name}]\nwindow_s = ${window}\norigins = ${JSON.stringify(origins)}`,
      ),
    ].join("\n"),
  );
  const dir = join(folder, "data");
  let said = "";
  const child = spawn(BINARY, ["--config", config, "run", "--dir", dir], { stdio: ["ignore", "ignore", "pipe"] });
  child.stderr.on("data", (text) => (said += text));
  const ended = new Promise((resolve) => child.once("close", resolve));
  child.once("error", (error) => (said += `${BINARY}: ${error.message}`));
  const url = await until("the program listens", async () => {
    assert.equal(child.exitCode, null, said);
    const session = await readFile(join(dir, "session.json"), "utf8").catch(() => undefined);
    return session && JSON.parse(session).url;
  });

  const counts = async (items, site) => {
    const query = new URLSearchParams([["site", site], ...items.map((item) => ["item", item])]);
    const answer = await fetch(`${url}/v1/counts?${query}`);
    return (await answer.json()).counts;
  };
  const known = async (items, site) => {
    const found = await counts(items, site);
    return found.every((count) => count.status === "ok") && found.map((count) => count.views);
  };
  let markers = 0;
  /** Views that count for each of the items, once all that was sent until now has been judged. */
  const viewsOfAll = async (items, site = "blog") => {
    const marker = `marker-${markers++}`;
    const body = JSON.stringify({ site: "blog", item: marker });
    const sent = await fetch(`${url}/v1/views`, { method: "POST", body, headers: { "user-agent": OTHER_AGENT } });
    assert.equal(sent.status, 202);
    await until("the marker is counted", async () => (await known([marker], "blog"))?.[0] === 1);
    return until("all have a number", () => known(items, site));
  };
  return {
    url,
    viewsOfAll,
    views: async (item, site) => (await viewsOfAll([item], site))[0],
    async stop() {
      child.kill("SIGTERM");
      await ended;
      await rm(folder, { recursive: true });
    },
  };
}
