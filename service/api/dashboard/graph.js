// Owns the view of the graph of INDs: its components first, then the tables inside, then the INDs between two of them.

import { get, getAll, getPages, path } from "./api.js";
import { drawing, forgetDrawing } from "./drawing.js";
import { h, s } from "./dom.js";
import { counted, keyOf, number, percent, scored, short, side, to } from "./format.js";
import { declaredBetween, known, ofComponent, ofInds, ofKeys, ofTables, reduce } from "./layers.js";
import { badge, card, empty, pages, table } from "./parts.js";

const DRAWN = 40, BUBBLES = 40, MOST_INDS = 1000;
const LAYERS = [["keys", "Foreign keys"], ["declared", "Declared foreign keys"], ["inds", "INDs that others do not imply"], ["all", "All INDs"]];

/** Components are named by a table: their numbers, which links of before have, are of one version. */
const isOfComponent = ({ component, component_of }) => component !== undefined || component_of !== undefined;
const isOfKeys = (layer) => layer === "keys" || layer === "declared";

/** Say which layer is shown: foreign keys where any are known; the tracked tables alone have any, and components are of INDs. */
function layerOf({ corpus, layer, ...parameters }, keys) {
  if (corpus) return "all";
  if (isOfComponent(parameters)) return layer === "all" ? "all" : "inds";
  return layer ?? (keys.length ? "keys" : "inds");
}

