// Owns the page of one pair: does it hold, by how much does it fail, which values are missing, and since when.

import { getAll, path, post } from "./api.js";
import { h } from "./dom.js";
import { ago, counted, number, percent } from "./format.js";
import { badge, card, empty, pages, table, transition, value } from "./parts.js";

const at = (dependent, referenced) => `/api/v1/uinds/${encodeURIComponent(dependent)}/${encodeURIComponent(referenced)}`;

export const pair = {
  title: "Pair",
  isOfVersion: true,
  under: "timeline",
  load: ({ dependent = "", referenced = "", cursor }) => getAll({
    pair: at(dependent, referenced),
    missing: path(`${at(dependent, referenced)}/missing`, { limit: 20, cursor }),
  }),
  show: ({ pair: one, missing }, parameters, act) => [
    h("p.muted", {}, "Is the first contained in the second?"),
    h("h1", {}, one.dependent.name, h("span.sign", { role: "img", "aria-label": one.holds ? " is contained in " : " is not contained in " }, one.holds ? " ⊆ " : " ⊄ "), one.referenced.name),
    h("p", {}, badge(one.holds ? "good" : "bad", one.holds ? "holds" : "does not hold"), " ",
      { appeared: "since it appeared in", broke: "since it broke in", bootstrap: "as the bootstrap found it in" }[one.since_reason], ` version ${number(one.since_version)}`,
      one.since_at && [", ", ago(one.since_at)]),
    h("dl.tiles", {}, [
      ["Inclusion coefficient", percent(one.coefficient), one.reason ?? "of the dependent's distinct values are in the referenced column"],
      ["Values in both", number(one.overlap), `of ${number(one.dependent.distinct_count)} and ${number(one.referenced.distinct_count)}`],
      ["Missing values", number(one.missing_count), "that the referenced column lacks"],
    ].map(([name, shown, more]) => h("div.tile", {}, h("dt", {}, name), h("dd.big", {}, shown), h("dd.muted", {}, more)))),
    h("p.choice", {}, h("button", { type: "button", onclick: () => act(() => watch(one), "It is watched as a contract now.") }, "Watch it as a contract")),
    card("Missing values", missing.items.length ? [
      table("Missing values", [
        ["Value", (each) => [value(each.value), each.is_cut && " …"]],
        ["Times", (each) => number(each.frequency), "right"],
      ], missing.items), pages("pair", parameters, missing)] : empty("There are none.")),
    h("div.columns", {},
      card("Its transitions", one.transitions.length ? h("ul.transitions", {}, one.transitions.map(transition)) : empty("It is as the bootstrap found it.")),
      card("Both columns", table("Both columns", [
        ["What", ([name]) => h("strong", {}, name)], ["Dependent", ([, show]) => show(one.dependent)], ["Referenced", ([, show]) => show(one.referenced)],
      ], FACTS))),
  ],
};

const FACTS = [
  ["Source", (one) => one.source],
  ["Type", (one) => one.data_type],
  ["Rows", (one) => number(one.row_count)],
  ["of these NULL", (one) => number(one.null_count)],
  ["Distinct values", (one) => number(one.distinct_count)],
  ["Unique", (one) => (one.is_unique === null ? "not known" : one.is_unique ? "yes" : `no, ${counted(one.repeated_count, "value")} repeat`)],
  ["Kept current", (one) => (one.stale_since === null ? "yes" : `not since version ${one.stale_since}`)],
];

const watch = (one) => post("/api/v1/contracts", { dependent: [one.dependent.parts], referenced: [one.referenced.parts], created_by: "dashboard" });
