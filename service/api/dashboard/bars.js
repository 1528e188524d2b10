// Owns the chart of bars by minute.

import { s, h } from "./dom.js";
import { number } from "./format.js";

const WIDTH = 600, HEIGHT = 120, MINUTES = 30;

/** Draw a bar for each minute, of parts stacked: `series` are [name, class, (minute) => count]. */
export function bars(title, minutes, series) {
  const totals = minutes.map((minute) => series.reduce((sum, [, , count]) => sum + count(minute), 0));
  const most = Math.max(...totals, 1);
  const step = WIDTH / MINUTES, offset = MINUTES - minutes.length;
  const drawn = minutes.flatMap((minute, i) => {
    let from = HEIGHT;
    return series.filter(([, , count]) => count(minute) > 0).map(([name, kind, count]) => {
      const height = Math.max((count(minute) / most) * (HEIGHT - 8), 2);
      from -= height;
      return s("rect", { class: kind, x: (i + offset) * step + 2, y: from, width: step - 4, height, rx: 2 },
        s("title", {}, `${clock(minute.begin)}: ${number(count(minute))} ${name}`));
    });
  });
  const sums = series.map(([name, , count]) => `${number(minutes.reduce((sum, minute) => sum + count(minute), 0))} ${name}`);
  return h("figure", {},
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${sums.join(", ")} in ${minutes.length} minutes`, preserveAspectRatio: "none" },
      s("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "axis" }), drawn),
    h("figcaption", {}, h("span", {}, `${MINUTES} min ago`), h("span", {}, "most in a minute: ", number(Math.max(...totals, 0))), h("span", {}, "now")),
    h("p.legend", {}, series.map(([name, kind], i) => [h(`span.key.${kind}`, { "aria-hidden": "true" }), sums[i], " "])));
}

const clock = (iso) => new Date(iso).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
