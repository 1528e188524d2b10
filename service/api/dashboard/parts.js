// Owns the parts that several views are made of.

import { h } from "./dom.js";
import { ago, counted, place, stamp, to } from "./format.js";

const SIGNS = { good: "✓", warn: "!", bad: "✕", idle: "–" };

/** Show a state by a sign and a word, never by colour alone. */
export const badge = (level, text) => h(`span.badge.${level}`, {}, h("span", { "aria-hidden": "true" }, SIGNS[level]), " ", text);

export const card = (title, ...content) => h("section.card", { "data-key": typeof title === "string" ? title : null }, h("h2", {}, title), content);

export const empty = (...text) => h("p.empty", {}, text);

/** Lay a list out as a table: `columns` are [heading, (row) => cell, class?]. A region that scrolls can be reached.
 * Roles are named, as a narrow window shows rows as blocks, which would be no table to a screen reader.
 * `key` tells what a row is of: one whose place changes is the same row, and what has the focus in it keeps it. */
export function table(label, columns, rows, key = () => null) {
  const cells = (row) => columns.map(([heading, show, kind]) => h("td", { role: "cell", class: kind, "data-label": heading }, h("div", {}, show(row))));
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": label },
    h("table", { role: "table" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([heading, , kind]) => h("th", { role: "columnheader", scope: "col", class: kind }, heading)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row", "data-key": key(row) }, cells(row))))));
}

/** Link the next page of a list, and the first. */
export function pages(view, parameters, answer) {
  const first = parameters.cursor && h("a.button", { "data-key": "first", href: to(view, { ...parameters, cursor: null }) }, "First page");
  const next = answer.next_cursor && h("a.button", { "data-key": "next", href: to(view, { ...parameters, cursor: answer.next_cursor }) }, "Next page");
  return (first || next) && h("p.pages", {}, first, " ", next);
}

/** Name a pair, as a link to its page. */
export function pair(dependent, referenced, holds = true) {
  const names = { dependent: `id:${dependent.attribute_id}`, referenced: `id:${referenced.attribute_id}` };
  return h("a.pair", { href: to("pair", names) },
    h("span.name", {}, dependent.name),
    h("span.sign", { "aria-label": holds ? "is contained in" : "is not contained in" , role: "img" }, holds ? "⊆" : "⊄"), " ",
    h("span.name", {}, referenced.name));
}

/** Name a row by its table and its key or, where it has none, by what it has in its first columns. */
const row = ({ table, key, cells }) => [`row of ${table}`,
  Object.entries(key).map(([column, text]) => [" · ", column, " ", value(text)]),
  Object.entries(cells ?? {}).map(([column, text]) => [" · ", column, " ", text === null ? h("em", {}, "NULL") : value(text)])];

/** Show a transition: what broke or appeared, which value of which row did it, and where it stands in the feed. */
export function transition(one) {
  const broke = one.kind === "broke";
  const others = one.cause_count - 1;
  return h(`li.transition.${broke ? "bad" : "good"}`, { "data-key": `${one.version}-${one.dependent.attribute_id}-${one.referenced.attribute_id}` },
    h("p.what", {}, badge(broke ? "bad" : "good", broke ? "broke" : "appeared"), " ", pair(one.dependent, one.referenced, !broke)),
    h("p.why", {},
      one.witness_key !== null && [broke ? "by the value " : "with the value ", one.witness_value === null ? ["of key ", h("span.mono", {}, one.witness_key)] : value(one.witness_value), others > 0 && ` and ${counted(others, "other")}`, " · "],
      one.row && [row(one.row), " · "],
      h("span.mono", {}, place(one.position)), " · version ", one.version, one.committed_at && [" · ", ago(one.committed_at)]));
}

/** Show a value of a cell, also one that is empty or not kept. */
export const value = (text) => (text === null ? h("em", {}, "not kept") : h("q.value", {}, text === "" ? h("em", {}, "empty text") : text));

export const progress = (label, done, total) => h("progress", { "aria-label": label, max: total || 1, value: total ? done : null });

/** Say when what runs should end, which may be on another day. */
export const expectedEnd = (run) => run.expected_end && [", should end at ", stamp(run.expected_end)];

/** Ask whether what cannot be undone is meant, in a dialog whose Escape is a no; then do it. */
export async function sure(question, answer, work) {
  const no = h("button", { value: "" }, "No"), yes = h("button.primary", { value: "yes" }, answer);
  const dialog = h("dialog", { "aria-label": question }, h("form", { method: "dialog" }, h("p", {}, question), h("p.pages", {}, no, yes)));
  const close = () => dialog.close();
  document.body.append(dialog);
  dialog.showModal();
  addEventListener("hashchange", close); // the view that it was of has gone
  await new Promise((resolve) => { dialog.onclose = resolve; });
  removeEventListener("hashchange", close);
  dialog.remove();
  if (dialog.returnValue === "yes") await work();
}
