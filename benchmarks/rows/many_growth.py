"""Own the row `many-growth`: time and memory of made corpora from 16,384 to 262,144 tables, and how they grow.

`many-growth-whole` goes on to the number of tables that the paper's WikiTables have. `python -m
benchmarks.rows.many_growth TABLES FILTERS WHAT` is one size in a process of its own; WHAT is an algorithm or `choice`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable

from benchmarks import processes, web_corpus
from benchmarks.context import Context
from benchmarks.corpus_refreshes import BenchmarkedCorpus, Refreshed, options_for, start_spark, write_json_lines
from benchmarks.many_process import FILTERS
from benchmarks.results_file import Result, exponent
from benchmarks.state import server
from benchmarks.web_corpus import WebCorpus
from service.core.column_filters import Filters, exclude
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_choices import Algorithm
from service.core.corpus_inds import choose, find_group_inds
from service.core.group_inds import count_columns

SEED = 9
SIZES = {"none": (16_384, 65_536), "paper": (16_384, 65_536, 262_144)}
"""Without filters the INDs grow with the square of the tables: 262,144 of them have nine thousand million."""

MINUTES, GIGABYTES = 30, 16
"""What any size may take, the paper's 1.4 million tables too."""

LEAST_CPU, LEAST_SECONDS = 1.0, 10.0
"""CPU of the smaller of two sizes, of a kernel and of a refresh: below, most of it is warming up, and an exponent of
growth would mean nothing."""


def run(context: Context) -> list[Result]:
    """Measure the chosen algorithm at each size, signatures beside it, and whole refreshes."""
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
            if before and before["cpu"] >= LEAST_CPU:
                growth = exponent([before["columns"], one["columns"]], [before["cpu"], one["cpu"]])
                results.append(Result(f"{name}: exponent of CPU over columns", growth, ""))
            before = one
    return results + measure_refreshes(context, SIZES["paper"])


def measure_refreshes(context: Context, sizes: Iterable[int]) -> list[Result]:
    """Measure whole refreshes with the paper's filters from JSON lines to served INDs, Spark's start and end apart."""
    start_spark(context)  # compiles what it loads
    spark = start_spark(context)
    results, before = [Result("Spark's start and end, with two tasks that do nothing", spark.seconds, "s")], None
    compiled: set[bool] = set()
    for tables in map(context.scaled, sizes):
        one = _refresh(context, tables)
        if one.report["spark"] not in compiled:  # the first with Spark, and without, compiles what it loads
            compiled.add(one.report["spark"])
            one = _refresh(context, tables)
        kernel = _measure(context, tables, "paper", "choice")
        name = f"{tables:,} tables, the paper's filters: a refresh from JSON lines"
        beyond = {"time": one.seconds, "CPU": one.cpu_seconds}
        if one.report["spark"]:  # small corpora are refreshed without it
            beyond = {"time": one.seconds - spark.seconds, "CPU": one.cpu_seconds - spark.usage.cpu_seconds}
        results += [
            Result(f"{name}, columns", one.report["columns"], ""),
            Result(f"{name}, INDs", one.report["inds"], "", "kernel alone", kernel["inds"], "ratio = 1"),
            Result(f"{name}, Spark is started", int(one.report["spark"]), ""),
            Result(name, one.seconds, "s", goal=f"value <= {60 * MINUTES}"),
            Result(f"{name}, Spark's start apart", beyond["time"], "s"),
            Result(f"{name}, CPU of driver and workers, Spark's start apart", beyond["CPU"], "s"),
            Result(f"{name}, reading", one.report["seconds"]["reading"], "s"),
            Result(f"{name}, finding and storing", one.report["seconds"]["finding INDs"], "s"),
            Result(f"{name}, indexing", one.indexing, "s"),
            Result(f"{name}, landing", one.landing, "s"),
            Result(f"{name}, memory of driver and workers", one.peak_bytes / 1e9, "GB", goal=f"value <= {GIGABYTES}"),
            Result(f"{name}, memory of workers", one.workers_peak_bytes / 1e9, "GB"),
            Result(f"{name}, memory of Postgres", one.postgres_peak_bytes / 1e9, "GB"),
        ]
        columns = one.report["columns"]
        for what, took in beyond.items():
            if before and before[1]["CPU"] >= LEAST_SECONDS:
                growth = exponent([before[0], columns], [before[1][what], took])
                results.append(Result(f"{name}, exponent of {what} over columns, Spark's start apart", growth, ""))
        before = columns, beyond
    return results


def _refresh(context: Context, tables: int) -> Refreshed:
    """Refresh a made corpus by the command that users type."""
    folder = context.work / f"growth-{tables}"
    if not folder.exists():
        write_json_lines(web_corpus.make(tables, SEED), folder)
    with server(context) as postgres:
        corpus = BenchmarkedCorpus(context, postgres, f"many_growth_{tables}")
        corpus.add(folder, *options_for("paper"))
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
