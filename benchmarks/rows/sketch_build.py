"""Own the row `sketch-build`: sketches of TPC-H's columns into Postgres, beside Spark's own `approx_count_distinct`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.processes import Measured
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import Server, server
from service.core.sketches.column import ColumnSketch
from service.store.migrate import upgrade

SEED = 0
"""Nothing is drawn."""
DATABASE = "sketch_lake"
BASELINE = "Spark's approx_count_distinct"
AGREEMENT = 0.3
"""Counts of both may differ by this share: six standard errors of Spark's."""


def run(context: Context) -> list[Result]:
    """Run both as commands, from their start to their end."""
    folder = tpch.tables(context.work, context.scale_factor)
    baseline = run_command(
        [sys.executable, "-m", "benchmarks.spark_count_distinct", folder], log=context.logs / "spark-count-distinct.log"
    )
    context.say(f"{BASELINE}: {baseline.seconds:.1f} s")
    with server(context) as postgres:
        ours = _sketch(context, postgres)
        context.say(f"sketches: {ours.seconds:.1f} s")
        sizes, total = _read(postgres)
        postgres.drop(DATABASE)
    _require_agreement(sizes, json.loads(baseline.output))
    return [
        Result("columns", len(sizes), "", goal="value = 61"),
        Result("sketched and stored", ours.seconds, "s", BASELINE, baseline.seconds, "ratio <= 1.5"),
        Result("CPU", ours.usage.cpu_seconds, "s", BASELINE, baseline.usage.cpu_seconds),
        Result("memory", ours.usage.peak_bytes / 1e9, "GB", BASELINE, baseline.usage.peak_bytes / 1e9),
        Result("bytes of all sketches", total / 1e6, "MB"),
    ]


def _sketch(context: Context, postgres: Server) -> Measured:
    url = postgres.create(DATABASE)
    upgrade(url)
    folder = tpch.tables(context.work, context.scale_factor)
    return run_command(
        [sys.executable, "-m", "spark_jobs.sketch_lake", folder, "--name", tpch.NAME, "--database-url", url],
        log=context.logs / "sketch-lake.log",
        beside={"postgres": postgres.pid},
    )


def _read(postgres: Server) -> tuple[dict[str, float], int]:
    """Give the estimated number of values of each column by `table.column`, and the bytes of all sketches."""
    with postgres.connection(DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name, sketch FROM uploaded_sketch")
        sketches = {name.split(".", 1)[1]: bytes(data) for name, data in cursor}
    sizes = {name: ColumnSketch.from_bytes(data).estimate() for name, data in sketches.items()}
    return sizes, sum(map(len, sketches.values()))


def _require_agreement(ours: Mapping[str, float], sparks: Mapping[str, int]) -> None:
    """Raise unless both have counted the same columns alike: a fast wrong answer is no result."""
    differing = list(ours.keys() ^ sparks.keys())
    differing += [
        name for name in ours.keys() & sparks.keys() if abs(ours[name] - sparks[name]) > AGREEMENT * sparks[name]
    ]
    if differing:
        raise ValueError(f"the sketches and {BASELINE} differ in {', '.join(sorted(differing))}")
