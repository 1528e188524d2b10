// Owns the page of one pair: does it hold, by how much does it fail, which values are missing, and since when.

import { get, getAll, getPages, path, post } from "./api.js";
import { h } from "./dom.js";
import { ago, counted, keyOf, number, percent, plain, to } from "./format.js";
import { distributions, explanation, history } from "./evidence.js";
import { badge, card, empty, pages, table, transition, value } from "./parts.js";

const SHOWN = 20; // transitions
const at = (dependent, referenced) => `/api/v1/uinds/${encodeURIComponent(dependent)}/${encodeURIComponent(referenced)}`;

export const pair = {
  title: "Pair",
  isOfVersion: true,
  leastMs: 2000,
  under: "timeline",
  load: async ({ dependent = "", referenced = "", cursor, estimated }) => {
    if (estimated) return ofSketches(dependent, referenced);
    const { hash } = location;
    const answers = await getAll({
      pair: at(dependent, referenced),
      missing: path(`${at(dependent, referenced)}/missing`, { limit: 20, cursor }),
      spans: path(`${at(dependent, referenced)}/history`, { limit: 500 }),
      contracts: path("/api/v1/contracts", { dependent, referenced }),
      refreshes: "/api/v1/foreign-keys/refreshes",
    }).catch((error) => {
      if (error.type !== "/docs#values-not-stored") throw error;
      if (location.hash === hash) location.replace(to("pair", { dependent, referenced, estimated: 1 })); // the next look does not ask in vain
      return ofSketches(dependent, referenced);
    });
    if (answers.estimates) return answers;
    return { ...answers, candidate: await candidateOf(answers) };
  },
  show: (answers, parameters, act) => (answers.estimates ? estimates(answers.estimates) : whole(answers, parameters, act)),
};

/** Ask how much of a column is in another of which values are not kept. */
const ofSketches = async (dependent, referenced) =>
  ({ estimates: await get(`/api/v1/coefficients/${encodeURIComponent(dependent)}/${encodeURIComponent(referenced)}`) });

/** Show a pair of which the values of a side are not kept: by each method, how sure it is. */
const estimates = (one) => [
  h("p.muted", {}, "How much of the first is contained in the second?"),
  h("h1", {}, `${one.dependent.column.name} in ${one.referenced.column.name}`),
  h("p", {}, "Of one of these only a sketch is kept: whether the first is whole in the second is not known, and how much of it is, is estimated."),
  card("By each method", table("By each method", [
    ["Method", (each) => each.method], ["Inclusion coefficient", (each) => percent(each.coefficient), "right"],
    [`Interval at ${percent(one.level)}`, (each) => (each.reason ? each.reason : `${percent(each.low)} to ${percent(each.high)}`)],
  ], one.coefficients, (each) => each.method)),
];

const whole = ({ pair: one, missing, spans, contracts, candidate }, parameters, act) => [
  h("p.muted", {}, "Is the first contained in the second?"),
  h("h1", {}, one.dependent.name, h("span.sign", { role: "img", "aria-label": one.holds ? " is contained in " : " is not contained in " }, one.holds ? " ⊆ " : " ⊄ "), one.referenced.name),
  h("p", {}, badge(one.holds ? "good" : "bad", one.holds ? "holds" : "does not hold"), " ",
    { appeared: "since it appeared in", broke: "since it broke in", bootstrap: "as the bootstrap found it in" }[one.since_reason], ` version ${plain(one.since_version)}`,
    one.since_at && [", ", ago(one.since_at)]),
  h("dl.tiles", {}, [
    ["Inclusion coefficient", percent(one.coefficient), one.reason ?? "of the dependent's distinct values are in the referenced column"],
    ["Values in both", number(one.overlap), `of ${number(one.dependent.distinct_count)} and ${number(one.referenced.distinct_count)}`],
    ["Missing values", number(one.missing_count), "that the referenced column lacks"],
  ].map(([name, shown, more]) => h("div.tile", {}, h("dt", {}, name), h("dd.big", {}, shown), h("dd.muted", {}, more)))),
  watched(one, contracts, act),
  h("p.choice", {}, h("a.button", { href: to("watches", { dependent: one.dependent.name, referenced: one.referenced.name }) }, "Tell me when it breaks")),
  h("div.columns", {},
    card("Coefficient over time", history(spans, one.coefficient) ?? empty("It never held, and nobody looked: the coefficients of pairs that are watched, accepted or nearly hold are kept.")),
    candidate && card("As a foreign key", explanation(candidate))),
  candidate?.evidence.distribution && card("Both distributions", distributions(candidate.evidence.distribution)),
  card("Missing values", [missing.items.length === 0 ? empty(parameters.cursor ? "There are none on this page." : "There are none.")
    : table("Missing values", [
      ["Value", (each) => (each.value === null ? ["key ", h("span.mono", {}, each.value_key)] : [value(each.value), each.is_cut && " …"])],
      ["Times", (each) => number(each.frequency), "right"],
    ], missing.items, (each) => each.value_key), pages("pair", parameters, missing)]),
  h("div.columns", {},
    card(one.transitions.length > SHOWN ? `Its last ${SHOWN} transitions` : "Its transitions", one.transitions.length ? h("ul.transitions", {}, one.transitions.slice(0, SHOWN).map(transition)) : empty("It is as the bootstrap found it.")),
    card("Both columns", table("Both columns", [
      ["What", ([name]) => h("strong", {}, name)], ["Dependent", ([, show]) => show(one.dependent)], ["Referenced", ([, show]) => show(one.referenced)],
    ], FACTS))),
];

const FACTS = [
  ["Source", (one) => one.source],
  ["Type", (one) => one.data_type],
  ["Rows", (one) => number(one.row_count)],
  ["of these NULL", (one) => number(one.null_count)],
  ["Distinct values", (one) => number(one.distinct_count)],
  ["Unique", (one) => (one.is_unique === null ? "not known" : one.is_unique ? "yes" : `no, ${counted(one.repeated_count, "value")} repeat`)],
  ["Kept current", (one) => (one.stale_since === null ? "yes" : `not since version ${one.stale_since}`)],
];

/** Find a pair among the candidates for foreign keys that were found last, with its evidence. */
async function candidateOf({ pair: one, refreshes }) {
  if (!refreshes.items.some((each) => each.method === "combined")) return null;
  const [schema, name] = one.dependent.parts;
  const { items } = await getPages(path("/api/v1/foreign-keys", { schema, table: name, limit: 1000 }));
  const wanted = keyOf({ dependent: [one.dependent.parts], referenced: [one.referenced.parts] });
  if (!items.some((each) => keyOf(each) === wanted)) return null;
  return get(path("/api/v1/foreign-keys/evidence", { dependent: `id:${one.dependent.attribute_id}`, referenced: `id:${one.referenced.attribute_id}` }));
}

/** Say how a contract of the pair stands, or offer to make one. */
function watched(one, contracts, act) {
  const [found] = contracts.items;
  if (found) return h("p", {}, badge({ held: "good", violated: "bad" }[found.state] ?? "idle", `contract ${found.state}`), ` of at least ${percent(found.least_coefficient)}, by ${found.created_by}`);
  return h("p.choice", {}, h("button", { type: "button", onclick: () => act(() => watch(one), "It is watched as a contract now.") }, "Watch it as a contract"));
}

const watch = (one) => post("/api/v1/contracts", { dependent: [one.dependent.parts], referenced: [one.referenced.parts], created_by: "dashboard" });
