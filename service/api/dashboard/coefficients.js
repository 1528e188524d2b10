// Owns the view of coefficients: how much of each column of one table is in each of another, by which method, how surely.

import { get, getPages, path } from "./api.js";
import { h } from "./dom.js";
import { counted, number, percent, to } from "./format.js";
import { empty } from "./parts.js";

const METHODS = [["as exactly as can be", ""], ["exact", "exact"], ["estimated", "estimated"], ["bml", "bml"]];
const MOST = 1000; // of a page
const DRAWN = 100; // columns of a side: a page draws all cells again and again

export const coefficients = {
  title: "Coefficients",
  isOfVersion: true,
  leastMs: 5000,
  load: async ({ dependent, referenced, method, contains }) => {
    const some = await get(path("/api/v1/attributes", { limit: MOST, contains }));
    const [first, second = first] = tablesOf(some.items);
    const [from, end] = await Promise.all([tableNamed(dependent ?? first), tableNamed(referenced ?? second)]);
    return { some, from, end, page: from && end && await getPages(path("/api/v1/coefficients", {
      dependent_schema: from.schema, dependent_table: from.table, referenced_schema: end.schema, referenced_table: end.table, min_coefficient: 0, limit: MOST, method })) };
  },
  show: ({ some, from, end, page }, parameters) => {
    const { contains } = parameters, tables = [...new Set([...tablesOf(some.items), ...[from, end].flatMap((one) => one?.key ?? [])])];
    const pick = (label, name, now) => h("label", {}, `${label} `, h("select", { onchange: (event) => { location.hash = to("coefficients", { ...parameters, [name]: event.target.value }); } },
      tables.map((key) => h("option", { value: key, selected: key === now.key }, key))));
    return [
      h("h1", {}, "Inclusion coefficients"),
      h("p.muted", {}, "Which share of a column's distinct values is in another column: rows are contained in columns."),
      (some.next_cursor || contains) && search(parameters, some),
      page === null ? empty(...whyNot(parameters, from)) : [
        h("p.choice", {}, pick("Rows of", "dependent", from), pick("columns of", "referenced", end)),
        h("p.choice", { role: "group", "aria-label": "Method" }, METHODS.map(([text, method]) =>
          h("a.button", { href: to("coefficients", { ...parameters, method }), "aria-current": (parameters.method ?? "") === method && "true" }, text))),
        h("section.card", {}, heatmap(drawn(from, page, "dependent"), drawn(end, page, "referenced"), page)),
        h("p.muted", {}, `Below each share its interval at ${percent(page.level)} where it is estimated. An empty cell: no value in common, or none at all.`,
          ...[from, end].map((one) => one.columns.length > DRAWN && ` Of the ${number(one.columns.length)} columns of ${one.key} those ${DRAWN} are drawn that have the largest shares.`),
          page.left_out > 0 && ` ${counted(page.left_out, "column")} left out: the method has no answer for them.`,
          page.next_cursor && ` These are the first ${number(page.items.length)} pairs: an empty cell may be one of the others.`),
      ],
    ];
  },
};

const tablesOf = (columns) => [...new Set(columns.map(({ parts: [schema, name] }) => `${schema}.${name}`))];

/** Find a table with its columns; any of the points in its name may be the one behind its schema. */
async function tableNamed(key) {
  const points = [...(key ?? "").matchAll(/\./g)].map((one) => one.index);
  const found = await Promise.all(points.map(async (at) => {
    const [schema, table] = [key.slice(0, at), key.slice(at + 1)];
    return { key, schema, table, columns: (await getPages(path("/api/v1/attributes", { schema, table, limit: MOST }))).items };
  }));
  return found.find((one) => one.columns.length > 0) ?? null;
}

/** Ask for a part of the name where there are more tables than are listed. */
const search = (parameters, some) => h("form.choice", {
  role: "search",
  onsubmit: (event) => {
    event.preventDefault();
    location.hash = to("coefficients", { ...parameters, contains: event.target.elements.contains.value });
  },
}, h("label", {}, "Choose among columns with ", h("input", { name: "contains", type: "search", value: parameters.contains ?? "", maxlength: 200 }), " in their names"), h("button", {}, "Find"),
some.next_cursor && h("span.muted", {}, `The tables of the first ${number(some.items.length)} columns are listed.`));

/** Say why no pair of tables is shown. */
function whyNot({ dependent, referenced, contains }, from) {
  const missing = from === null ? dependent : referenced;
  if (missing === undefined) return [contains ? "No column has this in its name." : "There are no columns."];
  return [`There is no table ${missing}. `, h("a", { href: to("coefficients", { contains }) }, "Choose another table")];
}

/** Take of a wide table the columns that have the largest shares, in the table's order. */
function drawn(table, page, side) {
  if (table.columns.length <= DRAWN) return table;
  const best = new Map();
  for (const one of page.items) best.set(one[side].attribute_id, Math.max(best.get(one[side].attribute_id) ?? 0, one.coefficient ?? 0));
  const share = (column) => best.get(column.attribute_id) ?? -1;
  const chosen = new Set(table.columns.toSorted((a, b) => share(b) - share(a)).slice(0, DRAWN));
  return { ...table, columns: table.columns.filter((one) => chosen.has(one)) };
}

function heatmap(from, end, page) {
  const found = new Map(page.items.map((one) => [`${one.dependent.attribute_id} ${one.referenced.attribute_id}`, one]));
  const cell = (row, column) => {
    if (row.attribute_id === column.attribute_id) return h("td", { class: "heat self" }, h("span", { title: "itself" }, "–"));
    const one = found.get(`${row.attribute_id} ${column.attribute_id}`);
    if (one === undefined || one.coefficient === null) return h("td.heat", {});
    const how = one.low === one.high ? one.method : `${percent(one.low)} to ${percent(one.high)}, ${one.method}`;
    const told = `${percent(one.coefficient)} of ${row.name} in ${column.name}, ${how}`; // who hears the link alone hears all of the cell
    return h(`td.heat.heat-${Math.ceil(one.coefficient * 5)}`, {}, h("a", { href: to("pair", { dependent: `id:${row.attribute_id}`, referenced: `id:${column.attribute_id}`, estimated: one.exact === null ? 1 : undefined }), title: told, "aria-label": told },
      percent(one.coefficient)), h("small", {}, how));
  };
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Coefficients" }, h("table.heatmap", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `${from.key} in ${end.key}`), end.columns.map((one) => h("th", { scope: "col" }, one.parts[2])))),
    h("tbody", {}, from.columns.map((row) => h("tr", { "data-key": row.attribute_id }, h("th", { scope: "row" }, row.parts[2]), end.columns.map((column) => cell(row, column)))))));
}
