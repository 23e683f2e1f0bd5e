import type { Options, View } from "./types.js";

/** Views that wait at most; when there are more the oldest go. */
const MOST = 100;
/** The first wait before views are sent again, and the longest, in milliseconds. */
const FIRST_WAIT = 5e3;
const LONGEST_WAIT = 3e5;

/** A view, and when it was first sent: milliseconds since 1970, which go on while the machine sleeps. */
type Entry = [view: View, at: number];

/** Gets views to the collector: by beacon, else by fetch, else by picture, else later. */
export interface Delivery {
  add(view: View): void;
  /** Sends all again of which nobody knows that they arrived. */
  flush(): void;
  /** Forgets them. */
  clear(): void;
  /** Views that were given up. */
  lost(): number;
}

export function deliver(options: Options): Delivery {
  const to = new URL(options.to, location.href);
  const pixel = new URL(options.pixel || "view.gif", to);
  const keep = options.keep! * 1000 || 18e5;
  const queue = new Set<Entry>();
  let lost = 0;
  let wait = FIRST_WAIT;
  let timer: number | undefined;

  const trim = () => {
    for (const entry of queue) {
      // An id is recognised for so long and no longer: what is sent again later might count again.
      if (queue.size > MOST || Date.now() - entry[1] > keep) {
        queue.delete(entry);
        lost++;
      }
    }
  };

  const flush = () => {
    trim();
    send([...queue]);
  };

  const done = (entries: Entry[]) => {
    entries.forEach((entry) => queue.delete(entry));
    wait = FIRST_WAIT;
  };

  const later = (seconds: number) => {
    clearTimeout(timer);
    timer = setTimeout(flush, Math.max(wait, seconds * 1000));
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };

  const send = async (entries: Entry[]) => {
    if (!entries[0]) return;
    const half = entries.length >> 1;
    const body = JSON.stringify(entries.map(([view]) => view));
    // A beacon says nothing of its fate, so one that is likely to get lost is the last resort of a page that closes.
    const doubtful = options.confirm || !navigator.onLine;
    try {
      if (!doubtful || document.visibilityState == "hidden") {
        // Text, so that no preflight is needed, for which a page that closes has no time.
        if (navigator.sendBeacon?.(to, body)) {
          if (!doubtful) done(entries);
          return;
        }
        // Most likely too much: all that is under way from a page shares 64 KiB. Fetch would say so too late.
        if (half) throw 0;
      }
      const answer = await fetch(to, { method: "POST", body, keepalive: true, credentials: "omit" });
      if (answer.status < 500) done(entries);
      else later(+answer.headers.get("retry-after")!);
    } catch {
      if (half) {
        send(entries.slice(0, half));
        send(entries.slice(half));
      } else {
        const image = new Image();
        image.onload = () => done(entries);
        image.onerror = () => later(0);
        image.src = pixel + "?" + new URLSearchParams({ ...entries[0][0] });
      }
    }
  };

  return {
    add(view) {
      const entry: Entry = [view, Date.now()];
      queue.add(entry);
      trim();
      send([entry]);
    },
    flush,
    clear: () => queue.clear(),
    lost: () => lost,
  };
}
