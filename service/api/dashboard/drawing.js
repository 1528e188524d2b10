// Owns the drawing of a graph: boxes and arrows in SVG, which is dragged, enlarged by buttons, and walked by links.

import { h, s } from "./dom.js";
import { counted } from "./format.js";
import { BOX, place } from "./layout.js";

const MARGIN = 20, LONGEST = 18;
const FAR = 4; // pixels: who moves less has clicked
const NOTHING = { key: null, spots: new Map() };
let drawn = NOTHING;
let sight = null;
let drag = null, hasDragged = false; // here, as a drag goes on while its graph is drawn anew

/** Draw tables and edges; `links` gives { table(name), edge(dependent, referenced) } as addresses, `picked` what is marked; tables are `ofPaths` or of schemas; edges are of `what`. */
export function drawing({ tables, edges }, links, picked, ofPaths, what = "IND") {
  const label = (name) => shorten(name, ofPaths);
  const shape = innerWidth < 640 ? 0.8 : 2;
  // Tables change places in their list when counts change, and stand where they stood; two may have one name.
  const names = tables.map((one, i) => `${one.name}\n${tables.slice(0, i).filter((other) => other.name === one.name).length}`);
  const key = JSON.stringify([shape, [...names].sort(), edges.map((one) => [names[one.dependent], names[one.referenced]].sort().join("\n")).sort()]);
  if (drawn.key !== key) {
    const placed = place(tables.length, edges.map((one) => [one.dependent, one.referenced]), shape);
    drawn = { key, spots: new Map(names.map((name, i) => [name, placed[i]])) };
    sight = drag = null;
  }
  const spots = names.map((name) => drawn.spots.get(name));
  const left = Math.min(...spots.map(({ x }) => x)) - BOX.width / 2 - MARGIN, top = Math.min(...spots.map(({ y }) => y)) - BOX.height / 2 - MARGIN;
  const whole = { x: left, y: top, width: 2 * MARGIN + BOX.width + spread(spots, "x"), height: 2 * MARGIN + BOX.height + spread(spots, "y") };
  const isPicked = (one) => picked.table === tables[one.dependent].name || picked.table === tables[one.referenced].name
    || (picked.from === tables[one.dependent].name && picked.to === tables[one.referenced].name)
    || (one.isBoth && picked.to === tables[one.dependent].name && picked.from === tables[one.referenced].name);
  const svg = s("svg.graph", { viewBox: box(sight ?? whole), role: "group", "aria-label": `Graph of ${counted(tables.length, "table")}`, ...dragging(whole) },
    s("defs", {}, ["arrow", "arrow-picked"].map((id) =>
      s("marker", { id, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse", class: id },
        s("path", { d: "M0 1 10 5 0 9z" })))),
    s("g", { "aria-hidden": "true" }, edges.map((one) => {
      const from = tables[one.dependent].name, to = tables[one.referenced].name;
      return s(`path.edge${isPicked(one) ? ".picked" : ""}${one.isSure ? ".sure" : ""}${one.isFound ? ".found" : ""}`, {
        d: one.dependent === one.referenced ? loop(spots[one.dependent]) : line(spots[one.dependent], spots[one.referenced]), "stroke-width": 1 + Math.log2(one.inds) * 0.6,
        "marker-end": `url(#arrow${isPicked(one) ? "-picked" : ""})`, "marker-start": one.isBoth && `url(#arrow${isPicked(one) ? "-picked" : ""})`, onclick: (event) => { if (!endsDrag(event)) location.hash = links.edge(from, to); },
      }, s("title", {}, `${from} in ${to}: ${counted(one.inds, what)}`));
    })),
    tables.map((one, i) => s(`a.node${one.name === picked.table ? ".picked" : ""}`, {
      "data-key": one.name, href: links.table(one.name), transform: `translate(${spots[i].x.toFixed(1)} ${spots[i].y.toFixed(1)})`,
      "aria-label": `${label(one.name)}, ${one.name}: ${counted(one.neighbours, "neighbour")}, ${counted(one.inds, what)}`,
      onfocus: (event) => bringIntoSight(spots[i], event.currentTarget),
    },
    s("rect", { x: -BOX.width / 2, y: -BOX.height / 2, width: BOX.width, height: BOX.height, rx: 8 }),
    s("text", { "text-anchor": "middle", dy: ".35em" }, label(one.name)), s("title", {}, one.name))));
  const by = (factor) => zoom(document.querySelector("svg.graph"), whole, factor);
  return h("div.drawing", {}, svg, h("p.zoom", {},
    h("button", { type: "button", onclick: () => by(0.7), "aria-label": "Enlarge" }, "+"),
    h("button", { type: "button", onclick: () => by(1 / 0.7), "aria-label": "Make smaller" }, "−"),
    h("button", { type: "button", onclick: () => by(0) }, "Fit")));
}

export function forgetDrawing() {
  drawn = NOTHING;
  sight = drag = null;
}

const spread = (spots, axis) => Math.max(...spots.map((one) => one[axis])) - Math.min(...spots.map((one) => one[axis]));
const box = ({ x, y, width, height }) => [x, y, width, height].map((one) => one.toFixed(1)).join(" ");
/** Leave out what many names have in common: the folders of a path, or the schema. */
const shorten = (name, ofPaths) => {
  const last = ofPaths ? name.slice(name.lastIndexOf("/") + 1) : name.slice(name.indexOf(".") + 1);
  return last.length > LONGEST ? `…${last.slice(1 - LONGEST)}` : last;
};

/** Draw from the border of one box to the border of another, a little bent, so that two ways are two lines. */
function line(from, to) {
  const x = to.x - from.x, y = to.y - from.y, far = Math.hypot(x, y) || 1;
  const middle = { x: (from.x + to.x) / 2 - (y / far) * 14, y: (from.y + to.y) / 2 + (x / far) * 14 };
  const begin = border(from, middle, 0), end = border(to, middle, 3);
  return `M${begin.x.toFixed(1)} ${begin.y.toFixed(1)}Q${middle.x.toFixed(1)} ${middle.y.toFixed(1)} ${end.x.toFixed(1)} ${end.y.toFixed(1)}`;
}

/** Draw around the corner of a box, from its side to its top: what a table refers to in itself. */
function loop({ x, y }) {
  const at = (right, down) => `${(x + BOX.width / 2 + right).toFixed(1)} ${(y - BOX.height / 2 + down).toFixed(1)}`;
  return `M${at(0, 14)}C${at(28, 8)} ${at(-18, -34)} ${at(-28, -3)}`;
}

function border(centre, towards, gap) {
  const x = towards.x - centre.x, y = towards.y - centre.y;
  const share = Math.min((BOX.width / 2 + gap) / Math.abs(x || 1e-9), (BOX.height / 2 + gap) / Math.abs(y || 1e-9), 1);
  return { x: centre.x + x * share, y: centre.y + y * share };
}

function zoom(svg, whole, factor) {
  const now = sight ?? whole;
  sight = factor === 0 ? null : {
    width: now.width * factor, height: now.height * factor,
    x: now.x + (now.width * (1 - factor)) / 2, y: now.y + (now.height * (1 - factor)) / 2,
  };
  svg.setAttribute("viewBox", box(sight ?? whole));
}

/** Tell whether a click is the end of a drag, which is none; the keyboard's have no number. */
const endsDrag = (event) => hasDragged && event.detail > 0;

/** Move to a table that the keyboard has come to. */
function bringIntoSight({ x, y }, node) {
  if (sight === null || !node.matches(":focus-visible")) return;
  const isInside = (at, size, first, length) => at - size / 2 >= first && at + size / 2 <= first + length;
  if (isInside(x, BOX.width, sight.x, sight.width) && isInside(y, BOX.height, sight.y, sight.height)) return;
  sight = { ...sight, x: x - sight.width / 2, y: y - sight.height / 2 };
  node.ownerSVGElement.setAttribute("viewBox", box(sight));
}

function dragging(whole) {
  return {
    onpointerdown: (event) => {
      drag = { x: event.clientX, y: event.clientY, sight: sight ?? whole };
      hasDragged = false;
    },
    onpointermove: (event) => {
      if (drag === null || !(event.buttons & 1)) return;
      const svg = event.currentTarget, x = event.clientX - drag.x, y = event.clientY - drag.y;
      hasDragged ||= Math.hypot(x, y) > FAR;
      if (!hasDragged) return;
      const scale = Math.max(drag.sight.width / svg.clientWidth, drag.sight.height / svg.clientHeight);
      sight = { ...drag.sight, x: drag.sight.x - x * scale, y: drag.sight.y - y * scale };
      svg.setAttribute("viewBox", box(sight));
    },
    onpointerup: () => { drag = null; },
    onclick: (event) => { if (endsDrag(event)) event.preventDefault(); },
    ondragstart: (event) => event.preventDefault(),
    onwheel: (event) => {
      if (!event.ctrlKey) return; // else the page is scrolled
      event.preventDefault();
      zoom(event.currentTarget, whole, event.deltaY > 0 ? 1.15 : 1 / 1.15);
    },
  };
}
