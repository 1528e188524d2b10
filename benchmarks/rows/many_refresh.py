"""Own the row `many-refresh`: refreshes of 262,144 made tables after 1 % of them changed, beside a full one."""

from __future__ import annotations

import shutil

from benchmarks import web_corpus
from benchmarks.context import Context
from benchmarks.corpus_refreshes import BenchmarkedCorpus, change_tables, options_for, spark_start, write_json_lines
from benchmarks.results_file import Result
from benchmarks.state import server

SEED = 3
TABLES = 262_144
SHARE = 0.01
BASELINE = "a full refresh, Spark's start apart"


def run(context: Context) -> list[Result]:
    """Measure full refreshes, one after changes in few files and one after changes in all, and Spark alone."""
    tables = context.scaled(TABLES)
    folder = context.work / f"refreshed-{tables}"
    shutil.rmtree(folder, ignore_errors=True)
    write_json_lines(web_corpus.make(tables, SEED), folder)
    start = spark_start(context)
    with server(context) as postgres:
        corpus = BenchmarkedCorpus(context, postgres, "many_refresh")
        corpus.add(folder, *options_for("paper"))
        full = corpus.refresh()
        nothing = corpus.refresh()
        together = change_tables(folder, SHARE, SEED)
        after = corpus.refresh()
        change_tables(folder, SHARE, SEED + 1, spread=True)
        spread = corpus.refresh()
        anew = corpus.refresh("--full")
        postgres.drop(corpus.name)
    shutil.rmtree(folder, ignore_errors=True)
    differences = anew.report["appeared"] + anew.report["went"]
    results = [
        Result("tables", full.report["tables"], ""),
        Result("INDs", full.report["inds"], ""),
        Result("full refresh", full.seconds, "s"),
        Result("Spark's start and end, with two tasks that do nothing", start, "s"),
        Result("tables changed, in few files", together, ""),
        Result("INDs that differ from a full refresh's", differences, "", goal="value = 0"),
    ]
    for name, one, goal in (
        ("after 1 % changed in few files", after, "ratio <= 0.05"),
        ("after 1 % changed in all files", spread, None),
        ("of an unchanged corpus", nothing, None),
    ):
        results += [
            Result(f"refresh {name}", one.seconds, "s"),
            Result(f"refresh {name}: Spark was started", int(one.report["spark"]), ""),
            Result(
                f"refresh {name}, Spark's start apart", one.seconds - start, "s", BASELINE, full.seconds - start, goal
            ),
        ]
    return results
