// Owns the view of coefficients: how much of each column of one table is in each of another, by which method, how surely.

import { getPages, path } from "./api.js";
import { h } from "./dom.js";
import { counted, number, percent, to } from "./format.js";
import { empty } from "./parts.js";

const METHODS = [["as exactly as can be", ""], ["exact", "exact"], ["estimated", "estimated"], ["bml", "bml"]];
const MOST = 1000; // of a page

export const coefficients = {
  title: "Coefficients",
  isOfVersion: true,
  load: async ({ dependent, referenced, method }) => {
    const columns = await getPages(path("/api/v1/attributes", { limit: MOST }));
    const tables = tablesOf(columns.items);
    const [from, end] = chosen(tables, dependent, referenced);
    if (from === undefined || end === undefined) return { columns, page: null };
    return { columns, page: await getPages(path("/api/v1/coefficients", {
      dependent_schema: from.schema, dependent_table: from.table, referenced_schema: end.schema, referenced_table: end.table, min_coefficient: 0, limit: MOST, method })) };
  },
  show: ({ columns, page }, parameters) => {
    const tables = tablesOf(columns.items);
    const [from, end] = chosen(tables, parameters.dependent, parameters.referenced);
    const pick = (label, name, now) => h("label", {}, `${label} `, h("select", { onchange: (event) => { location.hash = to("coefficients", { ...parameters, [name]: event.target.value }); } },
      tables.map((one) => h("option", { value: one.key, selected: one === now }, one.key))));
    return [
      h("h1", {}, "Inclusion coefficients"),
      h("p.muted", {}, "Which share of a column's distinct values is in another column: rows are contained in columns."),
      page === null ? empty(...whyNot(columns, tables, [[parameters.dependent, from], [parameters.referenced, end]])) : [
        h("p.choice", {}, pick("Rows of", "dependent", from), pick("columns of", "referenced", end)),
        h("p.choice", { role: "group", "aria-label": "Method" }, METHODS.map(([text, method]) =>
          h("a.button", { href: to("coefficients", { ...parameters, method }), "aria-current": (parameters.method ?? "") === method && "true" }, text))),
        h("section.card", {}, heatmap(from, end, page)),
        h("p.muted", {}, `Below each share its interval at ${percent(page.level)} where it is estimated. An empty cell: no value in common, or none at all.`,
          page.left_out > 0 && ` ${counted(page.left_out, "column")} left out: the method has no answer for them.`,
          page.next_cursor && ` These are the first ${number(page.items.length)} pairs: an empty cell may be one of the others.`,
          columns.next_cursor && ` Tables of the first ${number(columns.items.length)} columns can be chosen.`),
      ],
    ];
  },
};

function tablesOf(columns) {
  const found = new Map();
  for (const one of columns) {
    const [schema, name] = one.parts, key = `${schema}.${name}`;
    if (!found.has(key)) found.set(key, { key, schema, table: name, columns: [] });
    found.get(key).columns.push(one);
  }
  return [...found.values()];
}

function chosen(tables, dependent, referenced) {
  const find = (key, other) => (key === undefined ? other : tables.find((one) => one.key === key));
  return [find(dependent, tables[0]), find(referenced, tables[1] ?? tables[0])];
}

/** Say why no pair of tables is shown. */
function whyNot(columns, tables, sides) {
  if (tables.length === 0) return ["There are no columns."];
  const missing = sides.find(([, found]) => found === undefined)[0];
  return [`${missing} is not among the ${columns.next_cursor ? "first " : ""}${counted(columns.items.length, "column")}. `, h("a", { href: to("coefficients") }, "Choose another table")];
}

function heatmap(from, end, page) {
  const found = new Map(page.items.map((one) => [`${one.dependent.attribute_id} ${one.referenced.attribute_id}`, one]));
  const cell = (row, column) => {
    if (row === column) return h("td", { class: "heat self" }, h("span", { title: "itself" }, "–"));
    const one = found.get(`${row.attribute_id} ${column.attribute_id}`);
    if (one === undefined || one.coefficient === null) return h("td.heat", {});
    const isExact = one.low === one.high;
    return h(`td.heat.heat-${Math.ceil(one.coefficient * 5)}`, {}, h("a", { href: to("pair", { dependent: `id:${row.attribute_id}`, referenced: `id:${column.attribute_id}` }), title: `${row.name} in ${column.name}, by ${one.method}` },
      percent(one.coefficient)), h("small", {}, isExact ? one.method : `${percent(one.low)} to ${percent(one.high)}, ${one.method}`));
  };
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Coefficients" }, h("table.heatmap", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `${from.key} in ${end.key}`), end.columns.map((one) => h("th", { scope: "col" }, one.parts[2])))),
    h("tbody", {}, from.columns.map((row) => h("tr", { "data-key": row.attribute_id }, h("th", { scope: "row" }, row.parts[2]), end.columns.map((column) => cell(row, column)))))));
}
