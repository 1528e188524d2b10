// Owns the view of transitions: what appeared and what broke, newest first, live.

import { h } from "./dom.js";
import { getAll, path } from "./api.js";
import { to } from "./format.js";
import { empty, pages, transition } from "./parts.js";

const KINDS = [["all", ""], ["broke", "broke"], ["appeared", "appeared"]];

export const timeline = {
  title: "Timeline",
  isOfVersion: true,
  load: ({ kind, cursor }) => getAll({ changes: path("/api/v1/changes", { newest_first: true, limit: 50, kind, cursor }) }),
  show: ({ changes }, parameters) => [
    h("h1", {}, "Timeline"),
    h("p.muted", {}, "Inclusion dependencies that appeared or broke, with the value that did it and its place in the feed."),
    h("p.choice", {}, KINDS.map(([name, kind]) =>
      h("a.button", { href: to("timeline", { kind }), "aria-current": (parameters.kind ?? "") === kind && "true" }, name))),
    changes.items.length ? h("ul.transitions", {}, changes.items.map(transition)) : empty("There are none."),
    pages("timeline", parameters, changes),
  ],
};
