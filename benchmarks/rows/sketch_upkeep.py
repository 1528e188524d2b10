"""Own the row `sketch-upkeep`: what it costs the consumer to keep sketches current, and what a sketch takes."""

from __future__ import annotations

from sqlalchemy import text

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.made_columns import hash_range
from benchmarks.results_file import Result
from benchmarks.state import Server, consume, server, tpch_state
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from service.store.sketch_reading import read_sketches

SEED = 14
TUPLES = 50_000
"""Of each kind: inserts, deletes, updates."""
VALUES = 1_000_000
WITH, WITHOUT = "with_sketches", "without_sketches"
ORDER = (WITHOUT, WITH, WITH, WITHOUT)
"""What comes later is on a warmer machine; so each is first once."""


def run(context: Context) -> list[Result]:
    """Apply the same changes to the same state, with sketches and after they were taken from it."""
    folder = tpch.tables(context.work, context.scale_factor)
    changes = tpch.lineitem_changes(folder, context.scaled(TUPLES), context)
    feed = write_feed(
        context.work / "lineitem-sketches.jsonl",
        (change for of_kind in changes.values() for change in of_kind),
        tpch.NAME,
        {"lineitem": tpch.lineitem_columns(folder)},
    )
    seconds = {WITH: 0.0, WITHOUT: 0.0}
    tuples = dict(seconds)
    with server(context) as postgres:
        database = tpch_state(context, postgres)
        for copy in ORDER:
            with postgres.clone(database, copy):
                if copy == WITHOUT:
                    _take_sketches(postgres, copy)
                consumed = consume(context, postgres, copy, feed)
                seconds[copy] += consumed.seconds
                tuples[copy] += consumed.tuples
                context.say(f"{copy}: {consumed.tuples_per_second:,.0f} tuples/s")
                if copy == WITH:
                    _require_current(postgres, copy)
    with_sketches, without = (tuples[copy] / seconds[copy] for copy in (WITH, WITHOUT))
    column = ColumnSketch()
    column.update(hash_range(context.seed, 0, VALUES))
    heaps = column.dense()
    return [
        Result("the consumer", with_sketches, "tuples/s", "without sketches", without, "ratio >= 0.85"),
        Result(f"heaps of 10^6 values, m = {column.m}", len(heaps.to_bytes()) / 1e3, "KB", goal="value <= 120"),
        Result("with the smallest hashes beside them", len(column.to_bytes()) / 1e3, "KB", goal="value <= 120"),
        Result("registers alone", len(heaps.hll().to_bytes()) / 1e3, "KB"),
    ]


def _take_sketches(postgres: Server, database: str) -> None:
    """Leave a state as a bootstrap without sketches does."""
    with postgres.connection(database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("TRUNCATE sketch, sketch_change, sketch_form")
        cursor.execute("CHECKPOINT")


def _require_current(postgres: Server, database: str) -> None:
    """Raise unless every sketch counts the distinct values that its attribute has: a fast wrong answer is no result."""
    engine = make_engine(postgres.url(database), "subsetd-bench")
    try:
        with engine.connect() as connection:
            sketches = read_sketches(connection)
            counts = connection.execute(text("SELECT attribute_id, distinct_count FROM attribute"))
            expected = dict(counts.all())
    finally:
        engine.dispose()
    found = {attribute_id: sketch.size for attribute_id, sketch in sketches.by_id.items()}
    if found != expected:
        differing = [attribute_id for attribute_id in expected if found.get(attribute_id) != expected[attribute_id]]
        raise ValueError(f"the sketches of attributes {differing} do not count their values")
