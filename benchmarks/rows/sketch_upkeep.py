"""Own the row `sketch-upkeep`: what it costs the consumer to keep sketches current, and what a sketch takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
TUPLES = 30_000
"""Of each kind: inserts, deletes, updates."""
SHARE = 0.1
"""Of the scale factor: a small state is soon copied and warm, and its consumer faster, so that sketches cost more."""
PAIRS = 5
"""An odd number: the median is one of them. Runs of a pair follow each other, and each kind comes first in turn."""
VALUES = 1_000_000
WITH, WITHOUT = "with_sketches", "without_sketches"


def run(context: Context) -> list[Result]:
    """Apply the same changes to the same state, with sketches and after they were taken from it."""
    small = replace(context, scale_factor=context.scale_factor * SHARE)
    folder = tpch.tables(small.work, small.scale_factor)
    changes = tpch.lineitem_changes(folder, small.scaled(TUPLES), small)
    feed = write_feed(
        small.work / "lineitem-sketches.jsonl",
        (change for of_kind in changes.values() for change in of_kind),
        tpch.NAME,
        {"lineitem": tpch.lineitem_columns(folder)},
    )
    pairs = []
    with server(small) as postgres:
        database = tpch_state(small, postgres)
        _consume(small, postgres, database, WITH, feed)  # what is read is in the machine's memory from then on
        for number in range(PAIRS):
            order = (WITHOUT, WITH) if number % 2 == 0 else (WITH, WITHOUT)
            pairs.append({copy: _consume(small, postgres, database, copy, feed) for copy in order})
    pairs.sort(key=lambda pair: pair[WITH] / pair[WITHOUT])
    median = pairs[PAIRS // 2]
    column = ColumnSketch()
    column.update(hash_range(context.seed, 0, VALUES))
    heaps = column.dense()
    return [
        Result("the consumer", median[WITH], "tuples/s", "without sketches", median[WITHOUT], "ratio >= 0.85"),
        *(
            Result(f"{name} of {PAIRS} pairs", pair[WITH], "tuples/s", "without sketches", pair[WITHOUT])
            for name, pair in (("worst", pairs[0]), ("best", pairs[-1]))
        ),
        Result(f"heaps of 10^6 values, m = {column.m}", len(heaps.to_bytes()) / 1e3, "KB", goal="value <= 120"),
        Result("with the smallest hashes beside them", len(column.to_bytes()) / 1e3, "KB", goal="value <= 120"),
        Result("registers alone", len(heaps.hll().to_bytes()) / 1e3, "KB"),
    ]


def _consume(context: Context, postgres: Server, database: str, copy: str, feed: Path) -> float:
    """Apply the feed to a copy of the state, and give the tuples a second."""
    with postgres.clone(database, copy):
        if copy == WITHOUT:
            _take_sketches(postgres, copy)
        consumed = consume(context, postgres, copy, feed)
        context.say(f"{copy}: {consumed.tuples_per_second:,.0f} tuples/s")
        if copy == WITH:
            _require_current(postgres, copy)
    return consumed.tuples_per_second


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
