"""Own the row `break-even`: how large a batch must be before finding all INDs anew is cheaper than following it."""

from __future__ import annotations

import sys

from benchmarks import profilers, tpch
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import consume, server, tpch_state

SEED = 22
WARM = 100
"""Inserts in front of those that are timed: the first that a copy of a state gets wait for its pages."""

SIZES = (1, 100, 10_000, 100_000)
LIVE = "break_even"


def run(context: Context) -> list[Result]:
    """Time rediscovery of TPC-H that stores nothing, then batches of inserts on its state, each until it is durable."""
    folder = tpch.tables(context.work, context.scale_factor)
    rediscovery = {}
    with server(context) as postgres:
        database = tpch_state(context, postgres)
        options = ["--name", tpch.NAME, "--database-url", postgres.create("anew"), "--clusters-only"]
        rediscovery["clusters only"] = run_command(
            [sys.executable, "-m", "spark_jobs.bootstrap", folder, *options], log=context.logs / "anew.log"
        ).seconds
        postgres.drop("anew")
        rediscovery |= {one.name: one.measured.seconds for one in profilers.installed(context, folder)}
        sizes = [context.scaled(size) for size in SIZES]
        inserts = tpch.lineitem_changes(folder, WARM + sum(sizes), context)["insert"]
        columns = {"lineitem": tpch.lineitem_columns(folder)}
        seconds = {}

        def take(size: int) -> float:
            batch, inserts[:] = inserts[:size], inserts[size:]
            feed = write_feed(context.work / f"break-even-{len(inserts)}.jsonl", batch, tpch.NAME, columns)
            return consume(context, postgres, LIVE, feed).seconds

        with postgres.clone(database, LIVE):
            take(WARM)
            for size in sizes:
                seconds[size] = take(size)
                context.say(f"{size:,} inserts: {seconds[size]:.3f} s")
    *_, before, largest = sizes
    of_one = (seconds[largest] - seconds[before]) / (largest - before)
    return [
        *(
            Result(f"{size:,} inserts", spent, "s", f"finding all anew, {how}", anew)
            for size, spent in seconds.items()
            for how, anew in rediscovery.items()
        ),
        *(
            Result(
                f"inserts that take as long as finding all anew, {how}",
                largest + (anew - seconds[largest]) / of_one,
                "",
            )
            for how, anew in rediscovery.items()
        ),
    ]
