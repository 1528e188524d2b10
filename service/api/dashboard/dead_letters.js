// Owns the view of dead letters: records that were set aside, why, and how they are tried again.

import { getAll, path } from "./api.js";
import { h } from "./dom.js";
import { ago, number } from "./format.js";
import { empty, pages } from "./parts.js";

export const deadLetters = {
  title: "Dead letters",
  load: ({ cursor }) => getAll({ letters: path("/api/v1/dead_letters", { limit: 50, cursor }) }),
  show: ({ letters }, parameters) => [
    h("h1", {}, "Dead letters"),
    h("p.muted", {}, "Records of the feeds that could not be applied and were set aside, oldest first. ", h("code", {}, "subsetd dead-letters retry ID"), " tries one again, ", h("code", {}, "drop ID"), " forgets it."),
    letters.items.length === 0 && empty("There are none."),
    letters.items.map((one) => h("section.card", { "data-key": one.dead_letter_id },
      h("h2", {}, `${number(one.dead_letter_id)} · ${one.error_class} `, h("span.muted", {}, ago(one.created_at))),
      h("p", {}, one.message),
      h("p.muted.mono", {}, `${one.feed} · ${one.topic} / ${one.partition} @ ${one.record_offset}`),
      h("details", {}, h("summary", {}, `The record${one.is_cut ? ", its beginning" : ""}`), h("pre", { tabindex: "0" }, one.record)))),
    pages("dead-letters", parameters, letters),
  ],
};
