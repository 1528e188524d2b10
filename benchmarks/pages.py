"""Own what pages show of the results: figures with a goal, the papers' beside ours, plots of how all grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import growth_page, results_file

ROOT = Path(__file__).parent.parent
OURS, PAPERS = "accesses to gen_rec", "the paper's accesses"
BEGIN, END = "<!-- benchmarks -->\n", "\n<!-- /benchmarks -->"

HEADLINES: tuple[tuple[str, str, str | None], ...] = (
    ("bootstrap-tpch", "stored and indexed", None),
    ("live-lineitem", "inserts", "the paper's algorithms, tuple by tuple"),
    ("live-lineitem", "inserts", "bare COPY and MERGE"),
    ("freshness", "p99 from Kafka to the API", None),
    ("feed-postgres", "p99 from commit to the API", None),
    ("recovery", "longest", None),
    ("consumer-memory", "peak of the consumer", None),
    ("million-clusters", "the consumer, tables of 5 columns", None),
    ("many-records", "100,000,000 records: the consumer's memory", None),
    ("follow-spark", "inserts", "the single consumer"),
    ("many-webtables", "x8: CPU, rarest-first", None),
    ("many-growth-whole", "1,398,105 tables, the paper's filters: a refresh from JSON lines", None),
    ("sketch-build", "sketched and stored", None),
    ("estimator-coverage", "as kept, `estimated`: covered", None),
    ("fk-tpc", "TPC-H: F1, combined", None),
    ("fk-evaluate", "keys declared: F1 over all, combined", None),
    ("fk-composite", "F1 of what is suggested", None),
    ("fk-cost", "1,000 columns: ranked candidates with evidence", None),
    ("mate-speed", "a search, beside joins in SQL", None),
    ("mate-latency", "99 % of searches take at most", None),
    ("api-load", "in transactions: p99 of a 304", None),
    ("sse", "clients that saw every transition once and in order", None),
    ("dashboard-weight", "first view: shown after", None),
)
"""What a stranger is shown first: row, metric, baseline."""


def write(objects: Sequence[dict[str, Any]], root: Path = ROOT) -> None:
    """Put the results into the pages; what is between the marks of each is replaced, and plots are drawn anew."""
    for name, svg in growth_page.plots(objects).items():
        (root / name).write_text(svg, "utf-8")
    for name, text in made(objects).items():
        path = root / name
        before, rest = path.read_text("utf-8").split(BEGIN)
        path.write_text(before + BEGIN + text + END + rest.split(END, 1)[1], "utf-8")


def made(objects: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Give what belongs between the marks, by page."""
    judged = results_file.goals_met(objects)
    return {
        "README.md": _headlines(objects, judged),
        "docs/benchmarks.md": results_file.markdown_table(judged),
        "docs/papers.md": _incremental(objects) + "\n\n" + _many(objects),
        "docs/growth.md": growth_page.table(objects),
    }


def _headlines(objects: Sequence[dict[str, Any]], judged: Sequence[dict[str, Any]]) -> str:
    """Show some figures of all parts, and how many of all that have a goal miss it."""
    table = results_file.markdown_table(results_file.one(objects, *headline) for headline in HEADLINES)
    missed = [one["row"] for one in judged if not one["holds"]]
    where = ", ".join(f"{missed.count(row)} of `{row}`" for row in dict.fromkeys(missed)) or "none"
    return f"{table}\n\nOf {len(judged)} figures with a goal {len(missed)} miss it: {where}."


def _incremental(objects: Sequence[dict[str, Any]]) -> str:
    """Set the tables of Incremental Discovery of Inclusion Dependencies (2017) beside TPC-H SF 1."""

    def of(row: str, metric: str, baseline: str | None = None) -> dict[str, Any]:
        return results_file.one(objects, row, metric, baseline)

    lines = ["| TPC-H SF 1 | the paper | its algorithms, here | subsetd |", "| --- | ---: | ---: | ---: |"]
    for kind, theirs in (("inserts", "99.987 %"), ("deletes", "99.984 %")):
        here, ours = (1 - of("live-lineitem", f"{kind}: {whose}")["ratio"] for whose in (PAPERS, OURS))
        what = f"Table 4: accesses to the generator that caches save, {kind}"
        lines.append(f"| {what} | {theirs} | {100 * here:.0f} % | {100 * ours:.0f} % |")
    for kind, milliseconds in (("inserts", 34), ("deletes", 54)):
        rate = of("live-lineitem", kind, "the paper's algorithms, tuple by tuple")
        here, ours = 1000 / rate["baseline_value"], 1000 / rate["value"]
        lines.append(f"| Table 5: ms a tuple, {kind} | {milliseconds} | {here:.2f} | {ours:.3f} |")
    anew = of("bootstrap-tpch", "clusters only")
    beside = f"{anew['baseline_value']:.1f} ({anew['baseline']})"
    lines.append(f"| Table 5: s for finding all anew | 424 (S-INDD) | {beside} | {anew['value']:.1f} |")
    for even in objects:
        if even["row"] == "break-even" and even["metric"].startswith("inserts that take"):
            how = even["metric"].rpartition(", ")[2]
            lines.append(f"| inserts that take as long as that, {how} | {424 / 0.034:,.0f} | | {even['value']:,.0f} |")
    attributes, clusters, values = (
        of("bootstrap-tpch", what)["value"] for what in ("attributes", "clusters", "values")
    )
    for what, theirs, count in (("values", "4.39 × 10^10", values), ("clusters", "4.69 × 10^5", clusters)):
        lines.append(f"| Table 6: intersections over {what} | {theirs} | | {_power(attributes**2 * count)} |")
    return "\n".join(lines)


def _many(objects: Sequence[dict[str, Any]]) -> str:
    """Set Table 5 of Detecting Inclusion Dependencies on Very Many Tables (2017) beside a made corpus of its size."""
    name = "1,398,105 tables, the paper's filters: a refresh from JSON lines"
    columns, inds, seconds, memory = (
        results_file.one(objects, "many-growth-whole", metric)["value"]
        for metric in (f"{name}, columns", f"{name}, INDs", name, f"{name}, memory of driver and workers")
    )
    ours = f"{columns:,.0f} | {inds:,.0f} | {seconds:,.0f} | 2 | {memory:.1f}"
    return "\n".join(
        [
            "| 1,398,105 tables, all filters | columns | INDs | s | cores | GB |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            "| Table 5: MANY, WikiTables | 7,470,443 | 5,056,820 | 7,867 | 16 threads | 120 |",
            f"| subsetd, a made corpus, from JSON lines to served INDs | {ours} |",
        ]
    )


def _power(number: float) -> str:
    digits, _, exponent = f"{number:.2e}".partition("e")
    return f"{digits} × 10^{int(exponent)}"
