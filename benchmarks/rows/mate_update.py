"""Own the row `mate-update`: what it costs the consumer to keep a table's rows indexed for joins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.feeds import write_feed
from benchmarks.processes import run as run_process
from benchmarks.results_file import Result
from benchmarks.state import Server, bootstrap, consume, environment, finished, one, server
from service.store.database import make_engine
from service.store.join_tracked_search import PostgresTrackedTables
from service.usecases.joinable import JoinQuery, find_joinable

SEED = 18
TUPLES = 30_000
"""Of each kind: inserts, deletes, updates."""
SHARE = 0.1
"""Of the scale factor, as in `sketch-upkeep`."""
PAIRS = 5
"""An odd number: the median is one of them. Runs of a pair follow each other, and each kind comes first in turn."""
KEY = ("l_orderkey", "l_linenumber")
KEYS_ASKED = 1000
STATE, WITH, WITHOUT = "kept_lineitem", "with_index", "without_index"


def run(context: Context) -> list[Result]:
    """Apply the same changes to the same state, whose rows are kept, with and without an index of lineitem."""
    small = replace(context, scale_factor=context.scale_factor * SHARE)
    folder = tpch.tables(small.work, small.scale_factor)
    changes = tpch.lineitem_changes(folder, small.scaled(TUPLES), small)
    feed = write_feed(
        small.work / "lineitem-joins.jsonl",
        (change for of_kind in changes.values() for change in of_kind),
        tpch.NAME,
        {"lineitem": tpch.lineitem_columns(folder)},
    )
    pairs = []
    with server(small) as postgres:
        database = f"{STATE}_{small.scale_factor:g}".replace(".", "_")
        if not finished(postgres, database):
            key = f"{tpch.NAME}.lineitem={','.join(KEY)}"
            bootstrap(small, postgres, folder, tpch.NAME, database, "--key", key)
        _consume(small, postgres, database, WITH, feed)  # what is read is in the machine's memory from then on
        for number in range(PAIRS):
            order = (WITHOUT, WITH) if number % 2 == 0 else (WITH, WITHOUT)
            pairs.append({copy: _consume(small, postgres, database, copy, feed) for copy in order})
    pairs.sort(key=lambda pair: pair[WITH] / pair[WITHOUT])
    median = pairs[PAIRS // 2]
    return [
        Result("the consumer", median[WITH], "tuples/s", "without an index", median[WITHOUT], "ratio >= 0.9"),
        *(
            Result(f"{name} of {PAIRS} pairs", pair[WITH], "tuples/s", "without an index", pair[WITHOUT])
            for name, pair in (("worst", pairs[0]), ("best", pairs[-1]))
        ),
    ]


def _consume(context: Context, postgres: Server, database: str, copy: str, feed: Path) -> float:
    """Apply the feed to a copy of the state, and give the tuples a second."""
    with postgres.clone(database, copy) as url:
        if copy == WITH:
            run_process(
                [subsetd(), "join-index", "track", f"{tpch.NAME}.lineitem"],
                log=context.logs / "join-index.log",
                environment=environment(url),
            )
        with postgres.connection(copy, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")
        consumed = consume(context, postgres, copy, feed)
        context.say(f"{copy}: {consumed.tuples_per_second:,.0f} tuples/s")
        if copy == WITH:
            _require_current(postgres, copy)
    return consumed.tuples_per_second


def _require_current(postgres: Server, database: str) -> None:
    """Raise unless a search finds the newest rows by their keys, and no others: a fast wrong answer is no result."""
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT cells[1], cells[4] FROM row_image WHERE cells IS NOT NULL ORDER BY version DESC, row_key LIMIT %s",
            (KEYS_ASKED,),
        )
        rows = cursor.fetchall()
        cursor.execute(
            "SELECT count(*) FROM row_image WHERE cells[1] = ANY (%s) AND cells[4] = '7'", ([row[0] for row in rows],)
        )
        sevenths = one(cursor)
    engine = make_engine(postgres.url(database), "subsetd-bench")
    try:
        for numbers, expected in (([row[1] for row in rows], len(rows)), (["7"] * len(rows), sevenths)):
            query = JoinQuery([[row[0] for row in rows], numbers])
            with PostgresTrackedTables(engine).snapshot() as snapshot:
                (found,) = find_joinable(snapshot, query, 1).tables
            if found.matched_keys != expected:
                raise ValueError(f"{found.matched_keys} keys join, not {expected}")
    finally:
        engine.dispose()
