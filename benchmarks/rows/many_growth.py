"""Own the row `many-growth`: time and memory of made corpora from 16,384 to 262,144 tables, and how they grow.

`python -m benchmarks.rows.many_growth TABLES FILTERS WHAT` is one size in a process of its own; WHAT is an algorithm,
`choice`, or `refresh`: a whole refresh from JSON lines through Spark, which takes any number of tables.
"""

from __future__ import annotations

import json
import math
import sys
import time

from rich.console import Console

from benchmarks import processes, web_corpus
from benchmarks.context import WORK, Context
from benchmarks.corpus_refreshes import BenchmarkedCorpus, Refreshed, options_for, write_json_lines
from benchmarks.many_process import FILTERS
from benchmarks.results_file import Result
from benchmarks.state import server
from benchmarks.web_corpus import WebCorpus
from service.core.column_filters import Filters, exclude
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_inds import Algorithm, choose, find_group_inds
from service.core.group_inds import count_columns

SEED = 9
SIZES = {"none": (16_384, 65_536), "paper": (16_384, 65_536, 262_144)}
"""Without filters the INDs grow with the square of the tables: 262,144 of them have nine thousand million."""

REFRESHED = (16_384, 65_536)


def run(context: Context) -> list[Result]:
    """Measure the chosen algorithm at each size, and signatures beside it."""
    results = []
    for filters, sizes in SIZES.items():
        before = None
        for tables in map(context.scaled, sizes):
            one, beside = (_measure(context, tables, filters, what) for what in ("choice", Algorithm.SIGNATURES))
            name = f"{tables:,} tables, " + ("no filters" if filters == "none" else "the paper's filters")
            results += [
                Result(f"{name}: columns", one["columns"], ""),
                Result(f"{name}: different sets of values", one["groups"], ""),
                Result(f"{name}: INDs", one["inds"], "", "signatures", beside["inds"], "ratio = 1"),
                Result(f"{name}: CPU", one["cpu"], "s", "signatures", beside["cpu"]),
                Result(f"{name}: memory", one["peak"], "GB", "signatures", beside["peak"]),
            ]
            if before:
                growth = math.log(one["cpu"] / before["cpu"]) / math.log(one["columns"] / before["columns"])
                results.append(Result(f"{name}: exponent of CPU over columns", growth, ""))
            before = one
    return results + _refreshes(context)


def _refreshes(context: Context) -> list[Result]:
    """Measure whole refreshes with the paper's filters."""
    results, before = [], None
    for tables in map(context.scaled, REFRESHED):
        one = refresh(context, tables, "paper")
        kernel = _measure(context, tables, "paper", "choice")
        name = f"{tables:,} tables, the paper's filters: a refresh from JSON lines"
        results += [
            Result(f"{name}, INDs", one.report["inds"], "", "kernel alone", kernel["inds"], "ratio = 1"),
            Result(name, one.seconds, "s"),
            Result(f"{name}, memory", one.peak_bytes / 1e9, "GB"),
            Result(f"{name}, reading", one.report["seconds"]["reading"], "s"),
        ]
        if before:
            growth = math.log(one.seconds / before.seconds) / math.log(one.report["columns"] / before.report["columns"])
            results.append(Result(f"{name}, exponent over columns", growth, ""))
        before = one
    return results


def refresh(context: Context, tables: int, filters: str) -> Refreshed:
    """Refresh a made corpus by the command that users type."""
    folder = context.work / f"growth-{tables}"
    if not folder.exists():
        write_json_lines(web_corpus.make(tables, SEED), folder)
    with server(context) as postgres:
        corpus = BenchmarkedCorpus(context, postgres, f"many_growth_{tables}_{filters}")
        corpus.add(folder, *options_for(filters))
        try:
            return corpus.refresh()
        finally:
            postgres.drop(corpus.name)


def _measure(context: Context, tables: int, filters: str, what: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rows.many_growth", str(tables), filters, what]
    measured = processes.run(command, log=context.logs / f"many-growth-{tables}-{filters}-{what}.log")
    context.say(f"{tables} tables, filters {filters}: {measured.output.strip()}")
    return json.loads(measured.output)


def main() -> None:
    """Print what one run took, from keys to INDs between groups, those of columns counted and not written out."""
    tables, filters, what = int(sys.argv[1]), FILTERS[sys.argv[2]], sys.argv[3]
    if what == "refresh":
        print(refresh(Context(Console(), SEED, WORK.absolute()), tables, sys.argv[2]))
        return
    discover(web_corpus.make(50, SEED), filters, what)  # compiles
    found = discover(web_corpus.make(tables, SEED), filters, what)
    print(json.dumps(found | {"peak": processes.own_peak_bytes() / 1e9}))


def discover(corpus: WebCorpus, filters: Filters, what: str) -> dict[str, object]:
    """Find and count the INDs of a corpus."""
    keys = corpus.keys()
    begun = time.process_time()
    sets = ColumnSets.of_keys(corpus.starts, keys)
    excluded = exclude(corpus.facts(sets), filters)
    groups = group_columns(sets, excluded.dependent == 0, excluded.referenced == 0, coverage=filters.coverage)
    algorithm = choose(groups).algorithm if what == "choice" else Algorithm(what)
    inds = count_columns(groups, find_group_inds(groups, sets.keys, algorithm))
    return {
        "algorithm": algorithm,
        "columns": len(sets.sizes),
        "cells": len(corpus.values),
        "values": len(sets.keys.high),
        "groups": len(groups),
        "inds": inds,
        "cpu": time.process_time() - begun,
    }


if __name__ == "__main__":
    main()