export const graph = {
  title: "Graph",
  isOfVersion: true,
  seconds: 5,
  leastMs: 5000,
  forget: () => {
    kept = { parts: [] };
    forgetDrawing();
  },
  load: async (parameters) => {
    const { corpus, component, component_of, around, from, to: end, contains, cursor } = parameters;
    const base = corpus ? `/api/v1/corpora/${encodeURIComponent(corpus)}/graph` : "/api/v1/graph";
    const summary = await get(base);
    const isInside = isOfComponent(parameters) || around !== undefined;
    const keys = corpus ? { items: [], declared: [], isCut: false } : await foreignKeysKnown();
    const layer = layerOf(parameters, keys.items);
    const isReduced = layer === "inds" && summary.inds <= MOST_INDS;
    return {
      summary, keys,
      inds: isReduced ? await get(path("/api/v1/uinds", { limit: MOST_INDS })) : null,
      ...await getAll({
        ...(contains && { found: path(`${base}/tables`, { contains, limit: 30 }) }),
        ...(!isOfKeys(layer) && (isInside || (summary.tables > 0 && summary.tables <= DRAWN)) && { excerpt: path(`${base}/excerpt`, { component, component_of, around, most: DRAWN }) }),
        ...(!isInside && { components: path(`${base}/components`, { limit: BUBBLES, cursor }) }),
        ...(!isOfKeys(layer) && from && end && { paths: path(`${base}/paths`, { from_table: from, to_table: end, limit: 1 }) }),
      }),
    };
  },
  show: ({ summary, keys: { items: keys, declared: declaredKeys, isCut }, inds, found, excerpt: whole, components, paths }, parameters) => {
    const { corpus, component, component_of, around, from, to: end, contains } = parameters;
    const isComponent = isOfComponent(parameters);
    const layer = layerOf(parameters, keys);
    const left = inds && reduce(isComponent ? ofComponent(inds.items, whole.tables[0]?.name) : inds.items);
    const ofIndsAlone = isOfKeys(layer) ? "all" : parameters.layer; // of what is in the graph of INDs, and perhaps in no foreign key
    const drawnKeys = layer === "declared" ? declaredKeys : keys, declared = declaredBetween(keys);
    const excerpt = isOfKeys(layer) ? ofKeys(drawnKeys, around, DRAWN) : left && whole ? ofInds(left, around, DRAWN) : whole;
    const inside = (more) => to("graph", { corpus, component, component_of, around, contains, layer: parameters.layer, ...more });
    const links = {
      table: (name) => to("graph", { corpus, around: name, layer: isComponent && !corpus ? layer : parameters.layer }),
      hub: (name) => to("graph", { corpus, around: name, layer: ofIndsAlone }),
      component: (name) => to("graph", { corpus, component_of: name, layer: ofIndsAlone }),
      edge: (a, b) => inside({ from: a, to: b }),
    };
    const isSure = (one) => isOfKeys(layer) && one.of.every((each) => each.verdict === "accept");
    const hasDeclared = declaredKeys.length > 0;
    const isDeclared = ({ dependent: a, referenced: b, isBoth }, tables) => declared(tables[a].name, tables[b].name) || (isBoth && declared(tables[b].name, tables[a].name));
    const drawn = excerpt && { ...excerpt, edges: excerpt.edges.map((one) => ({ ...one, isSure: isSure(one), isFound: hasDeclared && !isDeclared(one, excerpt.tables) })) };
    return [
      corpus && h("p.muted", {}, h("a", { href: to("corpora", { corpus }) }, corpus), " ›"),
      h("h1", {}, "Graph of inclusion dependencies"),
      h("p.muted", {}, `${counted(summary.tables, "table")} in ${counted(summary.components, "component")}, with ${counted(summary.inds, "IND")} between ${counted(summary.edges, "pair")} of them; ${number(summary.tables_outside)} more are in none.`),
      search(parameters),
      !corpus && summary.tables > 0 && h("p.choice", { role: "group", "aria-label": "What is drawn" }, LAYERS.filter(([name]) => (!isComponent || !isOfKeys(name)) && (name !== "keys" || keys.length > 0) && (name !== "declared" || hasDeclared)).map(([name, text]) =>
        h("a.button", { "data-key": name, href: inside({ layer: name }), "aria-current": layer === name && "true" }, text))),
      found && card(`Tables with “${contains}” in their names`, found.items.length ? h("ul", {}, found.items.map((one) =>
        h("li", {}, h("a", { href: links.hub(one.name) }, one.name), h("span.muted", {}, ` ${counted(one.neighbours, "neighbour")}`)))) : empty("There are none."),
      found.next_cursor && h("p.muted", {}, "These are the first 30, by their neighbours.")),
      (isComponent || around !== undefined) && h("p.choice", {}, h("a.button", { href: to("graph", { corpus, layer: parameters.layer }) }, "All components"),
        around !== undefined && !isOfKeys(layer) && whole?.tables.length > 0 && h("a.button", { href: to("graph", { corpus, component_of: around, layer: parameters.layer }) }, "Its component")),
      summary.tables === 0 && empty("No inclusion dependency holds between tables."),
      excerpt && h("section.card", {}, h("h2", {}, around !== undefined ? `${around} and its neighbours` : component_of !== undefined ? `Component of ${component_of}` : component !== undefined ? `Component ${component}` : "All tables"),
        excerpt.tables.length === 0 ? empty("It is in none that is drawn here.") : drawing(drawn, links, { table: around, from, to: end }, Boolean(corpus), isOfKeys(layer) ? "foreign key" : "IND"),
        hasDeclared && legend(isOfKeys(layer)),
        h("p.muted", {}, told(layer, left && ofTables(inds.items, excerpt.tables).length, left && excerpt.edges.reduce((sum, one) => sum + one.inds, 0), drawnKeys), isOfKeys(layer) && isCut && " These are the first; there are more.",
          excerpt.tables_beyond > 0 && ` Of ${number(excerpt.tables.length + excerpt.tables_beyond)} tables those ${excerpt.tables.length} are drawn that have most neighbours: pick one to go on from it.`)),
      isOfKeys(layer) && from && end && ofTwo(drawnKeys, from, end),
      paths && joins(paths, corpus, from === end),
      excerpt && around !== undefined && card(`${isOfKeys(layer) ? "Foreign keys" : "Inclusions"} of ${around}`, beside(drawn, links, hasDeclared)),
      excerpt && around === undefined && card("Tables, those with most neighbours first", hubs(excerpt.tables, links)),
      components && summary.tables > DRAWN && [
        card("Components", bubbles(components.items, links), listed(components.items, links)),
        pages("graph", parameters, components),
      ],
    ];
  },
};

