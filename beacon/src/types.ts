/** What a page says about itself. In a script tag each is an attribute: `data-site`, `data-item`, … */
export interface Options {
  /** Where views are sent: the collector's `/v1/views`, or whatever path a proxy gives it. */
  to: string;
  /** The picture for pages whose requests are all refused; default: `view.gif` beside `to`. */
  pixel?: string;
  /** The site's name; not needed where the collector has only one. */
  site?: string;
  /** The site's public key, where one is configured. */
  key?: string;
  /** Identifies the viewer where the site says `sessions = true`. Onlooker itself makes and stores none. */
  session?: string;
  /** The item that the page shows; default: the canonical link's path if it is on this host, else the page's path. */
  item?: string;
  /** Whether the part behind `#` is a route. */
  hash?: boolean;
  /** Whether only `view()` counts, and neither loading nor routes do. */
  manual?: boolean;
  /** Seconds that a view has to be visible for before it counts; default: 0. */
  dwell?: number;
  /** Whose wishes are honoured: `gpc`, `dnt`, both (default), or `none`. */
  respect?: string;
  /** Whether views are sent so that the answer is seen, and sent again after a 503; default: by `sendBeacon`. */
  confirm?: boolean;
  /** Seconds for which a view is sent again while nothing answers; default: 1800. Below the filter's `slice_s`, or what arrived after all counts a second time. */
  keep?: number;
}

/** A page that is being counted. */
export interface Onlooker {
  /** Says what is being looked at now; replaces what has not been looked at long enough to count. */
  view(item: string): void;
  /** Counts nothing more in this browser, on this origin, until `on()`. The only thing that is ever stored. */
  off(): void;
  /** Takes `off()` back. */
  on(): void;
  /** Views that were given up: too old, or too many while nothing answered. */
  readonly lost: number;
}

/** A view as the collector takes it. */
export interface View {
  site?: string;
  key?: string;
  session?: string;
  item: string;
  /** The same however often the view is sent, so that it counts once. */
  id: string;
  referrer: string;
}

declare global {
  interface Navigator {
    readonly globalPrivacyControl?: boolean;
  }
  interface Document {
    readonly prerendering?: boolean;
  }
  interface Window {
    onlooker?: Onlooker;
  }
}
