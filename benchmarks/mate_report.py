"""Own the report on joinable tables against the MATE paper: `python -m benchmarks.mate_report FOLDER`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import data_sets
from benchmarks.joinable_filters import bloom_functions
from benchmarks.joinable_lakes import Lake
from benchmarks.mate_report_data import (
    BASELINES,
    NEWS,
    OWID,
    SETS,
    SIZES,
    WEB,
    K,
    Measured,
    Queries,
    components,
    draw,
    filters,
    measure,
    postings_fetched,
    read_corpus,
    searching,
)
from benchmarks.mate_report_paper import INITIAL, TABLE_2, TABLE_2_SETS, TABLE_3
from benchmarks.mate_report_searches import without_filter
from benchmarks.mate_report_text import (
    COMPONENTS,
    HASHES,
    INITIAL_COLUMN,
    INTRODUCTION,
    KEY_SIZES,
    PRECISION,
    RUNTIME,
    SUMMARY,
    TOP_K,
)
from benchmarks.plots import Panel
from benchmarks.plots import draw as draw_plot
from benchmarks.results_file import machine
from service.core.xash import ones_for

SEED = 37
DRAWN = {OWID: 40}
"""Queries of a set whose searches are long; of the others there are QUERIES at most."""
QUERIES, REPETITIONS = 100, 2
QUICK = 4
"""Queries of each set when the report is only tried, each searched for once more after the first time."""
KEY_SIZE_QUERIES = 50
KEY_SIZES_ASKED = (1, 2, 3, 4, 5, 6, 8, 10)
TOPS = (2, 5, 10, 15, 20)
COUNTED = "counted bits 128"
SHOWN = ("SCR", "HT 128", "BF 128", "XASH 128", COUNTED)
DRAWN_FILTERS = ("MD5 128", "SimHash 128", "HT 128", "LHBF 128", "BF 128", "XASH 128", COUNTED)
DOCS = Path(__file__).parent.parent / "docs"

Of = dict[str, dict[str, Measured]]
"""What is measured: by method, by set."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, draw and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mate_report", description=__doc__)
    parser.add_argument("data", type=Path, help="folder of lakes, as folders or .tar.zst")
    parser.add_argument("--quick", action="store_true", help="a few queries of each set, to see that it runs")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder that the report goes into")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="mate-report-") as work:
        try:
            corpus = read_corpus(options.data, Path(work))
        except data_sets.Unavailable as error:
            print(error, file=sys.stderr)
            return 2
    repetitions = 1 if options.quick else REPETITIONS
    queries = {
        name: draw(corpus, name, QUICK if options.quick else DRAWN.get(name, QUERIES), Random(f"{SEED} {name}"))[0]
        for name in SETS
    }
    queries = {name: drawn for name, drawn in queries.items() if drawn.asked}
    print(f"{len(corpus.tables):,} tables; queries: { ({name: len(one.asked) for name, one in queries.items()}) }")
    images = options.docs / "images"
    measured = _all_methods(corpus, queries, repetitions)
    parts = [_introduction(corpus, queries, repetitions), _summary(measured), *_runtime(measured, images)]
    parts += [_hashes(measured), *_precision(measured, images)]
    parts += _tops(corpus, queries.get(WEB, next(iter(queries.values()))), images)
    parts += _components(corpus, queries, measured, images)
    parts += _key_sizes(corpus, QUICK if options.quick else KEY_SIZE_QUERIES, repetitions, images)
    parts.append(_initial(corpus, queries))
    (options.docs / "joinable-report.md").write_text("\n".join(parts), "utf-8")
    return 0


def _all_methods(corpus: Lake, queries: Mapping[str, Queries], repetitions: int) -> Of:
    """Measure every method on every set; raises ValueError where two give different answers."""
    made = filters(corpus)
    searches = {name: lambda one=one: one for name, one in BASELINES.items()}
    searches |= {name: lambda one=one: searching(one()) for name, one in made.items()}
    measured: Of = {}
    for name, search in searches.items():
        made_search = search()
        measured[name] = {of: measure(corpus, some, made_search, repetitions) for of, some in queries.items()}
        print(name, {of: round(one.milliseconds, 2) for of, one in measured[name].items()}, flush=True)
        for of, one in measured[name].items():
            if one.answers != measured["SCR"][of].answers:
                raise ValueError(f"{of}: {name} finds other tables than SCR")
    measured["no filter"] = {of: measure(corpus, some, without_filter, 0) for of, some in queries.items()}
    return measured


