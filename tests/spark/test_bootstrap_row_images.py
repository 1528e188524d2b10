"""A bootstrap that keeps rows: they are those of the source, by key, and nothing is left of one that died."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.core.errors import SourceError
from service.core.row_key import row_key
from service.store.embedded import EmbeddedPostgres
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.row_images import choose_row_images, told_choice
from spark_jobs.sources import Options, SourceTable
from tests.postgres import fresh_database
from tests.spark.oracle import query, write_csv
from tests.spark.test_bootstrap import shop, write_tables

COLUMNS = (("id", "integer"), ("name", "text"))


def stored(url: str) -> dict[tuple[str, str], list[str | None]]:
    """Read the kept rows by table and row key."""
    found = query(
        url,
        "select table_name, replace(row_key::text, '-', ''), cells from row_image join tracked_table using (table_id)",
    )
    return {(table, key): cells for table, key, cells in found}


def test_rows_are_kept_by_their_key(spark: SparkSession, tmp_path: Path, database_url: str) -> None:
    tables = shop(orders=500)
    write_tables(tmp_path, tables)
    options = Options(
        str(tmp_path),
        "shop",
        database_url,
        keys=(("orders", ("id", "person")), ("shop.empty", ("id",))),
        task_bytes=9001,
    )
    summary = run_bootstrap(spark, options)
    assert summary.images == ["row images kept: shop.empty (by id), shop.orders (by id, person)"]
    # An empty field of a CSV file is NULL, and so in the kept rows.
    rows = list(zip(*tables["orders"].values(), strict=True))
    assert stored(database_url) == {("orders", row_key(row[:2]).hex()): list(row) for row in rows}
    assert query(
        database_url, "select table_name, key_columns, row_images, begun_version from tracked_table order by 1"
    ) == [("empty", ["id"], True, 1), ("orders", ["id", "person"], True, 1), ("person", [], False, 1)]


def test_a_second_reading_takes_the_place_of_the_kept_rows(
    spark: SparkSession, tmp_path: Path, database_url: str
) -> None:
    write_csv(tmp_path / "t.csv", ["id", "v"], [["1", "a"], ["2", "b"]])
    options = Options(str(tmp_path), "s", database_url, keys=(("t", ("id",)),))
    run_bootstrap(spark, options)
    write_csv(tmp_path / "t.csv", ["id", "v"], [["2", "c"]])
    run_bootstrap(spark, replace(options, replace=True))
    assert list(stored(database_url).values()) == [["2", "c"]]
    assert query(database_url, "select count(*) from row_image") == [(1,)]
    run_bootstrap(spark, replace(options, replace=True, keys=()))
    assert query(database_url, "select count(*) from row_image") == [(0,)]


def test_columns_that_do_not_tell_rows_apart_are_refused(
    spark: SparkSession, tmp_path: Path, database_url: str
) -> None:
    write_csv(tmp_path / "t.csv", ["id", "v"], [["1", "a"], ["1", "b"], ["2", "b"]])
    with pytest.raises(SourceError, match=r"s\.t: its key id does not tell its rows apart: 3 rows have 2 keys"):
        run_bootstrap(spark, Options(str(tmp_path), "s", database_url, keys=(("t", ("id",)),)))
    assert query(database_url, "select (select count(*) from row_image), (select count(*) from state_version)") == [
        (0, 0)
    ]


def test_kept_rows_of_a_bootstrap_that_died_are_cleared_by_the_next(
    spark: SparkSession, tmp_path: Path, database_url: str
) -> None:
    write_csv(tmp_path / "t.csv", ["id"], [["1"]])
    query(
        database_url,
        "insert into row_image (table_id, row_key, cells) values (77, gen_random_uuid(), '{a}') returning 1",
    )
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url))
    assert query(database_url, "select count(*) from row_image") == [(0,)]


def table(name: str, identity: str | None, key: tuple[str, ...] = ("id",)) -> SourceTable:
    return SourceTable("public", name, COLUMNS, key, identity)


def test_by_itself_a_table_of_postgres_without_full_identity_keeps_its_rows() -> None:
    tables = [table("a", "default"), table("b", "full"), table('c "x"', "nothing", ()), table("d", None)]
    chosen, warnings = choose_row_images(tables, Options("postgresql://x", "s"))
    assert [one.row_images for one in chosen] == [True, False, False, False]
    (warning,) = warnings
    assert 'public.c "x" has neither' in warning
    assert 'ALTER TABLE public."c ""x""" REPLICA IDENTITY FULL (and so for each of its partitions' in warning
    assert told_choice(chosen) == [
        "row images kept: public.a (by id)",
        "no row images needed (REPLICA IDENTITY FULL): public.b",
    ]


def test_the_choice_can_be_made_by_hand() -> None:
    tables = [table("a", "default"), table("b", "full")]
    chosen, _ = choose_row_images(tables, Options("", "s", row_images="always"))
    assert [one.row_images for one in chosen] == [True, True]
    chosen, warnings = choose_row_images(tables, Options("", "s", row_images="never"))
    assert [one.row_images for one in chosen] == [False, False]
    assert ["ALTER TABLE public.a" in warning for warning in warnings] == [True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("", "s", row_images="always"), r"--key public\.t=COLUMN"),
        (Options("", "s", row_images="always", insert_only=True), "--row-images always: an insert-only"),
        (Options("", "s", row_images="always", sketch_only=True), "--row-images always: a sketch-only"),
        (Options("", "s", keys=(("t", ("id",)),), insert_only=True), "--key t: an insert-only source keeps no rows"),
        (
            Options("", "s", keys=(("t", ("id",)),), sketch_only=True),
            "--key t: a sketch-only source keeps no rows.*leave it out.*REPLICA IDENTITY FULL",
        ),
        (Options("", "s", keys=(("t", ("id",)),), row_images="never"), "--key t: with --row-images never"),
        (Options("", "s", keys=(("t", ("nosuch",)),)), "no column 'nosuch'"),
        (Options("", "s", keys=(("other", ("id",)),)), "--key other: the source has no such table"),
        (Options("", "s", keys=(("t", ("id",)),)), r"its changes tell the row before by .* nothing.*IDENTITY FULL"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(options: Options, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        choose_row_images([table("t", "default", ())], options)


@pytest.fixture
def source_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Give an empty database beside the state's."""
    with fresh_database(postgres_server, "template0") as url:
        yield url


def test_the_kept_rows_of_a_database_hold_what_was_counted(
    spark: SparkSession, database_url: str, source_url: str
) -> None:
    query(
        source_url,
        """
        CREATE TABLE kept (b integer, a text, cost numeric(10, 2), at timestamptz, tags text[], doc jsonb, raw bytea,
            PRIMARY KEY (a, b));
        INSERT INTO kept SELECT i, chr(64 + i % 7) || E'"\\\\\\t\\n', i / 4.0, '2026-01-02 03:04:05+01',
            ARRAY['x', NULL, i::text], jsonb_build_object('b', 1.50, 'a', ARRAY[i]), '\\x00ff'
            FROM generate_series(1, 400) AS i;
        INSERT INTO kept (a, b) VALUES ('', 0), (E'\\u0001', 0);
        CREATE TABLE whole (id integer PRIMARY KEY);
        ALTER TABLE whole REPLICA IDENTITY FULL;
        """,
    )
    summary = run_bootstrap(spark, Options(source_url, "db", database_url, task_bytes=8192))
    assert summary.images == [
        "row images kept: public.kept (by a, b)",
        "no row images needed (REPLICA IDENTITY FULL): public.whole",
    ]
    cells = Counter(
        (ordinal, hashlib.sha256(cell.encode()).hexdigest()[:32])
        for row in stored(database_url).values()
        for ordinal, cell in enumerate(row)
        if cell is not None
    )
    counted = query(
        database_url,
        "select ordinal, replace(value_key::text, '-', ''), frequency from gen_rec, "
        "unnest(attribute_ids, frequencies) as of (attribute_id, frequency) join attribute using (attribute_id) "
        "where parts is null",
    )
    assert cells == {(ordinal, key): frequency for ordinal, key, frequency in counted}
    assert {key for _, key in stored(database_url)} == {
        row_key([row[1], row[0]]).hex() for row in stored(database_url).values()
    }
