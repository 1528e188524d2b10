// Owns the view that asks which tables, of a corpus or tracked, join with a CSV: drop one, pick its key columns, see what a join would add.

import { getAll, getIfThere, NoAnswer, path, post } from "./api.js";
import { h } from "./dom.js";
import { counted, number, percent, to } from "./format.js";
import { card, progress, table } from "./parts.js";

const REASONS = { accepted: "accepted foreign key", suggested: "suggested foreign key", ind: "IND" };
const PATH = "/api/v1/joinable";
const FORGOTTEN = { state: "failed", message: "The service has forgotten it: ask again." }; // it was started anew
const fresh = () => ({ file: null, columns: [], key: new Set(), search: null });
let asked = fresh(); // a file is in no address: it is gone when the page is loaded anew

const isOpen = (search) => search !== null && (search.state === "queued" || search.state === "running");

export const joinable = {
  title: "Joinable",
  forget: () => { asked = fresh(); }, // who logs in next sees nothing of it
  load: async () => {
    const answers = await getAll({ corpora: path("/api/v1/corpora", { limit: 1000 }) });
    if (isOpen(asked.search)) asked.search = await getIfThere(`${PATH}/${asked.search.search_id}`) ?? FORGOTTEN;
    return answers;
  },
  show: ({ corpora }, parameters, act) => {
    const { file, columns, key, search } = asked;
    const corpus = parameters.tracked ? null : parameters.corpus ?? corpora.items[0]?.name ?? null; // null: tracked tables
    return [
      h("h1", {}, "Joinable tables"),
      h("p.muted", {}, "Which tables join with yours, on several columns at once, and what would they add?"),
      h("form.card.ask", { onsubmit: (event) => { event.preventDefault(); return act(() => ask(corpus)); } },
        h("label", {}, "A CSV with a header, in UTF-8 (drop it here)",
          h("input", { type: "file", accept: ".csv,text/csv", onchange: (event) => act(() => take(event.target.files[0])) })),
        h("label", {}, "Look in", h("select", { onchange: (event) => { location.hash = to("joinable", JSON.parse(event.target.value)); } },
          corpora.items.map((one) => h("option", { value: JSON.stringify({ corpus: one.name }), selected: one.name === corpus }, `corpus ${one.name}`)),
          h("option", { value: JSON.stringify({ tracked: true }), selected: corpus === null }, "tracked tables"))),
        file && h("fieldset", {}, h("legend", {}, `Key columns of ${file.name}`), columns.map((name, i) =>
          h("label", { "data-key": `${file.name} ${i}` }, h("input", { type: "checkbox", checked: key.has(name), onchange: (event) => act(() => choose(name, event.target.checked)) }), name === "" ? h("em", {}, "without a name") : name))),
        h("p.pages", {}, h("button.primary", { disabled: key.size === 0 || isOpen(search) }, "Search"),
          isOpen(search) && h("button", { type: "button", onclick: () => act(() => post(`${PATH}/${search.search_id}/cancel`, {})) }, "Cancel"))),
      isOpen(search) && h("p", { role: "status" }, search.total ? `${number(search.done)} of ${counted(search.total, "table")} looked at` : "It waits, or begins.",
        progress("Search", search.done ?? 0, search.total)),
      search !== null && ["failed", "cancelled"].includes(search.state) && h("p.notice.bad", { role: "alert" }, search.message ?? search.state),
      search?.answer && found(search.answer),
    ];
  },
};

async function take(file) {
  asked = { ...fresh(), file: file ?? null };
  if (file) asked.columns = header(await file.slice(0, 1 << 20).text());
}

function choose(name, isKey) {
  if (isKey) asked.key.add(name);
  else asked.key.delete(name);
}

async function ask(corpus) {
  asked.search = null;
  const where = corpus === null ? ["tracked", "true"] : ["corpus", corpus];
  const question = new URLSearchParams([where, ["through", "5"], ...[...asked.key].map((name) => ["key", name])]);
  const send = async (bytes) => post(`${PATH}?${question}`, bytes, "text/csv");
  const bytes = await asked.file.arrayBuffer(); // as it is now; and bytes can be sent again
  asked.search = await send(bytes).catch((error) => {
    if (!(error instanceof NoAnswer)) throw error;
    return send(bytes); // the line broke: a search changes nothing, so that it may be asked for twice
  });
}

/** Read the first line of a CSV: cells between commas, quoted ones with quotes doubled. */
function header(text) {
  const cells = [];
  let cell = "", quoted = false;
  const begin = text.search(/[^\uFEFF\r\n]/);
  for (let i = Math.max(begin, 0); i < text.length; i += 1) {
    const sign = text[i];
    if (quoted && sign === '"' && text[i + 1] === '"') cell += text[i += 1];
    else if (sign === '"' && (quoted || cell === "")) quoted = !quoted; // inside of an unquoted cell it is a sign as others
    else if (!quoted && sign === ",") {
      cells.push(cell);
      cell = "";
    } else if (!quoted && (sign === "\n" || sign === "\r")) break;
    else cell += sign;
  }
  return [...cells, cell];
}

const found = (answer) => [
  h("p", { role: "status" }, `${counted(answer.tables.length, "table")} for ${counted(answer.keys, "distinct key")} of ${counted(answer.rows, "row")}, ${answer.version === null ? `in generation ${answer.generation}` : `as of version ${answer.version}`}`,
    answer.empty > 0 && `; ${counted(answer.empty, "row")} with an empty key cell left out`, answer.is_cut && "; there are more"),
  answer.unfinished.length > 0 && h("p.notice", {}, "Not all columns were tried of ", answer.unfinished.join(", ")),
  answer.not_indexed.length > 0 && h("p.notice", {}, "Not searched, as their rows are not indexed yet: ", answer.not_indexed.join(", ")),
  answer.tables.map((one) => card([h("span.mono", {}, one.table), ` · ${percent(one.share)} of the keys`],
    h("p.muted", {}, "by ", one.columns.join(", "), ` (${one.positions.join(", ")}); ${counted(one.matched_rows, "row")} of yours, ${percent(one.row_share)}`),
    one.preview_fault && h("p.fault", {}, one.preview_fault),
    one.preview.length > 0 && table(`What ${one.table} would add`, [
      ...(answer.version === null ? [["Row", (each) => number(each.row), "right"]] : []),
      ["Key", (each) => h("strong", {}, each.key.join(", "))],
      ...one.new_columns.map((name, i) => [name === "" ? "without a name" : name, (each) => each.values?.[i] ?? "–"]),
    ], one.preview),
    one.leads_to?.length > 0 && h("details", {}, h("summary", {}, `Leads to ${counted(one.leads_to.length, "table")}`),
      h("ul", {}, one.leads_to.map((each) => h("li", {}, h("span.mono", {}, each.table), ` · ${each.columns.join(", ")}, by ${each.through.join(", ")} (${REASONS[each.reason]})`)))))),
];
