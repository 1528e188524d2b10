// Owns the views of corpora: all of them, and one with its refreshes, its changes and what could not be read.

import { get, getAll, path, post } from "./api.js";
import { h } from "./dom.js";
import { ago, counted, duration, number, percent, plain, to } from "./format.js";
import { badge, card, empty, expectedEnd, pages, progress, table } from "./parts.js";

const LEVELS = { queued: "idle", running: "warn", landed: "good", failed: "bad", cancelled: "idle" };
const SHOWN = 20;

const base = (corpus) => `/api/v1/corpora/${encodeURIComponent(corpus)}`;
const at = (refresh) => `${base(refresh.corpus)}/refreshes/${refresh.refresh_id}`;
const isOpen = (refresh) => refresh.state === "queued" || refresh.state === "running";

export const corpora = {
  title: "Corpora",
  load: async ({ corpus, cursor, refresh }) => {
    if (!corpus) return getAll({ page: path("/api/v1/corpora", { limit: 50, cursor }) });
    const answers = await getAll({
      detail: base(corpus),
      refreshes: path(`${base(corpus)}/refreshes`, { limit: SHOWN, cursor }),
      ...(refresh && { faults: path(`${base(corpus)}/refreshes/${encodeURIComponent(refresh)}/faults`, { limit: 100 }) }),
    });
    const hasChanges = answers.detail.generations.length > 1;
    return { ...answers, changes: hasChanges ? await get(path(`${base(corpus)}/changes`, { limit: SHOWN })) : null };
  },
  show: (answers, parameters, act) => (parameters.corpus ? one(answers, parameters, act) : all(answers, parameters)),
};

function all({ page }, parameters) {
  return [
    h("h1", {}, "Corpora"),
    h("p.muted", {}, "Bodies of many small tables, whose inclusion dependencies are found anew by each refresh."),
    page.items.length === 0
      ? empty("There are none: ", h("code", {}, "subsetd corpus add NAME FOLDER"), " registers one.")
      : h("section.card", {}, table("Corpora", [
        ["Corpus", (each) => h("a", { href: to("corpora", { corpus: each.name }) }, each.name)],
        ["Refresh", (each) => standing(each)],
        ["Generation", (each) => plain(each.generation), "right"],
        ["Place", (each) => h("span.mono", {}, each.location)],
        ["Schedule", (each) => (each.schedule ? h("span.mono", {}, each.schedule) : "by hand")],
      ], page.items, (each) => each.name)),
    pages("corpora", parameters, page),
  ];
}

const standing = (found) => (found?.state
  ? [badge(found.fault && found.state !== "failed" ? "warn" : LEVELS[found.state], found.state), " ", found.ended_at && ago(found.ended_at)]
  : badge("idle", "never"));

function one({ detail, refreshes, changes, faults }, parameters, act) {
  const { corpus } = parameters;
  const ask = (full) => act(() => post(`${base(corpus)}/refreshes`, { full }));
  const open = refreshes.items.filter(isOpen);
  return [
    h("p.muted", {}, h("a", { href: to("corpora") }, "Corpora"), " ›"),
    h("h1", {}, detail.name),
    h("p.muted", {}, h("span.mono", {}, detail.location), ` · ${detail.kind} · `, detail.schedule ? ["at ", h("span.mono", {}, detail.schedule), " (UTC)"] : "by hand"),
    detail.counts && h("dl.tiles", {}, [
      ["Tables", detail.counts.tables], ["Columns", detail.counts.columns], ["Inclusion dependencies", detail.counts.inds],
    ].map(([name, count]) => h("div.tile", {}, h("dt", {}, name), h("dd.big", {}, number(count)), h("dd.muted", {}, `in generation ${detail.generation}`)))),
    h("p.choice", {},
      h("button.primary", { type: "button", onclick: () => ask(false), disabled: open.some((each) => each.state === "queued") }, "Refresh"),
      h("button", { type: "button", onclick: () => ask(true), disabled: open.some((each) => each.state === "queued") }, "Read all anew"),
      detail.generation !== null && h("a.button", { href: to("graph", { corpus }) }, "Graph")),
    card("Refreshes", refreshes.items.length
      ? h("ul.refreshes", {}, refreshes.items.map((each) => refreshed(each, parameters, act)))
      : empty("There was none.")),
    pages("corpora", parameters, refreshes),
    faults && card(`What refresh ${parameters.refresh} could not read`,
      faults.items.length ? table("Faults", [["File", (each) => h("span.mono", {}, each.path)], ["Why", (each) => each.message]], faults.items, (each) => each.path) : empty("It could read everything."),
      faults.next_cursor && h("p.muted", {}, "These are the first 100.")),
    detail.generation !== null && card("What changed since the generation before",
      changes === null || changes.items.length === 0 ? empty(changes === null ? "There is no generation before." : "Nothing.") : [
        table("Changes", [
          ["Change", (each) => badge(each.kind === "appeared" ? "good" : "bad", each.kind)],
          ["Dependent", (each) => column(each.dependent)],
          ["Referenced", (each) => column(each.referenced)],
          ["Values in both", (each) => number(each.overlap), "right"],
        ], changes.items),
        changes.next_cursor && h("p.muted", {}, "These are the first ", SHOWN, "; ", h("code", {}, `subsetd corpus changes ${corpus}`), " lists all."),
      ]),
  ];
}

const column = (one) => [h("span.mono", {}, one.table), " · ", one.name, h("span.muted", {}, ` (${one.position})`)];

function refreshed(one, parameters, act) {
  const { report } = one;
  const facts = report && [
    "tables" in report && counted(report.tables, "table"), "inds" in report && counted(report.inds, "IND"),
    "appeared" in report && `${number(report.appeared)} appeared`, "went" in report && `${number(report.went)} went`,
  ].filter(Boolean).join(" · ");
  const faults = report?.files?.faults;
  const cancel = () => act(() => post(`${at(one)}/cancel`, {}));
  return h("li", { "data-key": one.refresh_id },
    h("p", {}, badge(LEVELS[one.state], one.cancel_requested && isOpen(one) ? "ends" : one.state), h("strong", {}, ` Refresh ${one.refresh_id}`), one.full && " (everything anew)",
      h("span.muted", {}, ` by ${one.requested_by}, `, ago(one.queued_at), one.started_at && one.ended_at && `, took ${duration((Date.parse(one.ended_at) - Date.parse(one.started_at)) / 1000)}`),
      isOpen(one) && [" ", h("button", { type: "button", onclick: cancel, disabled: one.cancel_requested, "aria-label": `Cancel refresh ${one.refresh_id}` }, "Cancel")]),
    one.state === "running" && h("div.progress", {},
      h("p.muted", {}, one.stage ?? "begins", one.total ? `: ${number(one.done)} of ${number(one.total)} (${percent(one.done / one.total)})` : "",
        expectedEnd(one)),
      progress(`Refresh ${one.refresh_id}: ${one.stage ?? "begins"}`, one.done, one.total)),
    one.fault && h("p.fault", {}, one.fault),
    facts && h("p.muted", {}, facts, faults > 0 && [" · ", h("a", { href: to("corpora", { ...parameters, refresh: one.refresh_id }) }, counted(faults, "fault"))]));
}
