// Owns the drawings of a pair's evidence: both distributions, and what is known of its coefficient over time.

import { h, s } from "./dom.js";
import { ago, number, percent } from "./format.js";
import { table } from "./parts.js";

const WIDTH = 600, ROW = 64;

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
    s("svg", { viewBox: `0 0 ${WIDTH} ${2 * ROW + 8}`, role: "img", preserveAspectRatio: "none", "aria-label": `Distributions of both columns over ${dependent.length} cells of the referenced one's quantiles: distance ${number(distance)}` },
      row(dependent, "accent", ROW), line(ROW), row(referenced, "good", 2 * ROW + 4), line(2 * ROW + 4)),
    h("figcaption", {}, h("span", {}, "smallest values"), h("span", {}, `distance ${number(distance)}: 0 is as if drawn at random from the key`), h("span", {}, "largest")),
    h("p.legend", {}, h("span.key.accent", { "aria-hidden": "true" }), "dependent ", h("span.key.good", { "aria-hidden": "true" }), "referenced"));
}

/** Say why a candidate ranks where it does: the parts of its score that weigh most. */
export function explanation({ evidence, against, score }) {
  const terms = Object.entries(evidence.terms ?? {}).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, 8);
  return [
    h("p", {}, `Score ${score.toFixed(2)} as a foreign key; it covers ${percent(evidence.coverage)} of the key.`),
    against.length > 0 && h("ul.against", {}, against.map((text) => h("li", {}, text))),
    terms.length > 0 && h("details", {}, h("summary", {}, "What weighs most in the score"), table("What weighs most in the score", [
      ["Part", ([name]) => name.replaceAll("_", " ")], ["Weight", ([, weight]) => number(weight), "right"],
    ], terms)),
  ];
}

/** Draw when a pair held: the state keeps when its coefficient came to be 1 and ceased to be, and its size for now alone. */
export function history(one) {
  const turns = [...one.transitions].reverse().filter((each) => each.committed_at); // oldest first
  if (turns.length === 0) return null;
  const times = turns.map((each) => Date.parse(each.committed_at)), first = Math.min(...times), last = Math.max(Date.now(), ...times);
  const margin = (last - first) * 0.05 || 1000, x = (at) => ((at - first + margin) / (last - first + 2 * margin)) * WIDTH;
  const ends = [...times.slice(1), last + margin], before = turns[0].kind === "broke";
  // What was before a bootstrap is not known.
  const spans = [...(turns[0].position === null ? [] : [[first - margin, first, before]]), ...turns.map((each, i) => [times[i], ends[i], each.kind === "appeared"])];
  const now = one.coefficient ?? 0, top = 8, foot = ROW * 1.5;
  return h("figure", {},
    s("svg", { viewBox: `0 0 ${WIDTH} ${foot + 8}`, role: "img", preserveAspectRatio: "none", "aria-label": `When it held: ${turns.map((each) => `${each.kind} in version ${each.version}`).join(", ")}; now ${percent(one.coefficient)}` },
      s("line", { x1: 0, x2: WIDTH, y1: foot, y2: foot, class: "axis" }),
      spans.map(([from, to, holds]) => s("rect", { class: holds ? "good" : "unknown", x: x(from), width: Math.max(x(to) - x(from), 1.5), y: holds ? top : top + 4, height: foot - top - (holds ? 0 : 4) },
        s("title", {}, holds ? "It held: the coefficient was 1" : "It did not hold: the coefficient was below 1"))),
      s("line", { class: "now", x1: WIDTH - 14, x2: WIDTH, y1: foot - now * (foot - top), y2: foot - now * (foot - top) })),
    h("figcaption", {}, h("span", {}, ago(turns[0].committed_at)), h("span", {}, `now ${percent(one.coefficient)}`)),
    h("p.legend", {}, h("span.key.good", { "aria-hidden": "true" }), "held: 1 ", h("span.key.unknown", { "aria-hidden": "true" }), "did not hold: below 1; by how much is known for now alone",
      one.transitions.length >= 100 && " (the newest 100 transitions)"));
}
