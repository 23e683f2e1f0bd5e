// The program, a site in front of it, and a way to end both.
import { startOnlooker } from "./onlooker.mjs";
import { startSite } from "./site.mjs";

/** Hosts whose pages may send views of the site; those of all others may not. */
const ALLOWED = ["127.0.0.1", "localhost", "blog.test"];

export async function startHouse() {
  const site = await startSite();
  const onlooker = await startOnlooker(ALLOWED.map((host) => `http://${host}:${site.port}`));
  site.serves(onlooker.url);
  return {
    site,
    onlooker,
    views: onlooker.views,
    viewsOfAll: onlooker.viewsOfAll,
    async stop() {
      await site.stop();
      await onlooker.stop();
    },
  };
}
