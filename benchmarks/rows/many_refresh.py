"""Own the row `many-refresh`: refreshes of made tables after 1 % of them changed, beside a full one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks import web_corpus
from benchmarks.context import Context
from benchmarks.corpus_refreshes import (
    BenchmarkedCorpus,
    Refreshed,
    change_tables,
    options_for,
    refresh_compiled,
    spark_start,
    write_json_lines,
)
from benchmarks.results_file import Result
from benchmarks.state import server

SEED = 3
SIZES = (262_144, 1_398_105)
"""The second is that of the paper's WikiTables, where what any refresh takes, whatever changed, should weigh less."""
SHARE = 0.01
ROUNDS = 3
"""Refreshes after changes in few files, and starts of Spark, each before one of them: seconds of one of either vary."""
BASELINE = "a full refresh, Spark's start apart"


def run(context: Context) -> list[Result]:
    """Measure each size; the larger one needs as much disk as `many-growth-whole`."""
    return [
        replace(one, metric=f"{tables:,} tables: {one.metric}")
        for tables in map(context.scaled, SIZES)
        for one in _measure(context, tables)
    ]


def _measure(context: Context, tables: int) -> list[Result]:
    """Measure full refreshes, some after changes in few files and one after changes in all, and Spark alone."""
    folder = context.work / f"refreshed-{tables}"
    shutil.rmtree(folder, ignore_errors=True)
    write_json_lines(web_corpus.make(tables, SEED), folder)
    with server(context) as postgres:
        corpus = BenchmarkedCorpus(context, postgres, "many_refresh")
        full = refresh_compiled(corpus, folder, *options_for("paper"))
        nothing = corpus.refresh()
        starts, after = [], []
        for round_ in range(ROUNDS):
            together = change_tables(folder, SHARE, SEED + round_)
            starts.append(spark_start(context))
            after.append(corpus.refresh())
        change_tables(folder, SHARE, SEED + ROUNDS, spread=True)
        spread = corpus.refresh()
        anew = corpus.refresh("--full")
        postgres.drop(corpus.name)
    shutil.rmtree(folder, ignore_errors=True)
    start = median(starts)
    differences = anew.report["appeared"] + anew.report["went"]
    results = [
        Result("tables in JSON lines", full.report["tables"], ""),
        Result("INDs", full.report["inds"], ""),
        Result("full refresh", full.seconds, "s"),
        Result("full refresh: Spark was started", int(full.report["spark"]), ""),
        Result("Spark's start and end, with two tasks that do nothing: median", start, "s"),
        Result("Spark's start and end: quickest", min(starts), "s"),
        Result("Spark's start and end: slowest", max(starts), "s"),
        Result("tables changed, in few files", together, ""),
        Result("INDs that differ from a full refresh's", differences, "", goal="value = 0"),
    ]
    for name, refreshes, goal in (
        ("after 1 % changed in few files", after, "ratio <= 0.05"),
        ("after 1 % changed in all files", [spread], None),
        ("of an unchanged corpus", [nothing], None),
    ):
        results += beside_full(name, refreshes, full, start, goal)
    return results


def beside_full(
    name: str, refreshes: Sequence[Refreshed], full: Refreshed, start: float, goal: str | None
) -> list[Result]:
    """Hold the median of some refreshes to a full one, each without Spark's start if it started it."""

    def apart(one: Refreshed) -> float:
        return one.seconds - start if one.report["spark"] else one.seconds

    return [
        Result(f"refresh {name}", median(one.seconds for one in refreshes), "s"),
        Result(f"refresh {name}: Spark was started", max(int(one.report["spark"]) for one in refreshes), ""),
        Result(f"refresh {name}, Spark's start apart", median(map(apart, refreshes)), "s", BASELINE, apart(full), goal),
    ]