/** Say what an arrow is, and what is left out of the INDs between the drawn tables; `left` is null where nothing is. */
function told(layer, between, left, keys) {
  if (layer === "declared") return `An arrow goes from a table to the one that it refers to: ${counted(keys.length, "foreign key")} declared by the sources, as they were when these were read.`;
  if (layer === "keys") {
    const accepted = keys.filter((one) => one.verdict === "accept").length, others = keys.filter((one) => one.isDeclared && one.verdict !== "accept").length;
    const declared = others > 0 ? `${number(others)} declared and not decided, ` : "";
    return `An arrow goes from a table to the one that it refers to: ${counted(accepted, "foreign key")} accepted (strong lines), ${declared}${number(keys.length - accepted - others)} suggested and not decided.`;
  }
  const arrow = "An arrow goes from the table whose values are contained to the one that contains them.";
  if (left === null) return layer === "inds" ? `${arrow} There are too many INDs to leave out those that follow from others.` : arrow;
  return `${arrow} Of ${counted(between, "IND")} the ${number(left)} are drawn that others do not imply; of columns with the same values one stands for all.`;
}

/** Say what the lines are: told apart by their form, not by their colour alone. */
const legend = (areKeys) => h("p.legend", {}, [["", "declared by a source"], [".found", "found in the data"], ...(areKeys ? [[".sure", "accepted"]] : [])].map(([kind, text]) =>
  [s("svg.line", { viewBox: "0 0 36 10", "aria-hidden": "true" }, s(`path.edge${kind}`, { d: "M0 5H36" })), `${text} `]));

/** Show the foreign keys between two tables with what speaks for and against them. */
function ofTwo(keys, from, end) {
  const name = (columns) => columns[0].slice(0, 2).join(".");
  const between = keys.filter((one) => [[from, end], [end, from]].some(([a, b]) => name(one.dependent) === a && name(one.referenced) === b));
  const title = from === end ? "Foreign keys inside the table" : "Foreign keys between the two";
  return card(title, between.length === 0 ? empty("There are none any more.") : table(title, [
    ["Foreign key", (one) => [h("span.mono", {}, side(one.dependent)), " → ", h("span.mono", {}, side(one.referenced)),
      one.against?.length > 0 && h("ul.against", {}, one.against.map((text) => h("li", {}, text)))]],
    ["Score", (one) => (one.score === undefined ? "–" : scored(one.score)), "right"],
    ["Coefficient", (one) => (one.coefficient !== undefined ? percent(one.coefficient) : { true: "100 %", false: "below 100 %" }[one.holds] ?? "–"), "right"],
    ["Kind", (one) => one.cardinality ?? "–"],
    ["Declared", (one) => (one.isDeclared ? `by ${one.source}` : "no")],
    ["Decided", (one) => (one.verdict === "accept" ? badge("good", "accepted") : one.verdict ? badge("warn", "pinned") : "no")],
    ["Evidence", (one) => one.dependent.length === 1 && h("a", { href: to("pair", { dependent: side(one.dependent), referenced: side(one.referenced) }), "aria-label": `show evidence of ${side(one.dependent)} in ${side(one.referenced)}` }, "show")],
  ], between, keyOf));
}

let kept = { parts: [] };

/** Ask for the foreign keys; while what they are made of is the same, so are the lists that are given. */
async function foreignKeysKnown() {
  const before = kept;
  const [refreshes, decisions, declared] = await Promise.all([
    get("/api/v1/foreign-keys/refreshes"), getPages(path("/api/v1/foreign-keys/decisions", { limit: 1000 })), getPages(path("/api/v1/foreign-keys/declared", { limit: 1000 })),
  ]);
  const isFound = refreshes.items.some((one) => one.method === "combined");
  const candidates = isFound ? await getPages(path("/api/v1/foreign-keys", { suggested: true, limit: 1000 })) : null;
  const parts = [candidates?.items ?? [], decisions.items, declared.items];
  const isSame = (part, i) => part.length === before.parts[i]?.length && part.every((one, at) => one === before.parts[i][at]);
  let now = before;
  if (!parts.every(isSame)) {
    const items = known(candidates, decisions, declared.items);
    now = { parts, items, declared: items.filter((one) => one.isDeclared) };
    if (kept === before) kept = now; // else who asked may have left
  }
  return { ...now, isCut: [candidates, decisions, declared].some((one) => one?.next_cursor) };
}

const search = ({ corpus, layer, contains }) => h("form.choice", {
  role: "search",
  onsubmit: (event) => {
    event.preventDefault();
    location.hash = to("graph", { corpus, layer, contains: event.target.elements.contains.value });
  },
}, h("label", {}, "Find a table ", h("input", { name: "contains", type: "search", value: contains ?? "", maxlength: 200 })), h("button", {}, "Find"));

