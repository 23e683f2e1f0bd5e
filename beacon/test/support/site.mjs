// A web server with the pages of a test, which hands on to the program what is the program's, and remembers it.
import { createServer, request } from "node:http";
import { until } from "./until.mjs";

/** Paths that are the program's: its own names, and those that a site's proxy might give them. */
const OURS = { "/v1/views": "/v1/views", "/v1/view.gif": "/v1/view.gif", "/v1/view.js": "/v1/view.js" };
export const RENAMED = { "/s/abc": "/v1/views", "/s/def.png": "/v1/view.gif", "/s/ghi.js": "/v1/view.js" };

export async function startSite() {
  /** Where the program is; said once it runs, for it is told of the site's origins. */
  let collector;
  const pages = new Map();
  /** Every request that carried views to the program, in order of arrival. */
  const sent = [];
  /** What pages said of themselves, by path: `say("loaded")`. */
  const said = new Set();
  /** What pages may go on with, by what they ask for: `when("go", …)`. */
  const allowed = new Set();
  /** What happens to the next requests instead: `{ status, headers }`, or `{ lost: true }`, an answer that is lost. */
  const instead = [];

  const forward = async (path, asked, answer) => {
    const chunks = [];
    for await (const chunk of asked) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const url = new URL(asked.url, "http://site");
    const carries = !path.endsWith(".js");
    const entry = { method: asked.method, path: url.pathname, headers: asked.headers, status: 0, views: [] };
    if (carries) {
      entry.views = path.endsWith(".gif") ? [Object.fromEntries(url.searchParams)] : JSON.parse(body);
      sent.push(entry);
      const other = instead.shift();
      entry.lost = other?.lost;
      if (other?.status) {
        entry.status = other.status;
        const { origin } = asked.headers;
        answer.writeHead(other.status, { "access-control-allow-origin": origin ?? "*", ...other.headers });
        answer.end();
        return;
      }
    }
    const onward = request(
      collector + path + url.search,
      { method: asked.method, headers: asked.headers },
      (came) => {
        entry.status = came.statusCode;
        // The view arrived and its answer does not.
        if (entry.lost) return void asked.socket.destroy();
        answer.writeHead(came.statusCode, came.headers);
        came.pipe(answer);
      },
    );
    onward.end(body);
  };

  const server = createServer((asked, answer) => {
    const { pathname, searchParams } = new URL(asked.url, "http://site");
    const ours = OURS[pathname] ?? RENAMED[pathname];
    if (ours) return void forward(ours, asked, answer);
    if (pathname === "/say") {
      said.add(searchParams.get("what"));
      return void answer.writeHead(204).end();
    }
    if (pathname === "/may") return void answer.writeHead(200).end(String(allowed.has(searchParams.get("what"))));
    const page = pages.get(pathname);
    if (!page) return void answer.writeHead(404).end();
    answer.writeHead(200, { "content-type": "text/html; charset=utf-8", ...page.headers });
    answer.end(page.html);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();

  return {
    port,
    sent,
    instead,
    origin: `http://127.0.0.1:${port}`,
    serves(url) {
      collector = url;
    },
    /** Puts a page at a path. `tag`: attributes of the script tag; `head`, `body`: what else is there. */
    page(path, { tag = 'data-site="blog"', src = "/v1/view.js", head = "", body = "", headers = {} } = {}) {
      const tagged = src ? `<script defer src="${src}" ${tag}></script>` : "";
      const html = `<!doctype html><html lang="en"><head><title>${path}</title>${head}${tagged}</head><body>${body}</body></html>`;
      pages.set(path, { html, headers });
      return `http://127.0.0.1:${port}${path}`;
    },
    /** Views that reached the program for an item, however often each was sent. */
    arrived: (item) => sent.filter((entry) => entry.views.some((view) => view.item === item)),
    /** Waits until as many requests for an item were answered by the program. */
    async answered(item, requests) {
      const got = () => sent.filter((entry) => entry.status && entry.views.some((view) => view.item === item));
      return until(`${requests} answered requests for ${item}`, () => got().length >= requests && got());
    },
    async heard(what) {
      await until(`a page says ${what}`, () => said.has(what));
    },
    allow: (what) => allowed.add(what),
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** What a page runs to tell the test how far it is: whatever comes before it in the page has run. */
export const say = (what) => `fetch("/say?what=${encodeURIComponent(what)}")`;

/** What a page runs to go on once the test allows it; for pages that no debugger may hold. */
export const when = (what, then) => `setInterval(async () => {
  const may = await fetch("/may?what=${encodeURIComponent(what)}");
  if (await may.text() === "true") ${then};
}, 50)`;
