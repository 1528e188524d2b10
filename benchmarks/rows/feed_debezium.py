"""Own the row `feed-debezium`: from a commit in the source, through Debezium and Kafka, until the API shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import httpx
import psycopg2

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.feeds import Change, batches
from benchmarks.http_answers import serving
from benchmarks.results_file import Result
from benchmarks.rows.freshness import RATE, SECONDS, WARM_UP, delays_of, watching
from benchmarks.state import environment, server, tpch_state

SEED = 11
BURST = 60_000
"""Changes that are committed as fast as the source takes them."""

TRANSACTION = 10
"""Changes of one transaction of the source."""


def run(context: Context) -> list[Result]:
    """Write changes of lineitem to a source at a steady rate, then as fast as it goes, and watch the API."""
    steady = RATE * (WARM_UP + max(5, round(SECONDS * context.size)))
    burst = context.scaled(BURST)
    folder = tpch.tables(context.work, context.scale_factor)
    columns = tpch.lineitem_columns(folder)
    by_kind = tpch.lineitem_changes(folder, -(-(steady + burst) // 3), context)
    changes = [change for three in zip(*by_kind.values(), strict=True) for change in three][: steady + burst]
    with (
        server(context) as postgres,
        postgres.clone(tpch_state(context, postgres), "feed_debezium") as url,
        _source(columns, changes) as source,
        _debezium(source) as (topic, feed),
        serving(["run", "--feed", feed], environment(url), context.logs / "feed-debezium.log") as client,
    ):
        warm = WARM_UP * RATE
        _write(client, source, columns, changes[:warm], topic, 0, RATE)
        delays = delays_of(*_write(client, source, columns, changes[warm:steady], topic, warm, RATE))
        committed, seen = _write(client, source, columns, changes[steady:], topic, steady, None)
    cuts = quantiles(delays, n=100)
    return [
        Result("p50 from commit to the API", cuts[49], "s"),
        Result("p99 from commit to the API", cuts[98], "s"),
        Result("longest", max(delays), "s"),
        Result("applied as fast as they come", len(committed) / (seen[-1][0] - committed[0]), "tuples/s"),
        Result("committed as fast as the source takes them", burst / (committed[-1] - committed[0]), "tuples/s"),
    ]


def _write(
    client: httpx.Client,
    source: str,
    columns: Sequence[str],
    changes: Sequence[Change],
    topic: str,
    before: int,
    rate: int | None,
) -> tuple[list[float], list[tuple[float, int]]]:
    """Commit the changes; give the time of each one's commit, and (time, how many of them) as the API told them."""
    committed: list[float] = []
    with watching(client, topic, before + len(changes)) as seen, closing(psycopg2.connect(source)) as connection:
        started = time.perf_counter()
        for portion in batches(list(enumerate(changes, before)), TRANSACTION):
            if rate is not None:
                time.sleep(max(0.0, started + len(committed) / rate - time.perf_counter()))
            with connection, connection.cursor() as cursor:
                cursor.execute(b";".join(_statement(cursor, columns, *numbered) for numbered in portion))
            committed += [time.time()] * len(portion)
    return committed, [(at, offset - before) for at, offset in seen]


def _statement(cursor: psycopg2.extensions.cursor, columns: Sequence[str], number: int, change: Change) -> bytes:
    """Write one change as a statement; the row that it changes has its number."""
    if change.before is None:
        places = ", ".join(["%s"] * (len(columns) + 1))
        return cursor.mogrify(f"insert into tpch.lineitem values ({places})", (number, *(change.after or ())))
    if change.after is None:
        return cursor.mogrify("delete from tpch.lineitem where number = %s", (number,))
    settings = ", ".join(f"{column} = %s" for column in columns)
    return cursor.mogrify(f"update tpch.lineitem set {settings} where number = %s", (*change.after, number))


@contextmanager
def _source(columns: Sequence[str], changes: Sequence[Change]) -> Iterator[str]:
    """Run a source with the rows that will be changed, each with the number of its change; give its address."""
    from tests.connect import source_server

    with source_server() as postgres, closing(psycopg2.connect(postgres.url)) as connection:
        with connection, connection.cursor() as cursor:
            texts = ", ".join(f"{column} text" for column in columns)
            cursor.execute(f"create schema tpch; create table tpch.lineitem (number integer primary key, {texts})")
            cursor.execute("alter table tpch.lineitem replica identity full")
            places = ", ".join(["%s"] * (len(columns) + 1))
            rows = [(number, *change.before) for number, change in enumerate(changes) if change.before is not None]
            cursor.executemany(f"insert into tpch.lineitem values ({places})", rows)
        yield postgres.url


@contextmanager
def _debezium(source: str) -> Iterator[tuple[str, str]]:
    """Run the tests' broker and connector over the source; give the topic of lineitem and the feed's address."""
    from tests.broker import KafkaBroker
    from tests.connect import connecting

    with TemporaryDirectory(prefix="subsetd-broker-") as folder:
        broker = KafkaBroker(Path(folder))
        broker.start()
        try:
            with connecting(
                broker, source, column_exclude_list="tpch.lineitem.number", tombstones_on_delete="false"
            ) as connect:
                topic = broker.create_topic(name=f"{connect.prefix}.tpch.lineitem")
                transactions = broker.create_topic(name=f"{connect.prefix}.transaction")
                connect.start()
                yield topic, f"kafka://{broker.bootstrap_servers}/{topic},{transactions}"
        finally:
            broker.kill()
