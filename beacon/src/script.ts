// The script tag's side: attributes in, `window.onlooker` out.
import { start } from "./index.js";

const { dataset, src } = document.currentScript as HTMLScriptElement;

// A page that has the tag twice has one reader.
window.onlooker ||= start({
  ...dataset,
  to: dataset.to || new URL("views", src).href,
  hash: "hash" in dataset,
  manual: "manual" in dataset,
  confirm: "confirm" in dataset,
  dwell: +dataset.dwell!,
  keep: +dataset.keep!,
});
