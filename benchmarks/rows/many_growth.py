"""Own the row `many-growth`: time and memory of made corpora from 16,384 to 262,144 tables, and how they grow.

`python -m benchmarks.rows.many_growth TABLES FILTERS WHAT` is one size in a process of its own.
"""

from __future__ import annotations

import json
import math
import sys
import time

from benchmarks import processes, web_corpus
from benchmarks.context import Context
from benchmarks.many_process import FILTERS
from benchmarks.results_file import Result
from benchmarks.web_corpus import WebCorpus
from service.core.column_filters import Filters, exclude
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_inds import Algorithm, choose, find_group_inds
from service.core.group_inds import count_columns

SEED = 9
SIZES = {"none": (16_384, 65_536), "paper": (16_384, 65_536, 262_144)}
"""Without filters the INDs grow with the square of the tables: 262,144 of them have nine thousand million."""


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
    return results


def _measure(context: Context, tables: int, filters: str, what: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rows.many_growth", str(tables), filters, what]
    measured = processes.run(command, log=context.logs / f"many-growth-{tables}-{filters}-{what}.log")
    context.say(f"{tables} tables, filters {filters}: {measured.output.strip()}")
    return json.loads(measured.output)


def main() -> None:
    """Print what one run took, from keys to INDs between groups, those of columns counted and not written out."""
    tables, filters, what = int(sys.argv[1]), FILTERS[sys.argv[2]], sys.argv[3]
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
