// Owns the drawings of a pair's evidence: both distributions, and what is known of its coefficient over time.

import { h, s } from "./dom.js";
import { now } from "./api.js";
import { ago, duration, number, percent, plain, scored, small } from "./format.js";
import { table } from "./parts.js";

const WIDTH = 600, ROW = 64, TOLD = 20;

/** Draw how the values of both sides lie over the key's quantiles, in one scale: a cell has so many of the key's values as any other. */
export function distributions({ dependent, referenced, distance }) {
  const most = Math.max(...dependent, ...referenced, 1e-9);
  const step = WIDTH / dependent.length;
  const row = (shares, kind, foot) => shares.map((share, i) => {
    const height = (share / most) * (ROW - 6);
    return share > 0 && s("rect", { class: kind, x: i * step + step * 0.08, y: foot - height, width: step * 0.84, height },
      s("title", {}, `${percent(share)} of the values, cell ${i + 1} of ${shares.length}`));
  });
  const line = (y) => s("line", { x1: 0, x2: WIDTH, y1: y, y2: y, class: "axis" });
  return h("figure", {},
    s("svg", { viewBox: `0 0 ${WIDTH} ${2 * ROW + 8}`, role: "img", preserveAspectRatio: "none", "aria-label": `Distributions of both columns over ${dependent.length} cells of the referenced one's quantiles: distance ${small(distance)}` },
      row(dependent, "accent", ROW), line(ROW), row(referenced, "good", 2 * ROW + 4), line(2 * ROW + 4)),
    h("figcaption", {}, h("span", {}, "smallest values"), h("span", {}, `distance ${small(distance)}: 0 is as if drawn at random from the key`), h("span", {}, "largest")),
    h("p.legend", {}, h("span.key.accent", { "aria-hidden": "true" }), "dependent ", h("span.key.good", { "aria-hidden": "true" }), "referenced"));
}

/** Say why a candidate ranks where it does: the parts of its score that weigh most. */
export function explanation({ evidence, against, score }) {
  const terms = Object.entries(evidence.terms ?? {}).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, 8);
  return [
    h("p", {}, `Score ${scored(score)} as a foreign key; it covers ${percent(evidence.coverage)} of the key.`),
    against.length > 0 && h("ul.against", {}, against.map((text) => h("li", {}, text))),
    terms.length > 0 && h("details", {}, h("summary", {}, "What weighs most in the score"), table("What weighs most in the score", [
      ["Part", ([name]) => name.replaceAll("_", " ")], ["Weight", ([, weight]) => small(weight), "right"],
    ], terms)),
  ];
}

/** Draw a pair's coefficient over time as steps; a strip below says where it held, was looked at, or nobody looked. */
export function history({ items, look_seconds: every, lost_seconds: lost, next_cursor: more }, present) {
  if (items.length === 0) return null;
  const at = (iso) => (iso === null ? null : Date.parse(iso)), end = now();
  const first = Math.min(end, ...items.flatMap((one) => [at(one.since_at), at(one.until_at)]).filter((time) => time !== null));
  const margin = (end - first) * 0.02 || 1000, x = (time) => (((time - first + margin) / (end - first + margin)) * WIDTH).toFixed(2);
  // Of one that began so long ago that its time is not kept the beginning is the left edge.
  const spans = [...items].reverse().map((one) => ({ ...one, from: at(one.since_at) ?? first - margin, to: at(one.until_at) ?? end }));
  const least = Math.min(...[present, ...spans.map((one) => one.coefficient)].map((share) => share ?? 1));
  const low = least === 1 ? 0 : Math.max(Math.ceil(least * 10) - 1, 0) / 10, top = 6, foot = ROW * 1.5;
  const y = (share) => (foot - ((share - low) / (1 - low)) * (foot - top)).toFixed(2);
  // Behind a span that held it is below 1, by how much the next look says; without a look before it holds again, nothing does.
  const isLost = (one, next) => (next?.from ?? end) - one.to > lost * 1000 || (one.holds && one.until_at !== null && (next === undefined || next.holds));
  const gaps = spans.map((one, i) => [one, spans[i + 1]]).filter(([one, next]) => isLost(one, next)).map(([one, next]) => [one.to, next?.from ?? end]);
  const steps = spans.map((one, i) => {
    if (one.coefficient === null) return "";
    const before = spans[i - 1], goesOn = before !== undefined && before.coefficient !== null && !isLost(before, one);
    const last = i === spans.length - 1 && !isLost(one) ? end : one.to;
    return `${goesOn ? `H${x(before.holds ? before.to : one.from)}V${y(one.coefficient)}` : `M${x(one.from)} ${y(one.coefficient)}`}H${x(last)}`;
  });
  const strip = (kind, from, to, text) => s("rect", { class: kind, x: x(from), width: Math.max(x(to) - x(from), 1), y: foot + 4, height: 8 }, s("title", {}, text));
  const told = items.slice(0, TOLD).reverse().map((one) => `${percent(one.coefficient)} from version ${one.since_version} to ${one.until_version}`);
  return h("figure", {},
    s("svg", { viewBox: `0 0 ${WIDTH} ${foot + 14}`, role: "img", preserveAspectRatio: "none", "aria-label": `Coefficient over time: ${told.join(", ")}; now ${percent(present)}` },
      s("line", { x1: 0, x2: WIDTH, y1: foot, y2: foot, class: "axis" }), s("line", { x1: 0, x2: WIDTH, y1: top, y2: top, class: "axis" }),
      spans.map((one) => strip(one.holds ? "good" : "accent", one.from, one.to, `${percent(one.coefficient)}, versions ${one.since_version} to ${one.until_version}`)),
      gaps.map(([from, to]) => strip("unknown", from, to, "It did not hold, or that is not known: nobody looked")),
      s("path", { class: "step", d: steps.join("") })),
    h("figcaption", {}, ago(items.at(-1).since_at), h("span", {}, `between ${percent(low)} and 100 %`), h("span", {}, `now ${percent(present)}`)),
    h("p.legend", {}, h("span.key.good", { "aria-hidden": "true" }), "held: 1 ", h("span.key.accent", { "aria-hidden": "true" }), `did not hold, looked at each ${duration(every)} `,
      h("span.key.unknown", { "aria-hidden": "true" }), "nobody looked"),
    h("details", {}, h("summary", {}, "The same in numbers"), table("Coefficient over time", [
      ["From version", (one) => [plain(one.since_version), one.since_at && [", ", ago(one.since_at)]]],
      ["To", (one) => plain(one.until_version), "right"],
      ["Coefficient", (one) => percent(one.coefficient), "right"],
      ["Values in both", (one) => (one.holds ? "all" : `${number(one.overlap)} of ${number(one.distinct_count)}`), "right"],
    ], items.slice(0, TOLD)), (more || items.length > TOLD) && h("p.muted", {}, `These are the newest ${TOLD}.`)));
}