const hubs = (tables, links) => table("Tables", [
  ["Table", (one) => h("a", { href: links.table(one.name) }, one.name)],
  ["Neighbours", (one) => number(one.neighbours), "right"],
  ["References", (one) => number(one.references), "right"],
  ["Referenced by", (one) => number(one.referenced_by), "right"],
  ["In all", (one) => number(one.inds), "right"],
], tables, (one) => one.name);

/** List the edges of the picked table, which is the first of the excerpt. */
const beside = ({ tables, edges }, links, hasDeclared) => table("Inclusions", [
  ...(hasDeclared ? [["Declared", (one) => (one.isFound ? "no" : "by its source")]] : []),
  ["Dependent", (one) => h("span.mono", {}, tables[one.dependent].name)],
  ["Referenced", (one) => h("span.mono", {}, tables[one.referenced].name)],
  ["Of them", (one) => number(one.inds), "right"],
  ["Columns", (one) => h("a", { href: links.edge(tables[one.dependent].name, tables[one.referenced].name), "aria-label": `show columns of ${tables[one.dependent].name} in ${tables[one.referenced].name}` }, "show")],
], edges.filter((one) => one.dependent === 0 || one.referenced === 0), (one) => JSON.stringify([tables[one.dependent].name, tables[one.referenced].name]));

/** Show which columns join two tables; of the tracked tables each pair has a page of its own. */
function joins(paths, corpus, areOfOne) {
  const title = areOfOne ? "Columns inside the table" : "Columns that join the two";
  const steps = paths.length === (areOfOne ? 0 : 1) ? paths.paths[0].steps[0] ?? [] : [];
  const rows = steps.flatMap((step) => step.joins.map((join) => ({ step, join })));
  const name = (owner, column, position) => [h("span.mono", {}, owner), " · ", column, corpus && h("span.muted", {}, ` (${position})`)];
  return card(title, rows.length === 0 ? empty("There are none any more.") : table(title, [
    ["Dependent", ({ step, join }) => name(step.dependent, join.dependent_column, join.dependent_position)],
    ["Referenced", ({ step, join }) => name(step.referenced, join.referenced_column, join.referenced_position)],
    ...(corpus ? [] : [["Evidence", ({ step, join }) => {
      const pair = { dependent: `${step.dependent}.${join.dependent_column}`, referenced: `${step.referenced}.${join.referenced_column}` };
      return h("a", { href: to("pair", pair), "aria-label": `show evidence of ${pair.dependent} in ${pair.referenced}` }, "show");
    }]]),
  ], rows), steps.some((step) => step.joins.length < step.inds) && h("p.muted", {}, "These are the first of each way."));
}

const listed = (components, links) => table("Components", [
  ["Component", (one) => h("a", { href: links.component(one.hub.name) }, `Component ${one.component}`)],
  ["Tables", (one) => number(one.tables), "right"],
  ["Pairs of tables", (one) => number(one.edges), "right"],
  ["INDs", (one) => number(one.inds), "right"],
  ["Most neighbours", (one) => h("a", { href: links.hub(one.hub.name) }, one.hub.name)],
], components, (one) => one.component);

/** Draw components as circles whose areas are their tables, in rows; the list below says the same. */
function bubbles(components, links) {
  const width = 960, most = Math.sqrt(components[0]?.tables ?? 1);
  let x = 0, y = 0, row = 0;
  const circles = components.map((one) => {
    const radius = 12 + (78 * Math.sqrt(one.tables)) / most;
    if (x > 0 && x + 2 * radius > width) [x, y, row] = [0, y + row + 8, 0];
    const spot = { one, radius, x: x + radius, y: y + radius };
    x += 2 * radius + 8;
    row = Math.max(row, 2 * radius);
    return spot;
  });
  return s("svg.bubbles", { viewBox: `0 0 ${width} ${y + row}`, "aria-hidden": "true" }, circles.map(({ one, radius, x: left, y: top }) =>
    s("a", { href: links.component(one.hub.name), tabindex: "-1" },
      s("circle", { cx: left, cy: top, r: radius }),
      radius > 20 && s("text", { x: left, y: top, "text-anchor": "middle", dy: ".35em" }, short(one.tables)),
      s("title", {}, `Component ${one.component}: ${counted(one.tables, "table")}, around ${one.hub.name}`))));
}