def _introduction(corpus: Lake, queries: Mapping[str, Queries], repetitions: int) -> str:
    widths = corpus.widths()
    of_sets = [
        f"| {name} | {len(of.asked)} | {np.mean([len(np.unique(keys, axis=0)) for keys in of.keys]):,.0f} |"
        for name, of in queries.items()
    ]
    return INTRODUCTION.format(
        tables=len(corpus.tables),
        rows=len(corpus.index.row_starts) - 1,
        cells=len(corpus.index.places),
        values=len(corpus.values),
        width=widths[widths > 0].mean(),
        ones=_list([ones_for(len(corpus.values), bits) for bits in SIZES]),
        functions=_list([bloom_functions(corpus, bits) for bits in SIZES]),
        k=K,
        repetitions=repetitions,
        seed=SEED,
        machine=machine(),
        sets="\n".join(of_sets),
    )


def _summary(measured: Of) -> str:
    return SUMMARY.format(
        xash=_over_all(measured["XASH 128"]),
        bloom=_over_all(measured["BF 128"]),
        counted=_over_all(measured[COUNTED]),
        xash_left=_left(measured, "XASH 128"),
        bloom_left=_left(measured, "BF 128"),
        counted_left=_left(measured, COUNTED),
    )


def _over_all(of_sets: Mapping[str, Measured]) -> float:
    """Give the mean precision of all queries that join."""
    precisions = np.concatenate([one.precisions for one in of_sets.values()])
    return float(precisions.mean()) if len(precisions) else float("nan")


def _left(measured: Of, name: str) -> float:
    """Give how many of the pairs that do not join a filter lets through, of all sets together, in percent."""
    every = sum(int(one.false.sum()) for one in measured["no filter"].values())
    return 100 * sum(int(one.false.sum()) for one in measured[name].values()) / max(1, every)


def _runtime(measured: Of, images: Path) -> Iterator[str]:
    sets = list(measured["SCR"])
    methods = ("SCR", "MCR", "XASH 128", COUNTED)
    whole = {name: [one.milliseconds for one in measured[name].values()] for name in methods}
    after = {name: [one.after_fetching for one in measured[name].values()] for name in methods}
    panel = Panel("CPU of a query", "queries", sets, _short(whole), "ms", is_log=True, has_bars=True)
    draw_plot(images / "mate-runtime.svg", "Runtime beside the baselines", [panel], 700)
    gains = np.divide(after["SCR"], after["XASH 128"])
    yield RUNTIME.format(
        whole=_table("ms a query", sets, whole),
        after=_table("ms, without fetching", sets, after),
        low=gains.min(),
        high=gains.max(),
        highest=sets[int(gains.argmax())],
    )


def _hashes(measured: Of) -> str:
    table = _beside("ms a query (the paper: s)", measured, TABLE_2, lambda one: one.after_fetching)
    return HASHES.format(table=table)


def _precision(measured: Of, images: Path) -> Iterator[str]:
    sets = [name for name, one in measured["SCR"].items() if len(one.precisions)] or list(measured["SCR"])
    lines = {name: [measured[name][of].precision for of in sets] for name in DRAWN_FILTERS}
    panel = Panel("Mean precision, 128 bits", "queries", sets, _short(lines), "precision", has_bars=True)
    draw_plot(images / "mate-precision.svg", "Precision of the row filters", [panel], 700)
    counts = ", ".join(f"{name} {len(measured['SCR'][name].precisions)}" for name in measured["SCR"])
    left = {
        name: [
            100 * int(measured[name][of].false.sum()) / max(1, int(one.false.sum()))
            for of, one in measured["no filter"].items()
        ]
        for name in measured
        if name not in ("no filter", *BASELINES)
    }
    every = {"pairs without a filter": [int(one.false.sum()) for one in measured["no filter"].values()]}
    yield PRECISION.format(
        table=_beside("precision (the paper's)", measured, TABLE_3, lambda one: one.precision),
        counts=counts,
        every=_table("number", list(measured["SCR"]), every),
        left=_table("% let through", list(measured["SCR"]), left),
    )


def _tops(corpus: Lake, queries: Queries, images: Path) -> Iterator[str]:
    made = filters(corpus)
    lines: dict[str, list[float]] = {}
    for name in DRAWN_FILTERS:
        search = searching(made[name]())
        lines[name] = [measure(corpus, queries, search, 0, k).precision for k in TOPS]
    places = [str(k) for k in TOPS]
    panel = Panel(f"{queries.name}, 128 bits", "k", places, _short(lines), "precision")
    draw_plot(images / "mate-top-k.svg", "Precision by k", [panel], 460)
    yield TOP_K.format(table=_table("k", places, lines), name=queries.name)


