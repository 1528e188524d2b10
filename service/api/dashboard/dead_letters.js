// Owns the view of dead letters: records that were set aside, why, and how they are tried again.

import { getAll, path, post, Refusal } from "./api.js";
import { h } from "./dom.js";
import { ago, plain } from "./format.js";
import { empty, pages } from "./parts.js";

export const deadLetters = {
  title: "Dead letters",
  load: ({ cursor }) => getAll({ letters: path("/api/v1/dead_letters", { limit: 50, cursor }) }),
  show: ({ letters }, parameters, act) => [
    h("h1", {}, "Dead letters"),
    h("p.muted", {}, "Records of the feeds that could not be applied and were set aside, oldest first. ", "A consumer that runs hands the state over while one is tried again. ", h("code", {}, "subsetd dead-letters drop ID"), " forgets one."),
    letters.items.length === 0 && empty("There are none."),
    letters.items.map((one) => h("section.card", { "data-key": one.dead_letter_id },
      h("h2", {}, `${plain(one.dead_letter_id)} · ${one.error_class} `, h("span.muted", {}, ago(one.created_at))),
      h("p", {}, one.message),
      h("p", {}, h("button", { type: "button", onclick: () => act(() => retry(one), `Record ${one.dead_letter_id} is applied, or was already.`), "aria-label": `Try again record ${one.dead_letter_id}` }, "Try again")),
      h("p.muted.mono", {}, `${one.feed} · ${one.topic} / ${one.partition} @ ${one.record_offset}`),
      h("details", {}, h("summary", {}, `The record${one.is_cut ? ", its beginning" : ""}`), h("pre", { tabindex: "0" }, one.record)))),
    pages("dead-letters", parameters, letters),
  ],
};

async function retry(one) {
  const { outcome } = await post(`/api/v1/dead_letters/${one.dead_letter_id}/retry`, {});
  if (outcome === "set_aside") throw new Refusal(200, `Record ${one.dead_letter_id} failed once more.`);
}
