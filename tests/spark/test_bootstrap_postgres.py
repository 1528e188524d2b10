"""A Postgres source: all tables in one snapshot, whatever happens meanwhile; texts as its changes will have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from service.core.errors import SourceError
from service.store.database import connect
from service.store.source_reader import READER_NAME, SourceSnapshot, page_ranges, read_pages
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options, open_source
from tests.postgres import fresh_database, let_go
from tests.spark.oracle import count_cells, query, read_state
from tests.waiting import wait_for


@pytest.fixture
def source_url(logical_server) -> Iterator[str]:
    """Give an empty database beside the state's."""
    with fresh_database(logical_server, "template0") as url:
        yield url


def test_all_tables_of_a_database_become_the_state_of_their_canonical_texts(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    query(
        source_url,
        """
        CREATE DOMAIN price AS numeric(10, 2);
        CREATE SCHEMA "odd schema";
        CREATE TABLE "odd schema"."a ""big"" table" (
            "id {0} %s" integer, cost price, note text, at timestamptz, tags integer[], doc jsonb,
            doubled integer GENERATED ALWAYS AS ("id {0} %s" * 2) STORED);
        INSERT INTO "odd schema"."a ""big"" table" VALUES
            (1, 1.00, 'a', '2026-01-02 03:04:05+01', '{1,2}', '{"b": 1.0, "a": [true, null]}'),
            (2, 2.50, '', NULL, '{}', '"text"'), (3, NULL, NULL, NULL, NULL, NULL);
        CREATE TABLE measured (day date NOT NULL, value integer) PARTITION BY RANGE (day);
        CREATE TABLE measured_1 PARTITION OF measured FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
        CREATE TABLE measured_2 (value integer, day date NOT NULL);
        ALTER TABLE measured ATTACH PARTITION measured_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
        INSERT INTO measured SELECT '2026-01-01'::date + i, i FROM generate_series(0, 58) AS i;
        CREATE TABLE lonely (value integer);
        INSERT INTO lonely VALUES (NULL), (1), (NULL);
        CREATE TABLE nothing (value integer);
        CREATE TABLE left_out (value integer);
        CREATE TABLE without_columns ();
        CREATE VIEW seen AS SELECT * FROM lonely;
        """,
    )
    options = Options(source_url, "db", database_url, exclude=("public.left_out",))
    summary = run_bootstrap(spark, options)
    odd = 'odd schema.a "big" table.'
    days = [f"2026-01-{d:02d}" for d in range(1, 32)] + [f"2026-02-{d:02d}" for d in range(1, 29)]
    expected = count_cells(
        {
            odd + "id {0} %s": ["1", "2", "3"],
            odd + "cost": ["1", "2.5", None],
            odd + "note": ["a", "", None],
            odd + "at": ["2026-01-02T02:04:05.000000Z", None, None],
            odd + "tags": ["[1,2]", "[]", None],
            odd + "doc": ['{"a":[true,null],"b":1}', '"text"', None],
            odd + "doubled": ["2", "4", "6"],
            "public.measured.day": days,
            "public.measured.value": [str(i) for i in range(59)],
            "public.lonely.value": [None, "1", None],
            "public.nothing.value": [],
        }
    )
    assert read_state(database_url) == expected
    assert summary.tables == 4
    kinds = dict(query(database_url, "SELECT column_name, data_type FROM attribute WHERE schema_name = 'odd schema'"))
    assert kinds == {
        "id {0} %s": "integer", "cost": "numeric(10,2)", "note": "text", "at": "timestamp with time zone",
        "tags": "integer[]", "doc": "jsonb", "doubled": "integer",
    }  # fmt: skip


def test_a_new_table_joins_as_a_source_of_its_own(spark: SparkSession, database_url: str, source_url: str) -> None:
    query(source_url, "CREATE TABLE old (id integer); INSERT INTO old VALUES (1), (2)")
    run_bootstrap(spark, Options(source_url, "db", database_url))
    query(source_url, "CREATE TABLE new (id integer); INSERT INTO new VALUES (2); INSERT INTO old VALUES (3)")
    run_bootstrap(spark, Options(source_url, "db_new", database_url, only_tables=("public.new",)))
    assert read_state(database_url) == count_cells({"public.old.id": ["1", "2"], "public.new.id": ["2"]})
    recomputed = run_bootstrap(spark, Options(source_url, "db_new", database_url, check=True))
    assert recomputed.differences == []
    with pytest.raises(SourceError, match=r"--only-table public\.none: the source has no such table"):
        run_bootstrap(spark, Options(source_url, "more", database_url, only_tables=("public.none",)))


def test_a_large_table_is_read_in_page_ranges_of_one_snapshot(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    """Rows that others insert, delete and move while the job runs are not seen."""
    query(source_url, "CREATE TABLE t (id integer, text text)")
    query(source_url, "INSERT INTO t SELECT i, repeat('x', 100) || i % 7 FROM generate_series(1, 5000) AS i")
    options = Options(source_url, "db", database_url, task_bytes=100_000, partitions=2)
    source = open_source(options)
    splits = source.splits(100_000, lambda function, items: [function(item) for item in items])
    assert len(splits) > 4
    query(
        source_url, "UPDATE t SET id = -id WHERE id % 2 = 0; DELETE FROM t WHERE id % 5 = 0; INSERT INTO t VALUES (0)"
    )
    tables = [table for split in splits for table in source.reader().read(split)]
    source.close()
    found = sorted(int(cell) for table in tables for cell in table.column(0).to_pylist())
    assert found == list(range(1, 5001))

    run_bootstrap(spark, options)
    now = query(source_url, "SELECT id::text, text FROM t")
    assert read_state(database_url) == count_cells(
        {"public.t.id": [row[0] for row in now], "public.t.text": [row[1] for row in now]}
    )


def test_a_line_end_in_a_text_stays_where_a_block_of_four_mebibytes_ends_in_it(source_url: str) -> None:
    query(source_url, "CREATE TABLE t (text text); INSERT INTO t SELECT repeat('x', (4 << 20) - 2) || E'\\r\\nend'")
    with closing(open_source(Options(source_url, "db"))) as source:
        (split,) = source.splits(1 << 30, lambda function, items: [function(item) for item in items])
        (part,) = source.reader().read(split)
    assert [(text[-5:], len(text)) for text in part.column(0).to_pylist()] == query(
        source_url, "SELECT right(text, 5), length(text) FROM t"
    )


def test_a_text_that_begins_with_a_byte_order_mark_keeps_it_where_a_copy_begins(source_url: str) -> None:
    query(source_url, "CREATE TABLE t (text text); INSERT INTO t VALUES (U&'\\FEFFa')")
    with closing(open_source(Options(source_url, "db"))) as source:
        (split,) = source.splits(1 << 30, lambda function, items: [function(item) for item in items])
        (part,) = source.reader().read(split)
    assert [(text,) for text in part.column(0).to_pylist()] == query(source_url, "SELECT text FROM t")


def test_what_the_bootstrap_saw_is_recorded_for_the_feed(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    """A change belongs to the bootstrap exactly when its transaction is visible in the stored snapshot."""
    query(source_url, "CREATE TABLE t (id integer)")
    ((before,),) = query(source_url, "INSERT INTO t VALUES (1); SELECT pg_current_xact_id()::text::bigint")
    run_bootstrap(spark, Options(source_url, "db", database_url))
    ((after,),) = query(source_url, "INSERT INTO t VALUES (2); SELECT pg_current_xact_id()::text::bigint")
    ((snapshot, location),) = query(database_url, "SELECT snapshot, location FROM source")
    ((saw_before, saw_after),) = query(
        source_url,
        "SELECT pg_visible_in_snapshot(%s::text::xid8, %s::pg_snapshot), "
        "pg_visible_in_snapshot(%s::text::xid8, %s::pg_snapshot)",
        str(before), snapshot, str(after), snapshot,
    )  # fmt: skip
    assert (saw_before, saw_after) == (True, False)
    assert location.startswith("postgresql://")


def test_the_password_of_a_source_is_not_kept(source_url: str) -> None:
    query(source_url, "CREATE TABLE t (id integer)")
    separator = "&" if "?" in source_url else "?"
    source = open_source(Options(f"{source_url}{separator}password=secret", "db"))
    source.close()
    assert "secret" not in source.location


@pytest.mark.parametrize("address", ["s3://KEY:hidden@bucket/shop", "s3a://KEY:a/hidden@bucket/shop"])
def test_keys_in_an_address_of_files_are_refused_unsaid(address: str) -> None:
    """They would be kept with the source, and stand in messages."""
    with pytest.raises(SourceError, match="leave user and key out of the address, and give them in settings") as error:
        open_source(Options(address, "shop"))
    assert "hidden" not in str(error.value)


def test_a_table_that_may_not_be_read_is_named(
    spark: SparkSession, database_url: str, source_url: str, logical_server
) -> None:
    query(source_url, "CREATE TABLE t (id integer); CREATE TABLE closed (id integer); INSERT INTO closed VALUES (1)")
    query(source_url, "CREATE ROLE source_reader LOGIN; GRANT SELECT ON t TO source_reader")
    try:
        url = source_url.replace("postgres@", "source_reader@", 1)
        with pytest.raises(SourceError, match=r"public\.closed on .*permission denied.*Grant SELECT.*--exclude"):
            run_bootstrap(spark, Options(url, "db", database_url))
    finally:
        query(source_url, "DROP OWNED BY source_reader; DROP ROLE source_reader")


def test_a_source_that_is_away_or_empty_is_named(source_url: str) -> None:
    with pytest.raises(SourceError, match="has no table"):
        open_source(Options(source_url, "db"))
    with pytest.raises(SourceError, match=r"Cannot reach .*127\.0\.0\.1:1[:.].*correct the source's address"):
        open_source(Options("postgresql://nobody:secret@127.0.0.1:1/none", "db"))


def test_a_table_that_is_dropped_before_it_is_looked_at_is_told(source_url: str) -> None:
    """The snapshot still has it in its catalog, and no file of it is there."""
    query(source_url, "CREATE TABLE t (id integer)")
    with closing(SourceSnapshot(source_url)) as snapshot:
        query(source_url, "DROP TABLE t")
        (table,) = snapshot.tables()
        ((pages, size),) = page_ranges(table.parts[0], 100)
        assert size == 0
        with pytest.raises(SourceError, match=r"public\.t on .*it was changed while it was read.*run the same command"):
            read_pages(source_url, snapshot.exported, pages, table.columns)


def test_a_snapshot_whose_session_was_ended_is_told_of_the_source(source_url: str) -> None:
    """As by who ends what is long idle in a transaction, while all is merged."""
    query(source_url, "CREATE TABLE t (id integer)")
    with closing(SourceSnapshot(source_url)) as snapshot:
        found = snapshot.tables()
        sessions = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
        query(source_url, f"SELECT pg_terminate_backend(pid) {sessions}", READER_NAME)
        wait_for(lambda: not query(source_url, f"SELECT pid {sessions}", READER_NAME))
        for ask in (snapshot.tables, lambda: snapshot.require_unbroken(found)):
            with pytest.raises(SourceError, match=r"^The .* lost the snapshot: .*run the same command again"):
                ask()


def test_no_timeout_of_a_role_or_a_database_ends_a_snapshot(source_url: str) -> None:
    those = "'^(statement|transaction|idle_in_transaction_session)_timeout$'"  # the second from Postgres 17 on
    timeouts = [name for (name,) in query(source_url, f"SELECT name FROM pg_settings WHERE name ~ {those}")]
    name = urlsplit(source_url).path.strip("/")
    for timeout in timeouts:
        query(source_url, f'ALTER DATABASE "{name}" SET {timeout} = 60000')
    let_go(source_url)  # sessions have the settings that they began with
    assert {setting for (setting,) in query(source_url, f"SELECT current_setting('{timeouts[0]}')")} == {"1min"}
    with connect(source_url, "test") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(name) FROM unnest(%s) AS name", (timeouts,))
        assert {setting for (setting,) in cursor} == {"0"}
