// Owns the view of foreign keys: what looks like one, why, and what was decided of it.

import { get, getAll, isFoundAnew, path, post, whoAsks } from "./api.js";
import { h } from "./dom.js";
import { keyOf, number, percent, plain, scored, side, to } from "./format.js";
import { keep, kept } from "./kept.js";
import { badge, card, empty, pages, table } from "./parts.js";

const NAME = "subsetd-name";
const VERDICTS = { accept: ["good", "accepted"], reject: ["bad", "rejected"], pin: ["warn", "pinned"] };

const FORMATS = [["sql", "SQL"], ["dbt", "dbt"], ["mermaid", "Mermaid"], ["graphml", "GraphML"], ["csv", "CSV"], ["json", "JSON"]];

const listed = ({ all, cursor }) => path("/api/v1/foreign-keys", { suggested: !all, limit: 50, cursor });

/** Ask for a page; where the candidates were found anew since the one before it, go to the first, if the address is still that of the page. */
async function candidates(parameters, hash) {
  try {
    return await get(listed(parameters));
  } catch (error) {
    if (!isFoundAnew(error)) throw error;
    const first = { ...parameters, cursor: null };
    if (location.hash === hash) location.replace(to("foreign-keys", first));
    return get(listed(first));
  }
}

export const foreignKeys = {
  title: "Foreign keys",
  load: async (parameters) => {
    const { hash } = location;
    const answers = await getAll({ work: "/api/v1/foreign-keys/refreshes/at-work", refreshes: "/api/v1/foreign-keys/refreshes" });
    const isFound = answers.refreshes.items.some((one) => one.method === "combined");
    const { name, csrf_token: token } = await whoAsks();
    return { ...answers, page: isFound ? await candidates(parameters, hash) : null, key: token === null ? null : name };
  },
  show: ({ page, work, key }, parameters, act) => {
    const find = () => act(() => post("/api/v1/foreign-keys/refreshes", {}));
    const { finding } = work;
    return [
      h("h1", {}, "Foreign keys"),
      h("p.muted", {}, "Inclusion dependencies that look as if they were meant, likeliest first. What is accepted is watched as a contract."),
      h("p.choice", {},
        [["suggested", null], ["all candidates", "1"]].map(([name, all]) =>
          h("a.button", { href: to("foreign-keys", { all }), "aria-current": (parameters.all ?? null) === all && "true" }, name)),
        h("button", { type: "button", onclick: find, disabled: finding !== null }, page === null ? "Find foreign keys" : "Find anew"),
        key === null && h("label", {}, "Your name ", h("input", { id: "decided-by", value: kept(NAME) ?? "", maxlength: "200", autocomplete: "name", oninput: (event) => keep(NAME, event.target.value) }))),
      key !== null && h("p.muted", {}, "What you decide is kept with the name of your key, ", h("strong", {}, key), "."),
      finding && h("p.notice", {}, `Finding, by ${finding.method}: ${finding.stage}, ${number(finding.done)}${finding.total === null ? "" : ` of ${number(finding.total)}`} `,
        h("button", { type: "button", onclick: () => act(() => post("/api/v1/foreign-keys/refreshes/at-work/cancel", {})) }, "Cancel")),
      page === null ? empty("None was looked for yet.") : page.items.length === 0 ? empty("There are none.")
        : h("section.card", {}, table("Candidates", [
          ["Score", (one) => h("strong", {}, scored(one.score)), "right"],
          ["Foreign key", (one) => [h("span.mono", {}, side(one.dependent)), " → ", h("span.mono", {}, side(one.referenced)),
            one.against.length > 0 && h("ul.against", {}, one.against.map((text) => h("li", {}, text)))]],
          ["Coefficient", (one) => percent(one.coefficient), "right"],
          ["Kind", (one) => one.cardinality],
          ["Evidence", (one) => one.dependent.length === 1 && h("a", { href: to("pair", { dependent: side(one.dependent), referenced: side(one.referenced) }), "aria-label": `show evidence of ${side(one.dependent)} in ${side(one.referenced)}` }, "show")],
          ["Decided", (one) => (one.verdict ? badge(...VERDICTS[one.verdict]) : "–")],
          ["Decide", (one) => h("span.pages", {}, [["accept", "Accept"], ["reject", "Reject"]].map(([verdict, text]) =>
            h("button", { type: "button", disabled: one.verdict === verdict, onclick: () => act(() => decide(one, verdict)), "aria-label": `${text} ${side(one.dependent)} to ${side(one.referenced)}` }, text)))],
        ], page.items, keyOf)),
      card("Export", h("p.choice", {}, [["accepted", null], ["accepted and suggested", "1"]].filter(([, more]) => !more || page !== null).map(([name, more]) =>
        h("a.button", { href: to("foreign-keys", { ...parameters, more }), "aria-current": (parameters.more ?? null) === more && "true" }, name))),
      h("p.choice", {}, FORMATS.map(([format, text]) =>
        h("a.button", { href: path("/api/v1/foreign-keys/export", { format, method: parameters.more && "combined" }), download: `foreign-keys.${format}` }, text)))),
      page && h("p.muted", {}, `Found in version ${plain(page.version)}.`),
      page && pages("foreign-keys", parameters, page),
    ];
  },
};

/** Keep a decision; of another one that came since the page was shown the service tells, and it is not overruled unseen. */
function decide(one, verdict) {
  const decided_by = kept(NAME)?.trim() || "dashboard";
  const seen = one.verdict ?? "undecided";
  return post("/api/v1/foreign-keys/decisions", { dependent: one.dependent, referenced: one.referenced, verdict, decided_by, seen });
}
