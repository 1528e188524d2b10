"""Own the page that shows how it all grows: plots and fitted exponents, of the rows that measure several sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.plots import Panel, drawn
from benchmarks.results_file import exponent, one

GROWING = ("values", "attributes", "clusters")
TAKEN = {"bootstrap, CPU": "s", "consumer": "µs a netted value", "memory of the consumer": "GB"}
OF_RECORDS = {"bootstrap": "s", "gen_rec, all of it": "GB", "the consumer without its cache": "µs a tuple"}
REFRESH = "the paper's filters: a refresh from JSON lines"
OF_A_REFRESH = {
    "seconds, Spark's start apart": (", Spark's start apart", "s"),
    "CPU of driver and workers, Spark's start apart": (", CPU of driver and workers, Spark's start apart", "s"),
    "memory of driver and workers": (", memory of driver and workers", "GB"),
}
OF_TABLES = ("many-growth-whole", "many-growth")
"""The rows that refresh: both of the largest sizes are those of one run, or what is between them is no growth."""

Objects = Sequence[dict[str, Any]]


def plots(objects: Objects) -> dict[str, str]:
    """Draw the plots, SVG by its file."""
    of_state = [
        Panel(
            f"subsetd: {what}", "size, beside the middle one", ("¼", "1", "4"),
            {growing: _taken(objects, growing, what)[1] for growing in GROWING}, unit, is_log=True,
        )
        for what, unit in TAKEN.items()
    ]  # fmt: skip
    of_records = [
        Panel(f"records: {what}", "records", [f"{n:,}" for n in sizes], {what: found}, unit, is_log=True)
        for what, unit in OF_RECORDS.items()
        for sizes, found in [_records(objects, what)]
    ]
    sizes = _tables(objects)
    of_corpus = [
        Panel(f"refresh of a corpus: {what}", "tables", [f"{n:,}" for n in sizes], {what: found}, unit, is_log=True)
        for what, (_, unit) in OF_A_REFRESH.items()
        for found in [_refreshes(objects, what)]
    ]
    shards = _shards(objects)
    of_shards = Panel(
        "following on Spark, simulated", "shards, a processor each", [str(n) for n in shards],
        {"measured cost": list(shards.values()), "in proportion": [n * shards[1] for n in shards]},
        "tuples a second", is_log=True,
    )  # fmt: skip
    return {
        "docs/images/growth-state.svg": drawn("How bootstrap and consumer grow", of_state, 300),
        "docs/images/growth-records.svg": drawn("How records on one disk grow", of_records, 300),
        "docs/images/growth-corpus.svg": drawn("How refreshes of a corpus grow", of_corpus, 300),
        "docs/images/growth-shards.svg": drawn("How following on Spark grows", [of_shards]),
    }


def table(objects: Objects) -> str:
    """Give the exponents: 1 is in proportion to what grows, 0 is not at all."""
    lines = ["| what grows | from | to | what of it | grows with the power |", "| --- | ---: | ---: | --- | ---: |"]

    def line(growing: str, sizes: Sequence[int], what: str, power: float) -> None:
        lines.append(f"| {growing} | {sizes[0]:,} | {sizes[-1]:,} | {what} | {power:.2f} |")

    for growing in GROWING:
        for what in TAKEN:
            sizes, _ = _taken(objects, growing, what)
            line(growing, sizes, what, one(objects, "growth", f"{growing}, exponent: {what}")["value"])
    for what in OF_RECORDS:
        sizes, found = _records(objects, what)
        line("records", sizes[-2:], what, exponent(sizes[-2:], found[-2:]))
    tables = _tables(objects)
    for what in OF_A_REFRESH:
        line(
            "tables of a corpus", tables[-2:], f"refresh: {what}", exponent(tables[-2:], _refreshes(objects, what)[-2:])
        )
    line("shards", list(_shards(objects)), "tuples a second, simulated", one(
        objects, "follow-spark", "shards, simulated: exponent of tuples/s")["value"])  # fmt: skip
    return "\n".join(lines)


def _taken(objects: Objects, growing: str, what: str) -> tuple[list[int], list[float]]:
    """Find what sizes took, the smallest size first."""
    return _sizes(objects, ("growth",), rf"([\d,]+) {growing}: {re.escape(what)}")


def _records(objects: Objects, what: str) -> tuple[list[int], list[float]]:
    return _sizes(objects, ("many-records",), rf"([\d,]+) records: {re.escape(what)}")


def _tables(objects: Objects) -> list[int]:
    return _sizes(objects, OF_TABLES, rf"([\d,]+) tables, {REFRESH}")[0]


def _refreshes(objects: Objects, what: str) -> list[float]:
    pattern = rf"([\d,]+) tables, {REFRESH}{OF_A_REFRESH[what][0]}"
    return _sizes(objects, OF_TABLES, pattern)[1]


def _shards(objects: Objects) -> dict[int, float]:
    return dict(zip(*_sizes(objects, ("follow-spark",), r"(\d+) shards, simulated"), strict=True))


def _sizes(objects: Objects, rows: Sequence[str], pattern: str) -> tuple[list[int], list[float]]:
    """Find the sizes of metrics, ascending, and their values; of one in several rows that of the first."""
    found: dict[int, float] = {}
    for row in rows:
        for each in objects:
            size = re.fullmatch(pattern, each["metric"]) if each["row"] == row else None
            if size:
                found.setdefault(int(size[1].replace(",", "")), each["value"])
    if not found:
        raise LookupError(f"no {pattern!r} in the results: run `make bench ONLY={rows[0]}`")
    sizes = sorted(found)
    return sizes, [found[size] for size in sizes]
