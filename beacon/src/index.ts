import { deliver } from "./deliver.js";
import type { Onlooker, Options, View } from "./types.js";

export type { Onlooker, Options } from "./types.js";

/** Where a visitor's "do not count me" is kept. Nothing is stored for anybody who has not asked for it. */
const SWITCH = "onlooker";

/**
 * Counts views of this page, and of each route that it shows later, until the page is gone.
 * A view counts once somebody can see the page: not while it is prerendered or in a background tab.
 */
export function start(options: Options): Onlooker {
  const { hash, manual, respect = "gpc dnt" } = options;
  const dwell = options.dwell! * 1000 || 0;
  const delivery = deliver(options);

  /** What was arrived at and has not been looked at (long enough) yet. */
  let waiting: View | undefined;
  /** Visible milliseconds that `waiting` still needs. */
  let left: number;
  /** Since when it has been visible, in milliseconds of the page's life; 0: it is not. */
  let since: number;
  let timer: number | undefined;
  let item: string | undefined;
  let from = document.referrer;

  const place = () => location.pathname + (hash ? location.hash : "");
  const home = place();
  // Read once: frameworks change the link some time after the route, and until then it is the previous page's.
  const homeItem = options.item || (!hash && canonical()) || home;
  let last = home;

  const isOff = () => {
    try {
      return localStorage[SWITCH];
    } catch {
      // A sandboxed frame has no storage, so nobody can have asked there.
    }
  };
  const isAllowed = () =>
    !(respect.includes("gpc") && navigator.globalPrivacyControl) &&
    !(respect.includes("dnt") && navigator.doNotTrack == "1") &&
    !isOff();

  /** Called whenever it may have become visible, or stopped being so. */
  const look = () => {
    const now = performance.now();
    clearTimeout(timer);
    if (since) left -= now - since;
    since = 0;
    if (!waiting || document.prerendering || document.visibilityState == "hidden") return;
    if (left > 0) {
      since = now;
      timer = setTimeout(look, left);
    } else {
      if (isAllowed()) delivery.add(waiting);
      waiting = undefined;
    }
  };

  const arrive = (at: string) => {
    item = at;
    last = place();
    waiting = {
      ...options.site && { site: options.site },
      ...options.key && { key: options.key },
      ...options.session && { session: options.session },
      item,
      // randomUUID exists only where there is TLS.
      id: crypto.getRandomValues(new Uint32Array(4)).join("-"),
      referrer: from,
    };
    from = location.origin + location.pathname;
    left = dwell;
    since = 0;
    look();
  };

  const route = () => {
    const now = place();
    // One change of route may come as several calls and events.
    if (!manual && now != last) arrive(now == home ? homeItem : now);
  };

  for (const name of ["pushState", "replaceState"] as const) {
    const original = history[name];
    history[name] = function (...args) {
      original.apply(this, args);
      route();
    };
  }
  addEventListener("popstate", route);
  addEventListener("hashchange", route);
  addEventListener("pageshow", (event) => {
    // Whether a page that came back counts is for the server's window to say.
    if (event.persisted && item) arrive(item);
  });
  document.addEventListener("prerenderingchange", look);
  document.addEventListener("visibilitychange", () => {
    look();
    delivery.flush();
  });
  // Not every browser hides a page before it leaves it.
  addEventListener("pagehide", delivery.flush);
  addEventListener("online", delivery.flush);

  const api: Onlooker = {
    view: arrive,
    off() {
      localStorage[SWITCH] = "off";
      waiting = undefined;
      delivery.clear();
    },
    on() {
      localStorage.removeItem(SWITCH);
    },
    get lost() {
      return delivery.lost();
    },
  };
  // How a site's own people switch themselves off, on each of their browsers: by opening this address once.
  const told = /^#onlooker=(on|off)$/.exec(location.hash);
  if (told) api[told[1] as "on" | "off"]();
  if (!manual) arrive(homeItem);
  return api;
}

/** The item that the page names as its own address, if that lies on this host: else a view would be another site's. */
function canonical(): string | undefined {
  const link = document.querySelector<HTMLLinkElement>("link[rel~=canonical i][href]");
  // A link element parses no address, and an anchor does so without throwing.
  const anchor = document.createElement("a");
  if (link) anchor.href = link.href;
  if (link && anchor.host == location.host) return anchor.pathname + anchor.search;
}
