// Owns the first view: how everything is at a glance, and what broke last.

import { getAll } from "./api.js";
import { h } from "./dom.js";
import { ago, counted, duration, number, percent, plain, short, to } from "./format.js";
import { badge, card, empty, expectedEnd, progress, transition } from "./parts.js";
import { bars } from "./bars.js";

export const overview = {
  title: "Overview",
  isOfVersion: true,
  load: () => getAll({ now: "/api/v1/overview", bootstraps: "/api/v1/bootstraps" }),
  show: ({ now, bootstraps }) => [
    h("h1", {}, "Overview"),
    now.version === 0 && h("p.notice", {}, "Nothing was read yet: run ", h("code", {}, "subsetd bootstrap FOLDER --name NAME"), "."),
    bootstraps.items.length > 0 && card("Bootstraps", h("ul.refreshes", {}, bootstraps.items.map(run))),
    tiles(now),
    h("div.columns", {},
      card("Broke last",
        now.broken.length ? h("ul.transitions", {}, now.broken.map(transition)) : empty("No inclusion dependency has broken."),
        h("p", {}, h("a", { href: to("timeline") }, "All transitions"))),
      card("Health", h("ul.health", {}, health(now).map(([level, name, ...text]) => h("li", {}, badge(level, name), h("span", {}, text)))))),
    h("div.columns", {},
      card("Transitions a minute", bars("Transitions a minute", now.minutes, [
        ["appeared", "good", (one) => one.appeared], ["broke", "bad", (one) => one.broke]])),
      card("Changes a minute", bars("Changes a minute", now.minutes, [["changes", "accent", (one) => one.changes]]))),
  ],
};

const RUNS = { running: ["warn", "runs"], failed: ["bad", "failed"], gone: ["bad", "died"] };

/** Show how far a bootstrap is, or that it did not come to its end; what is served is as before it. */
const run = (one) => h("li", { "data-key": one.source_name },
  h("p", {}, badge(...RUNS[one.state]), h("strong", {}, ` ${one.source_name}`), h("span.muted", {}, ", begun ", ago(one.started_at), one.state === "gone" && [", heard of last ", ago(one.progressed_at)])),
  h("p.muted", {}, one.stage, one.total ? `: ${number(one.done)} of ${number(one.total)} (${percent(one.done / one.total)})` : "",
    expectedEnd(one)),
  one.state === "running" && h("div.progress", {}, progress(`${one.source_name}: ${one.stage}`, one.done, one.total)),
  one.fault && h("p.fault", {}, one.fault));

function tiles(now) {
  const minute = now.minutes.at(-1);
  const lag = now.lag_unit === null ? ["–", "no consumer in this process"]
    : now.lag_records === null ? ["–", `not known${now.lag_seconds ? ` for ${duration(now.lag_seconds)}` : ""}: its feed does not tell`]
    : [short(now.lag_records), `${now.lag_unit} behind ${now.lag_seconds ? `for ${duration(now.lag_seconds)}` : "the feed's end"}`];
  return h("dl.tiles", {}, [
    ["State version", plain(now.version), ["committed ", ago(now.committed_at)]],
    ["Changes a second", number(now.changes_per_second), "in the last 10 seconds"],
    ["Lag", ...lag],
    ["Freshness", now.freshness_seconds === null ? "–" : duration(now.freshness_seconds), "from the source to the answer"],
    ["Transitions", number(minute.appeared + minute.broke), `this minute: ${minute.appeared} appeared, ${minute.broke} broke`],
    ["Inclusion dependencies", short(now.counts.uinds), `of ${counted(now.counts.attributes, "column")} in ${counted(now.counts.tables, "table")}`],
  ].map(([name, value, ...more]) => h("div.tile", {}, h("dt", {}, name), h("dd.big", {}, value), h("dd.muted", {}, more))));
}

/** Tell of the corpora that are not listed: those at fault come first, so that mostly none of these is. */
function beyond({ corpora, corpora_beyond: others, corpora_at_fault: all }) {
  if (others === 0) return [];
  const faults = Math.max(all - corpora.length, 0);
  return [[faults ? "bad" : "good", "corpora", "and ", h("a", { href: to("corpora") }, counted(others, "other")), faults > 0 ? `, ${number(faults)} of them at fault` : " without a fault"]];
}

/** Tell of each part how it is: [level, name, ...text]. */
export function health(now) {
  const { contracts, audit, counts } = now;
  const link = (view, text) => h("a", { href: to(view) }, text);
  return [
    ...now.checks.map((one) => [one.ok ? "good" : "bad", one.name, one.detail]),
    ...now.feeds.map((one) => [one.fault ? "bad" : one.paused_at || !one.is_followed ? "warn" : "good", "feed", one.feed, ": ", !one.is_followed && "nobody follows it, ",
      one.paused_at ? ["paused ", ago(one.paused_at)] : one.version === null ? "nothing of it was applied yet" : `${counted(one.partitions, "partition")}, moved in version ${one.version}`,
      one.fault && [". Its consumer said ", ago(one.fault_at), ": ", one.fault]]),
    [contracts.violated ? "bad" : "good", "contracts", `${contracts.held} held, ${contracts.violated} violated, ${contracts.unknown} unknown`],
    [counts.dead_letters ? "warn" : "good", "dead letters", link("dead-letters", counted(counts.dead_letters, "record")), " set aside"],
    audit === null ? ["idle", "audit", "none was made: ", h("code", {}, "subsetd audit")]
      : [audit.differences ? "bad" : "good", "audit", link("audits", counted(audit.differences, "difference")), " at version ", audit.version, ", ", ago(audit.ended_at)],
    ...now.corpora.map((one) => [
      one.state === "failed" ? "bad" : one.fault ? "warn" : one.generation === null ? "idle" : "good", "corpus",
      h("a", { href: to("corpora", { corpus: one.corpus }) }, one.corpus), ": ", one.state === null ? "never refreshed" : one.state,
      one.ended_at && [" ", ago(one.ended_at)], one.fault && [": ", one.fault]]),
    ...beyond(now),
  ];
}