def _components(corpus: Lake, queries: Mapping[str, Queries], measured: Of, images: Path) -> Iterator[str]:
    some = {name: queries[name] for name in (WEB, NEWS, OWID) if name in queries} or queries
    found = {"no filter (SCI)": {name: measured["no filter"][name] for name in some}}
    for part, make in components(corpus).items():
        search = searching(make())
        found[part] = {name: measure(corpus, of, search, 0) for name, of in some.items()}
        if part == "XASH 128" and any(
            found[part][name].false.sum() != measured[part][name].false.sum() for name in some
        ):
            raise ValueError("XASH of all its parts is not XASH")
    found["XASH 512"] = {name: measured["XASH 512"][name] for name in some}
    first = next(iter(some))
    panel = Panel(
        first, "parts", list(found), {"XASH": [one[first].precision for one in found.values()]}, "precision",
        has_bars=True,
    )  # fmt: skip
    draw_plot(images / "mate-components.svg", "Precision by XASH's components", [panel], 900)
    rows = {
        part: [value for one in of.values() for value in (one.precision, float(one.false.sum()))]
        for part, of in found.items()
    }
    head = [f"{name}, {what}" for name in some for what in ("precision", "false pairs")]
    turned = {
        name: 100 * (1 - int(found["XASH 128"][name].false.sum()) / max(1, int(one.false.sum())))
        for name, one in found["chars+len.+loc."].items()
    }
    yield COMPONENTS.format(
        table=_table("parts", head, rows),
        ones=ones_for(len(corpus.values), 128),
        turned=", ".join(f"{share:.0f} % ({name})" for name, share in turned.items()),
    )


def _key_sizes(corpus: Lake, count: int, repetitions: int, images: Path) -> Iterator[str]:
    name = NEWS if any(NEWS in table for table in corpus.tables) else WEB
    drawn = draw(corpus, name, count, Random(f"{SEED} sizes"), KEY_SIZES_ASKED)
    made = filters(corpus)
    found = {}
    for method in SHOWN:
        search = BASELINES[method] if method in BASELINES else searching(made[method]())
        found[method] = [measure(corpus, queries, search, repetitions) for queries in drawn]
        if [one.answers for one in found[method]] != [one.answers for one in found["SCR"]]:
            raise ValueError(f"{method} finds other tables than SCR")
    places = [str(size) for size in KEY_SIZES_ASKED]
    times = {method: [one.milliseconds for one in of] for method, of in found.items()}
    precisions = {method: [one.precision for one in of] for method, of in found.items() if method != "SCR"}
    false = {method: [float(one.false.sum()) for one in of] for method, of in found.items() if method != "SCR"}
    draw_plot(
        images / "mate-key-sizes.svg",
        "Runtime and precision by key size",
        [
            Panel("(a) runtime", "|Q|", places, _short(times), "ms a query", is_log=True),
            Panel("(b) precision", "|Q|", places, _short(precisions), "precision"),
        ],
    )
    joins = {"queries that join": [len(one.precisions) for one in found["SCR"]]}
    yield KEY_SIZES.format(
        name=name,
        count=len(drawn[0].asked),
        times=_table("ms", places, times),
        precisions=_table("precision", places, precisions),
        false=_table("false pairs", places, false),
        joins=_table("number", places, joins),
    )


def _initial(corpus: Lake, queries: Mapping[str, Queries]) -> str:
    fetched = {name: postings_fetched(corpus, of) for name, of in queries.items()}
    rules = list(next(iter(fetched.values())))
    rows = {rule: [of[rule] for of in fetched.values()] + [float(INITIAL.get(rule, "nan"))] for rule in rules}
    return INITIAL_COLUMN.format(table=_table("postings a query", [*fetched, "the paper, OD (10k)"], rows))


def _beside(corner: str, measured: Of, paper: Mapping[str, Sequence[float]], value: object) -> str:
    """Write a table of methods by sets, with the paper's figures in brackets."""
    sets = list(measured["SCR"])
    lines = [f"| {corner} | " + " | ".join(sets) + " |", "|---" + "|---:" * len(sets) + "|"]
    for name, of_sets in measured.items():
        if name == "no filter" or (paper is TABLE_3 and name in BASELINES):
            continue
        cells = []
        for of, one in of_sets.items():
            theirs = dict(zip(TABLE_2_SETS, paper.get(name, ()), strict=False)).get(of)
            cells.append(_number(value(one)) + (f" ({theirs:g})" if theirs is not None else ""))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _table(corner: str, places: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    lines = [f"| {corner} | " + " | ".join(places) + " |", "|---" + "|---:" * len(places) + "|"]
    lines += [f"| {name} | " + " | ".join(map(_number, values)) + " |" for name, values in rows.items()]
    return "\n".join(lines)


def _number(value: float) -> str:
    if isnan(value):
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def _short(lines: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Name methods without their bits."""
    return {name.removesuffix(" 128"): values for name, values in lines.items()}


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


if __name__ == "__main__":
    sys.exit(main())
