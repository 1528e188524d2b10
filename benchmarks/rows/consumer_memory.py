"""Own the row `consumer-memory`: the consumer's peak memory on TPC-H's state, with the default ValCache."""

from __future__ import annotations

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.results_file import Result
from benchmarks.state import consume, server, tpch_state

SEED = 3
TUPLES = 200_000
"""Of each kind: about 3 million distinct values."""


def run(context: Context) -> list[Result]:
    """Apply all kinds of changes in one run of the consumer and watch its process tree."""
    folder = tpch.tables(context.work, context.scale_factor)
    changes = tpch.lineitem_changes(folder, context.scaled(TUPLES), context)
    feed = write_feed(
        context.work / "lineitem-all.jsonl",
        (change for of_kind in changes.values() for change in of_kind),
        tpch.NAME,
        {"lineitem": tpch.lineitem_columns(folder)},
    )
    with server(context) as postgres:
        database = tpch_state(context, postgres)
        with postgres.clone(database, "consumer_memory"):
            consumed = consume(context, postgres, "consumer_memory", feed)
    server_peak = consumed.measured.beside["postgres"].peak_bytes
    return [
        Result("peak of the consumer", consumed.measured.usage.peak_bytes / 1e9, "GB", goal="value <= 1"),
        Result("peak of Postgres beside it", server_peak / 1e9, "GB"),
    ]
