"""Own the row `feed-postgres`: changes of lineitem from a Postgres that is followed directly."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import psycopg2

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.feeds import Change, batches, write_feed
from benchmarks.http_answers import serving
from benchmarks.results_file import Result
from benchmarks.rows.freshness import RATE, SECONDS, WARM_UP, delays_of, watching
from benchmarks.state import consume, environment, server, tpch_state
from service.store.embedded import EmbeddedPostgres
from service.store.feed_start import FeedStart, put_feed_start
from service.stream.postgres_address import PostgresAddress, parse_address
from service.stream.postgres_slot import new_slot

SEED = 12
TUPLES = 100_000
TRANSACTION = 10
"""Changes of one transaction of the source."""


def run(context: Context) -> list[Result]:
    """Apply the same changes from a file and from the source, then watch the API at a steady rate."""
    bulk = context.scaled(TUPLES)
    steady = RATE * (WARM_UP + max(5, round(SECONDS * context.size)))
    folder = tpch.tables(context.work, context.scale_factor)
    columns = tpch.lineitem_columns(folder)
    by_kind = tpch.lineitem_changes(folder, -(-(bulk + steady) // 3), context)
    changes = [change for three in zip(*by_kind.values(), strict=True) for change in three][: bulk + steady]
    file = write_feed(context.work / "lineitem-mixed.jsonl", changes[:bulk], tpch.NAME, {"lineitem": columns})
    with server(context) as postgres:
        state = tpch_state(context, postgres)
        with postgres.clone(state, "feed_file"):
            from_file = consume(context, postgres, "feed_file", file)
        with _source(columns, changes) as source, postgres.clone(state, "feed_postgres") as url:
            address = _begin(url, source)
            feed = f"{address.url}&name={tpch.NAME}"
            _write(source, columns, changes[:bulk], None)
            direct = consume(context, postgres, "feed_postgres", feed)
            if direct.tuples != bulk:
                raise ValueError(f"{direct.tuples} of {bulk} changes were applied")
            log = context.logs / "feed-postgres.log"
            with serving(["run", "--feed", feed], environment(url), log) as client:
                warm = bulk + WARM_UP * RATE
                _watched(client, source, columns, changes[bulk:warm], address.slot, bulk)
                committed, seen = _watched(client, source, columns, changes[warm:], address.slot, warm)
    delays = delays_of(committed, seen)
    cuts = quantiles(delays, n=100)
    baseline = ("from a file", from_file.tuples_per_second)
    return [
        Result("applied", direct.tuples_per_second, "tuples/s", *baseline, "ratio >= 0.6"),
        Result("p50 from commit to the API", cuts[49], "s"),
        Result("p99 from commit to the API", cuts[98], "s", goal="value <= 1"),
        Result("longest", max(delays), "s"),
        Result("offered", len(committed) / (committed[-1] - committed[0]), "tuples/s"),
    ]


def _begin(state: str, source: str) -> PostgresAddress:
    """Make the source's slot, and let the state's feed begin there; the state holds the source's rows already."""
    address = parse_address(source, tpch.NAME)
    with (
        new_slot(address, [(tpch.NAME, "lineitem")], replace=False) as start,
        closing(psycopg2.connect(state)) as connection,
        connection,
        connection.cursor() as cursor,
    ):
        put_feed_start(cursor, FeedStart(start.feed, start.topic, start.position.source_position), 1)
    return address


def _watched(
    client: httpx.Client, source: str, columns: Sequence[str], changes: Sequence[Change], topic: str, before: int
) -> tuple[list[float], list[tuple[float, int]]]:
    """Commit changes at RATE; give the time of each one's commit, and (time, how many of them) as the API told them."""
    with watching(client, topic, before + len(changes)) as seen:
        committed = _write(source, columns, changes, RATE)
    return committed, [(at, offset - before) for at, offset in seen]


def _write(source: str, columns: Sequence[str], changes: Sequence[Change], rate: int | None) -> list[float]:
    """Commit changes in small transactions, at a rate or as fast as it goes; return the time of each one's commit."""
    committed: list[float] = []
    with closing(psycopg2.connect(source)) as connection:
        started = time.perf_counter()
        for portion in batches(changes, TRANSACTION):
            if rate is not None:
                time.sleep(max(0.0, started + len(committed) / rate - time.perf_counter()))
            with connection, connection.cursor() as cursor:
                cursor.execute(b";".join(_statement(cursor, columns, change) for change in portion))
            committed += [time.time()] * len(portion)
    return committed


def _statement(cursor: Any, columns: Sequence[str], change: Change) -> bytes:
    """Write one change as a statement; one row is changed, also where others equal it."""
    places = ", ".join(["%s"] * len(columns))
    if change.before is None:
        return bytes(cursor.mogrify(f"insert into tpch.lineitem values ({places})", change.after))
    row = f"({', '.join(columns)}) = ({places})"
    where = f"ctid = (select ctid from tpch.lineitem where l_orderkey = %s and {row} limit 1)"
    found = (change.before[columns.index("l_orderkey")], *change.before)
    if change.after is None:
        return bytes(cursor.mogrify(f"delete from tpch.lineitem where {where}", found))
    settings = ", ".join(f"{column} = %s" for column in columns)
    return bytes(cursor.mogrify(f"update tpch.lineitem set {settings} where {where}", (*change.after, *found)))


@contextmanager
def _source(columns: Sequence[str], changes: Sequence[Change]) -> Iterator[str]:
    """Run a source with the rows that will be changed; give its address."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-source-"))
    settings = {"wal_level": "logical", "max_wal_senders": "4"}
    with EmbeddedPostgres(folder, True, settings) as postgres, closing(psycopg2.connect(postgres.url)) as connection:
        with connection, connection.cursor() as cursor:
            texts = ", ".join(f"{column} text" for column in columns)
            cursor.execute(f"create schema tpch; create table tpch.lineitem ({texts})")
            cursor.execute("alter table tpch.lineitem replica identity full")
            insert = f"insert into tpch.lineitem values ({', '.join(['%s'] * len(columns))})"
            for portion in batches([change for change in changes if change.before is not None], 1000):
                cursor.execute(b";".join(cursor.mogrify(insert, change.before) for change in portion))
            cursor.execute("create index on tpch.lineitem (l_orderkey)")
        yield postgres.url
