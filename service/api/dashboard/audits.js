// Owns the view of audits: is what is served what holds, and where not, which pairs differ.

import { getAll, path } from "./api.js";
import { h } from "./dom.js";
import { ago, counted, duration, number, plain, to } from "./format.js";
import { badge, empty, pages, table } from "./parts.js";

export const audits = {
  title: "Audits",
  load: ({ cursor }) => getAll({ audits: path("/api/v1/audits", { limit: 20, cursor }) }),
  show: ({ audits: page }, parameters) => [
    h("h1", {}, "Audits"),
    h("p.muted", {}, "An audit finds the inclusion dependencies of one version anew, out of all stored values, and holds those that are served against them. There must be no difference."),
    page.items.length ? page.items.map(audit)
      : empty("There is none: ", h("code", {}, "subsetd audit"), " makes one, and ", h("code", {}, "SUBSETD_AUDIT_SCHEDULE"), " lets a service make them."),
    pages("audits", parameters, page),
  ],
};

const audit = (one) => h("section.card", { "data-key": one.audit_id },
  h("h2", {}, badge(one.differences ? "bad" : "good", counted(one.differences, "difference")), ` Version ${plain(one.version)} `, h("span.muted", {}, ago(one.ended_at))),
  h("p.muted", {}, `${counted(one.inds, "inclusion dependency", "inclusion dependencies")} among ${counted(one.attributes, "column")} with ${counted(one.value_count, "distinct value")}, by ${one.algorithm} in ${duration((Date.parse(one.ended_at) - Date.parse(one.started_at)) / 1000)}`,
    one.sketch_only > 0 && `; ${counted(one.sketch_only, "column")} of sketches alone not looked at`),
  differing("Hold, and were not served", one.not_served, one.examples.not_served),
  differing("Were served, and do not hold", one.not_holding, one.examples.not_holding),
  Object.keys(one.filters).length > 0 && h("details", {}, h("summary", {}, `What filters would leave out: ${number(one.inds_left)} of ${number(one.inds)} would be left`),
    table(`Filters of audit ${one.audit_id}`, [
      ["Filter", ([name]) => name.replaceAll("_", " ")],
      ["Dependent columns", ([, left]) => number(left.dependent_columns), "right"],
      ["Referenced columns", ([, left]) => number(left.referenced_columns), "right"],
      ["INDs", ([, left]) => number(left.inds), "right"],
      ["by it alone", ([, left]) => number(left.inds_alone), "right"],
    ], Object.entries(one.filters))));

const differing = (title, count, examples) => count > 0 && [
  h("h3", {}, `${title}: ${number(count)}`),
  h("ul", {}, examples.map(([dependent, referenced]) => h("li", {},
    h("a.pair", { href: to("pair", { dependent, referenced }) }, h("span.name", {}, dependent), " and ", h("span.name", {}, referenced)), ", and what it misses now"))),
  examples.length < count && h("p.muted", {}, `The first ${examples.length} are named.`),
];
