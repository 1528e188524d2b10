// Owns the view of the graph of INDs: its components first, then the tables inside, then the INDs between two of them.

import { get, getAll, path } from "./api.js";
import { drawing } from "./drawing.js";
import { h, s } from "./dom.js";
import { counted, number, short, to } from "./format.js";
import { card, empty, pages, table } from "./parts.js";

const DRAWN = 40, BUBBLES = 40;

export const graph = {
  title: "Graph",
  isOfVersion: true,
  seconds: 5,
  load: async (parameters) => {
    const { corpus, component, around, from, to: end, contains, cursor } = parameters;
    const base = corpus ? `/api/v1/corpora/${encodeURIComponent(corpus)}/graph` : "/api/v1/graph";
    const summary = await get(base);
    const isInside = component !== undefined || around !== undefined;
    return {
      summary,
      ...await getAll({
        ...(contains && { found: path(`${base}/tables`, { contains, limit: 30 }) }),
        ...((isInside || (summary.tables > 0 && summary.tables <= DRAWN)) && { excerpt: path(`${base}/excerpt`, { component, around, most: DRAWN }) }),
        ...(!isInside && { components: path(`${base}/components`, { limit: BUBBLES, cursor }) }),
        ...(from && end && { paths: path(`${base}/paths`, { from_table: from, to_table: end, limit: 1 }) }),
      }),
    };
  },
  show: ({ summary, found, excerpt, components, paths }, parameters) => {
    const { corpus, component, around, from, to: end, contains } = parameters;
    const inside = (more) => to("graph", { corpus, component, around, ...more });
    const links = {
      table: (name) => to("graph", { corpus, around: name }),
      edge: (a, b) => inside({ from: a, to: b }),
    };
    return [
      corpus && h("p.muted", {}, h("a", { href: to("corpora", { corpus }) }, corpus), " ›"),
      h("h1", {}, "Graph of inclusion dependencies"),
      h("p.muted", {}, `${counted(summary.tables, "table")} in ${counted(summary.components, "component")}, with ${counted(summary.inds, "IND")} between ${counted(summary.edges, "pair")} of them; ${number(summary.tables_outside)} more are in none.`),
      search(corpus, contains),
      found && card(`Tables with “${contains}” in their names`, found.items.length ? h("ul", {}, found.items.map((one) =>
        h("li", {}, h("a", { href: links.table(one.name) }, one.name), h("span.muted", {}, ` ${counted(one.neighbours, "neighbour")}`)))) : empty("There are none."),
      found.next_cursor && h("p.muted", {}, "These are the first 30, by their neighbours.")),
      (component !== undefined || around !== undefined) && h("p.choice", {}, h("a.button", { href: to("graph", { corpus }) }, "All components"),
        around !== undefined && excerpt.tables.length > 0 && h("a.button", { href: to("graph", { corpus, component: excerpt.tables[0].component }) }, "Its component")),
      summary.tables === 0 && empty("No inclusion dependency holds between tables."),
      excerpt && h("section.card", {}, h("h2", {}, around !== undefined ? `${around} and its neighbours` : component !== undefined ? `Component ${component}` : "All tables"),
        drawing(excerpt, links, { table: around, from, to: end }, Boolean(corpus)),
        h("p.muted", {}, "An arrow goes from the table whose values are contained to the one that contains them.",
          excerpt.tables_beyond > 0 && ` Of ${number(excerpt.tables.length + excerpt.tables_beyond)} tables those ${excerpt.tables.length} are drawn that have most neighbours: pick one to go on from it.`)),
      paths && joins(paths, corpus),
      excerpt && around !== undefined && card(`Inclusions of ${around}`, beside(excerpt, links)),
      excerpt && around === undefined && card("Tables, those with most neighbours first", hubs(excerpt.tables, links)),
      components && summary.tables > DRAWN && [
        card("Components", bubbles(components.items, corpus), listed(components.items, corpus, links)),
        pages("graph", parameters, components),
      ],
    ];
  },
};

const search = (corpus, contains) => h("form.choice", {
  role: "search",
  onsubmit: (event) => {
    event.preventDefault();
    location.hash = to("graph", { corpus, contains: event.target.elements.contains.value });
  },
}, h("label", {}, "Find a table ", h("input", { name: "contains", type: "search", value: contains ?? "", maxlength: 200 })), h("button", {}, "Find"));

const hubs = (tables, links) => table("Tables", [
  ["Table", (one) => h("a", { href: links.table(one.name) }, one.name)],
  ["Neighbours", (one) => number(one.neighbours), "right"],
  ["References", (one) => number(one.references), "right"],
  ["Referenced by", (one) => number(one.referenced_by), "right"],
  ["INDs", (one) => number(one.inds), "right"],
], tables);

/** List the edges of the picked table, which is the first of the excerpt. */
const beside = ({ tables, edges }, links) => table("Inclusions", [
  ["Dependent", (one) => h("span.mono", {}, tables[one.dependent].name)],
  ["Referenced", (one) => h("span.mono", {}, tables[one.referenced].name)],
  ["INDs", (one) => number(one.inds), "right"],
  ["Columns", (one) => h("a", { href: links.edge(tables[one.dependent].name, tables[one.referenced].name), "aria-label": `show columns of ${tables[one.dependent].name} in ${tables[one.referenced].name}` }, "show")],
], edges.filter((one) => one.dependent === 0 || one.referenced === 0));

/** Show which columns join two tables; of the tracked tables each pair has a page of its own. */
function joins(paths, corpus) {
  const steps = paths.length === 1 ? paths.paths[0].steps[0] : [];
  const rows = steps.flatMap((step) => step.joins.map((join) => ({ step, join })));
  const name = (owner, column, position) => [h("span.mono", {}, owner), " · ", column, corpus && h("span.muted", {}, ` (${position})`)];
  return card("Columns that join the two", rows.length === 0 ? empty("There are none any more.") : table("Columns that join the two", [
    ["Dependent", ({ step, join }) => name(step.dependent, join.dependent_column, join.dependent_position)],
    ["Referenced", ({ step, join }) => name(step.referenced, join.referenced_column, join.referenced_position)],
    ...(corpus ? [] : [["Evidence", ({ step, join }) => {
      const pair = { dependent: `${step.dependent}.${join.dependent_column}`, referenced: `${step.referenced}.${join.referenced_column}` };
      return h("a", { href: to("pair", pair), "aria-label": `show evidence of ${pair.dependent} in ${pair.referenced}` }, "show");
    }]]),
  ], rows), steps.some((step) => step.joins.length < step.inds) && h("p.muted", {}, "These are the first of each way."));
}

const listed = (components, corpus, links) => table("Components", [
  ["Component", (one) => h("a", { href: to("graph", { corpus, component: one.component }) }, `Component ${one.component}`)],
  ["Tables", (one) => number(one.tables), "right"],
  ["Pairs of tables", (one) => number(one.edges), "right"],
  ["INDs", (one) => number(one.inds), "right"],
  ["Most neighbours", (one) => h("a", { href: links.table(one.hub.name) }, one.hub.name)],
], components);

/** Draw components as circles whose areas are their tables, in rows; the list below says the same. */
function bubbles(components, corpus) {
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
    s("a", { href: to("graph", { corpus, component: one.component }), tabindex: "-1" },
      s("circle", { cx: left, cy: top, r: radius }),
      radius > 20 && s("text", { x: left, y: top, "text-anchor": "middle", dy: ".35em" }, short(one.tables)),
      s("title", {}, `Component ${one.component}: ${counted(one.tables, "table")}, around ${one.hub.name}`))));
}
