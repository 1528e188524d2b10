"""Own the following of a real Postgres in tests: begin without Spark, follow, recompute what must come out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from service.core.canonical import cell_decoder, value_keys
from service.core.model import StoredPosition
from service.store.canonical_sql import canonical_expression, needs_document_walk
from service.store.feed_start import FeedStart, put_feed_start
from service.store.source_reader import SourceSnapshot, StoredTable
from service.store.writer import PostgresWriter
from service.stream.pgoutput import PgoutputDecoder
from service.stream.postgres_address import parse_address
from service.stream.postgres_feed import PostgresFeed
from service.stream.postgres_slot import new_slot
from service.usecases.batches import BatchLimits, ErrorPolicy, Observer, Totals
from service.usecases.follow_feed import Consumer
from tests import states
from tests.following import Watch
from tests.postgres import kept_connection

NAME = "s"
"""Name of the source and of the one schema whose tables are followed."""

SHOP = """
CREATE SCHEMA s;
CREATE TABLE s.customers (id integer PRIMARY KEY, name text);
CREATE TABLE s.orders (id bigint PRIMARY KEY, customer integer, note text);
ALTER TABLE s.customers REPLICA IDENTITY FULL;
ALTER TABLE s.orders REPLICA IDENTITY FULL;
INSERT INTO s.customers SELECT i, 'customer ' || i FROM generate_series(1, 20) AS i;
INSERT INTO s.orders SELECT i, 1 + i % 20, NULL FROM generate_series(1, 30) AS i;
"""


@pytest.fixture
def shop(followed_url: str, database_url: str) -> str:
    """Give a source with two tables that the state of `database_url` is about to follow."""
    run(followed_url, SHOP)
    begin(database_url, followed_url)
    return followed_url


def run(url: str, *statements: str) -> None:
    """Run statements at the source, each in a transaction of its own."""
    with kept_connection(url).raw.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def read_tables(url: str, snapshot: str | None = None) -> states.Tables:
    """Read all tables of the schema as a bootstrap does: canonical texts, in the snapshot if one is given.

    Raises SourceError when a table was emptied meanwhile, as a bootstrap does.
    """
    tables = states.Tables({})
    with closing(SourceSnapshot(url, snapshot)) as source, source._connection.cursor() as cursor:
        for table in _followed(source):
            tables.columns[table.name] = [name for name, _ in table.columns]
            texts = ", ".join(canonical_expression(kind, f'"{name}"') for name, kind in table.columns)
            cursor.execute(f'SELECT {texts} FROM {NAME}."{table.name}"')
            walks = [cell_decoder(kind) if needs_document_walk(kind) else None for _, kind in table.columns]
            for cells in cursor.fetchall():
                row = [walk(cell) if walk else cell for walk, cell in zip(walks, cells, strict=True)]
                tables.add(table.name, row)
        source.require_unbroken(_followed(source))
    return tables


def begin(state_url: str, source_url: str, *, replace: bool = False) -> None:
    """Make slot and publication, and store the state of the slot's snapshot; rows of tables without FULL are kept."""
    address = parse_address(source_url, NAME)
    with closing(SourceSnapshot(source_url)) as source:
        found = _followed(source)
    with new_slot(address, [(t.schema, t.name) for t in found], replace=replace) as start:
        tables = read_tables(source_url, start.snapshot)
        states.store(state_url, tables)
        with states.transaction(state_url) as cursor:
            for table in found:
                cursor.executemany(
                    "update attribute set data_type = %s where table_name = %s and column_name = %s",
                    [(data_type, table.name, column) for column, data_type in table.columns],
                )
                keeps = table.replica_identity != "full"
                assert not keeps or not tables.rows.get(table.name), "images are not written here: begin empty"
                cursor.execute(
                    "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table, "
                    "key_columns, replica_identity, row_images) "
                    "select source_id, %s, %s, %s, %s, %s, %s, %s from source",
                    (NAME, table.name, NAME, table.name, list(table.key_columns), table.replica_identity, keeps),
                )
            put_feed_start(cursor, FeedStart(start.feed, start.topic, start.position.source_position), 1)


def open_feed(source_url: str, **options: Any) -> PostgresFeed:
    return PostgresFeed(parse_address(source_url, NAME), **options)


def consumer(
    state_url: str,
    source_url: str,
    *,
    records: int = 5000,
    on_error: ErrorPolicy = ErrorPolicy.STOP,
    watch: Observer | None = None,
    database_retry: float = 0.0,
    **options: Any,
) -> Consumer:
    return Consumer(
        PostgresWriter(state_url),
        lambda: open_feed(source_url, **options),
        lambda tables: PgoutputDecoder(tables, NAME),
        value_keys,
        watch or Watch(),
        limits=BatchLimits(records=records),
        on_error=on_error,
        cache_bytes=1 << 20,
        retry_seconds=database_retry,
    )


def follow(state_url: str, source_url: str, **options: Any) -> Totals:
    """Follow the source to where it stands now."""
    return consumer(state_url, source_url, **options).run(threading.Event(), until_end=True)


def require_equal(state_url: str, source_url: str) -> None:
    """Fail unless the state is what the source's rows make it: records, clusters, counters, INDs."""
    assert states.read(state_url) == states.expected(read_tables(source_url))


def rows(tables: states.Tables, name: str) -> Counter[tuple[str | None, ...]]:
    return +tables.rows.get(name, Counter())


def _followed(source: SourceSnapshot) -> Sequence[StoredTable]:
    return [table for table in source.tables(published=True) if table.schema == NAME]


def positions(url: str) -> dict[tuple[str, int], StoredPosition]:
    writer = PostgresWriter(url)
    try:
        writer.acquire()
        return writer.positions("postgres:s")
    finally:
        writer.close()


def stored(url: str) -> tuple[int, dict[str, Any]]:
    ((offset, position),) = states.query(url, "select next_offset, source_position from feed_position")
    return offset, position


def slot(url: str, column: str = "confirmed_flush_lsn - '0/0'::pg_lsn") -> Any:
    statement = f"select {column} from pg_replication_slots where slot_name = 'subsetd_s'"
    return states.query(url, statement)[0][0]
