// Owns the view of watches: who is told of what, what was told, what is kept silent, and which loads are waited for.

import { getAll, now, path, post, remove } from "./api.js";
import { h } from "./dom.js";
import { ago, counted, duration, number, plain, stamp, to } from "./format.js";
import { badge, card, empty, pages, sure, table } from "./parts.js";

const PATH = "/api/v1/watches";
const STATES = { pending: ["warn", "on its way"], delivered: ["good", "delivered"], failed: ["bad", "failed"], silenced: ["idle", "silenced"] };
const KINDS = { fired: ["bad", "fired"], resolved: ["good", "resolved"], test: ["idle", "test"] };
const CHANNELS = [["webhook", "Webhook"], ["slack", "Slack"], ["email", "Mail"], ["kafka", "Topic"]];
const HOUR = 3_600_000;

export const watches = {
  title: "Watches",
  load: ({ cursor, after }) => getAll({
    page: path(PATH, { limit: 50, cursor: after }),
    alerts: path(`${PATH}/alerts`, { limit: 20, cursor }),
    silences: `${PATH}/silences`,
    loads: `${PATH}/loads`,
  }),
  show: ({ page, alerts, silences, loads }, parameters, act) => [
    h("h1", {}, "Watches"),
    h("p.muted", {}, "Who is told when something turns. All kinds of rules, silences by pattern and announced loads: ", h("code", {}, "subsetd watch --help"), "."),
    page.items.length === 0 ? empty("There are none.") : h("section.card", {}, table("Watches", [
      ["Watch", (one) => h("strong", {}, one.name)],
      ["Tells when", (one) => one.says],
      ["Now", (one) => badge(one.bad ? "bad" : "good", one.bad ? `${number(one.bad)} so` : "not so")],
      ["Channel", (one) => [one.channel.kind, " ", h("span.mono", {}, one.channel.url ?? one.channel.topic ?? one.channel.to.join(", "))]],
      ["Waits", (one) => (one.debounce_seconds ? duration(one.debounce_seconds) : "not")],
      ["Do", (one) => h("span.pages", {},
        button(`Test ${one.name}`, "Test", () => act(() => post(`${PATH}/${one.watch_id}/test`, {}), "A test is on its way; the history below tells what became of it.")),
        button(`Silence ${one.name} for an hour`, "Silence", () => act(() => silence(one), "It is silent for an hour.")),
        button(`Remove ${one.name}`, "Remove", () => sure(`Remove the watch ${one.name}?`, "Remove it", () => act(() => remove(`${PATH}/${one.watch_id}`), `${one.name} is gone.`))))],
    ], page.items, (one) => one.watch_id)),
    (parameters.after || page.next_cursor) && h("p.pages", {}, parameters.after && turned(parameters, "First watches", null), " ", page.next_cursor && turned(parameters, "More watches", page.next_cursor)),
    form(parameters, act),
    card("What was told", [alerts.items.length ? h("ul.transitions", {}, alerts.items.map(told)) : empty(parameters.cursor ? "Nothing on this page." : "Nothing yet."),
      pages("watches", parameters, alerts)]),
    h("div.columns", {},
      card("Silences", listed(silences.items, (one) => one.silence_id, (one) => [
        h("p.what", {}, one.watch_id === null ? h("span.mono", {}, one.pattern) : `watch ${plain(one.watch_id)}`, " until ", stamp(one.until), " ",
          button(`End silence ${one.silence_id}`, "End", () => act(() => remove(`${PATH}/silences/${one.silence_id}`), "It has ended."))),
        h("p.why", {}, one.reason, ` · ${one.created_by}`)])),
      card("Loads that are waited for", listed(loads.items, (one) => one.load_id, (one) => h("p.what", {},
        h("span.mono", {}, one.table === null ? one.schema : `${one.schema}.${one.table}`), one.until_loaded ? " until it is loaded, at the latest " : " until ", stamp(one.until), " ",
        button(`Load ${one.load_id} has ended`, "Has ended", () => act(() => remove(`${PATH}/loads/${one.load_id}`), "It has ended.")))))),
  ],
};

const turned = (parameters, text, after) => h("a.button", { "data-key": text, href: to("watches", { ...parameters, after }) }, text);

const button = (label, text, onclick) => h("button", { type: "button", "aria-label": label, onclick }, text);

const listed = (all, key, show) => {
  const active = all.filter((one) => one.is_active);
  return active.length === 0 ? empty("There are none.") : h("ul.transitions", {}, active.map((one) => h("li", { "data-key": key(one) }, show(one))));
};

/** Show an alert: what it says, and what became of it. */
const told = (one) => h(`li.transition.${one.kind === "fired" ? "bad" : "good"}`, { "data-key": one.alert_id },
  h("p.what", {}, badge(...KINDS[one.kind]), " ", h("strong", {}, one.watch), " · ", one.body.summary),
  h("p.why", {}, badge(...STATES[one.state]), " ", one.attempts > 1 && `${counted(one.attempts, "attempt")} · `, one.fault && [one.fault, " · "],
    "version ", one.version, " · ", ago(one.created_at)));

/** Ask for a watch of one pair, or of all that a pattern matches. */
const form = ({ dependent = "", referenced = "" }, act) => h("form.card.ask", { onsubmit: (event) => { event.preventDefault(); return act(() => add(event.target), "It is watched from now on."); } },
  h("h2", {}, "Tell me when an inclusion dependency breaks"),
  field("dependent", "Dependent column", { required: true, value: dependent, placeholder: "schema.table.column, * is any text" }),
  field("referenced", "Referenced column", { required: true, value: referenced, placeholder: "schema.table.column, * is any text" }),
  field("name", "Name of the watch", { required: true, maxlength: "200", value: dependent && `${dependent} ⊆ ${referenced}`.slice(0, 200) }),
  h("label", {}, "Tell by", h("select", { name: "kind" }, CHANNELS.map(([kind, text]) => h("option", { value: kind }, text)))),
  field("place", "Address, or topic", { required: true, maxlength: "2000", placeholder: "of a webhook, of mail, or a name", autocomplete: "off" }),
  field("debounce", "Once it has stood for so many seconds", { type: "number", min: "0", max: "86400", value: "30", required: true }),
  h("p.pages", {}, h("button.primary", {}, "Watch")));

const field = (name, text, attributes) => h("label", {}, text, h("input", { name, ...attributes }));

async function add(element) {
  const { name, dependent, referenced, kind, place, debounce } = Object.fromEntries(new FormData(element));
  const address = { webhook: { url: place }, slack: { url: place }, email: { to: [place] }, kafka: { topic: place } }[kind];
  await post(PATH, { name, rule: { kind: "ind", dependent, referenced }, channel: { kind, ...address }, debounce_seconds: Number(debounce), created_by: "dashboard" });
  element.reset(); // an address may be a secret
}

const silence = (one) => post(`${PATH}/silences`, { watch_id: one.watch_id, until: new Date(now() + HOUR).toISOString(), reason: "from the dashboard", created_by: "dashboard" });
