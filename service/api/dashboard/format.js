// Owns how numbers, times and names are written.

import { h } from "./dom.js";
import { now } from "./api.js";

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const SMALL = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const STAMP = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];
const CLOCKS_APART = 10; // seconds that the clocks of database and service, and the rounding of what they say, may differ

export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));
/** Write what may be near 0 and is not 0. */
export const small = (value) => SMALL.format(value);
/** Write an id or a version: as it is typed. */
export const plain = (value) => (value === null || value === undefined ? "–" : String(value));
export const short = (value) => (value < 10_000 ? NUMBER.format(value) : SHORT.format(value));
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const side = (columns) => `${columns[0].slice(0, 2).join(".")}.${columns.length === 1 ? columns[0][2] : `(${columns.map((one) => one[2]).join(", ")})`}`;
/** Give what tells a foreign key from all others. */
export const keyOf = ({ dependent, referenced }) => JSON.stringify([dependent, referenced]);
/** Write a score so that only 1 is 1 and only nothing is 0. */
export const scored = (score) => {
  const text = score.toFixed(2);
  if (score > 0 && text === "0.00") return "< 0.01";
  return score < 1 && text === "1.00" ? "> 0.99" : text;
};
/** Write a share so that only all is 100 % and only nothing is 0 %. */
export const percent = (share) => {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  if (share < 1 && share > 0.9999) return "> 99.99 %";
  return `${Math.round(share * 10_000) / 100} %`;
};

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const [unit, size] = UNITS.find(([, length]) => seconds >= length);
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** Show a time as its age, which `tick` keeps true. */
export function ago(iso) {
  if (iso === null || iso === undefined) return "–";
  return h("time", { datetime: iso, title: stamp(iso), "data-ago": true }, age(iso));
}
export const stamp = (iso) => STAMP.format(new Date(iso));
const age = (iso) => {
  const seconds = (now() - Date.parse(iso)) / 1000;
  if (seconds < -CLOCKS_APART) return `${duration(-seconds)} in the future`; // a clock was set back
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
};

/** Bring all ages on the page up to date. */
export function tick() {
  for (const one of document.querySelectorAll("time[data-ago]")) {
    const text = age(one.dateTime);
    if (one.textContent !== text) one.textContent = text;
  }
}

/** Write where in a feed something was. */
export function place(position) {
  if (!position) return "found by a bootstrap";
  const known = ["topic", "partition", "offset"].every((part) => part in position);
  if (known) return `${position.topic} / ${position.partition} @ ${position.offset}`;
  return Object.entries(position).map(([name, value]) => `${name} ${value}`).join(", ");
}

/** Link the address of a view: `to("pair", { dependent })`. */
export function to(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${view}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}
