"""Own the row `many-refresh`: a refresh after 1 % of the tables changed, beside a full one, of 16,000 web tables."""

from __future__ import annotations

import shutil

from benchmarks.context import Context
from benchmarks.corpus_refreshes import BenchmarkedCorpus, change_tables, options_for, spark_start, write_copies
from benchmarks.results_file import Result
from benchmarks.rows.many_webtables import COPIES, unpacked
from benchmarks.state import server

SEED = 3
SHARE = 0.01
BASELINE = "full refresh, Spark's start apart"


def run(context: Context) -> list[Result]:
    """Measure a full refresh, one of changed tables, one of nothing, and Spark alone."""
    written = write_copies(unpacked(context.work) / "tables", COPIES[-1], context.work / f"webtables-x{COPIES[-1]}")
    folder = context.work / "webtables-changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(written, folder)
    start = spark_start(context)
    with server(context) as postgres:
        corpus = BenchmarkedCorpus(context, postgres, "many_refresh")
        corpus.add(folder, *options_for("none"))
        full = corpus.refresh()
        changed = change_tables(folder, SHARE, SEED)
        after = corpus.refresh()
        nothing = corpus.refresh()
        anew = corpus.refresh("--full")
        postgres.drop(corpus.name)
    return [
        Result("full refresh", full.seconds, "s"),
        Result("Spark's start and end, with two tasks that do nothing", start, "s"),
        Result("tables changed", changed, ""),
        Result("files read", after.report["files"]["read"], "", "tables changed", changed, "ratio = 1"),
        Result("INDs after the change", after.report["inds"], "", "a full refresh", anew.report["inds"], "ratio = 1"),
        Result("a full one changes", anew.report["appeared"] + anew.report["went"], "", goal="value = 0"),
        Result("refresh after 1 % changed", after.seconds, "s"),
        Result(
            "refresh after 1 % changed, Spark's start apart", after.seconds - start, "s",
            BASELINE, full.seconds - start, "ratio <= 0.05",
        ),
        Result("refresh of an unchanged corpus, Spark's start apart", nothing.seconds - start, "s"),
    ]  # fmt: skip
