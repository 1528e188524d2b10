"""The bootstrap against a cell-by-cell count: every way to cut the data gives the same state."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from service.core.errors import NotFoundError, StateError
from service.store.database import connect, make_engine
from service.store.locks import BOOTSTRAP_LOCK, is_held
from service.store.reader import PostgresStateReader
from service.store.writer_lock import release_locks, take_writer_lock
from service.usecases import queries
from service.usecases.answers import TransitionFilter
from spark_jobs import bootstrap, parquet_source
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.command_line import parse_arguments
from spark_jobs.sources import Options, open_source
from tests import states
from tests.spark.oracle import count_cells, query, read_state, write_csv
from tests.waiting import wait_for

SEED = 20261121

Table = dict[str, list[str | None]]


def shop(seed: int = SEED, orders: int = 4000) -> dict[str, Table]:
    """Make three tables with foreign keys, NULLs, empty strings, quotes, line breaks and long texts in them."""
    chance = random.Random(seed)
    persons = [str(i) for i in range(300)]
    awkward = ["", 'say "hi"', "two\nlines", "a,b", "\r\n", "ä€🙂" * 3, "x" * 300, "€" * 100, '"', ","]
    return {
        "person": {
            "id": list(persons),
            "name": [chance.choice([None, f"name {i % 90}", *awkward]) for i in range(300)],
        },
        "orders": {
            "id": [str(i) for i in range(orders)],
            "person": [chance.choice([None, *persons]) for _ in range(orders)],
            "note": [chance.choice([None, f"note {i}", *awkward]) for i in range(orders)],
        },
        "empty": {"id": [], "none": []},
    }


def write_tables(folder: Path, tables: dict[str, Table], newline: str = "\r\n") -> Path:
    for name, columns in tables.items():
        write_csv(folder / f"{name}.csv", list(columns), zip(*columns.values(), strict=True), newline)
    return folder


def columns_of(tables: dict[str, Table], schema: str = "shop") -> dict[str, list[str | None]]:
    return {f"{schema}.{table}.{name}": cells for table, named in tables.items() for name, cells in named.items()}


@pytest.mark.parametrize(
    ("task_bytes", "partitions", "newline"), [(None, 1, "\r\n"), (20_000, 4, "\r\n"), (9_001, 8, "\n")]
)
def test_a_folder_of_csv_becomes_the_state_that_counting_cells_gives(
    spark: SparkSession, database_url: str, tmp_path: Path, task_bytes: int | None, partitions: int, newline: str
) -> None:
    tables = shop()
    folder = write_tables(tmp_path / "data", tables, newline)
    options = Options(str(folder), "shop", database_url, task_bytes=task_bytes, partitions=partitions)
    with closing(psycopg2.connect(database_url)) as listening, listening.cursor() as cursor:
        listening.autocommit = True
        cursor.execute("listen subsetd_version")
        summary = run_bootstrap(spark, options)
        wait_for(lambda: listening.poll() or listening.notifies)
        assert [heard.payload for heard in listening.notifies] == [str(summary.version)]
    expected, found = count_cells(columns_of(tables)), read_state(database_url)
    # The key covers all of a value, the record keeps 256 bytes of it, cut between two characters.
    kept = {v: v.encode()[:256].decode(errors="ignore") for v in expected.records}
    assert found.records == {kept[v]: cells for v, cells in expected.records.items()}
    assert (found.clusters, found.counters, found.inds) == (expected.clusters, expected.counters, expected.inds)
    assert (summary.tables, summary.rows, summary.values) == (3, 4300, len(expected.records))
    assert (summary.clusters, summary.inds, summary.version) == (len(expected.clusters), len(expected.inds), 1)
    assert query(database_url, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'gen_rec'::regclass") == [
        (partitions,)
    ]


def test_parts_of_a_table_a_null_token_and_an_excluded_table(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    write_csv(tmp_path / "town" / "part-1.csv", ["id", "id", ""], [["1", "", "NA"], ["2", "NA", "c"]])
    write_csv(tmp_path / "town" / "part-2.csv", ["id", "id", ""], [["2", None, "d"]])
    write_csv(tmp_path / "town" / "_SUCCESS", [], [])
    write_csv(tmp_path / "left_out.csv", ["id"], [["1"]])
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, null_tokens=("NA", ""), exclude=("left_out",)))
    expected = count_cells(
        {"s.town.id": ["1", "2", "2"], "s.town.id#2": [None] * 3, "s.town.column_3": [None, "c", "d"]}
    )
    assert read_state(database_url) == expected


def test_a_second_source_shares_values_and_replacing_one_leaves_the_other(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """The state is always that of all sources' present data, and history tells what changed."""
    first, second = shop(1, 300), shop(2, 300)
    run_bootstrap(spark, Options(str(write_tables(tmp_path / "a", first)), "a", database_url, partitions=4))
    run_bootstrap(spark, Options(str(write_tables(tmp_path / "b", second)), "b", database_url, partitions=2))
    both = count_cells(columns_of(first, "a") | columns_of(second, "b"))
    assert read_state(database_url).inds == both.inds
    assert read_state(database_url).counters == both.counters

    changed = {"orders": {**shop(3, 200)["orders"], "added": ["1"] * 200}}
    folder = str(write_tables(tmp_path / "b2", changed))
    with pytest.raises(StateError, match=r"'b' was bootstrapped already, as version 2. Give --replace"):
        run_bootstrap(spark, Options(folder, "b", database_url))
    run_bootstrap(spark, Options(folder, "b", database_url, replace=True, partitions=8))
    after = count_cells(columns_of(first, "a") | columns_of(changed, "b"))
    found = read_state(database_url)
    assert (found.clusters, found.counters, found.inds) == (after.clusters, after.counters, after.inds)
    assert len(found.records) == len(after.records)

    kept = query(database_url, "SELECT dependent_id FROM uind WHERE until_version IS NULL AND since_version < 3")
    assert kept, "an inclusion dependency that still holds keeps its interval"
    transitions = query(
        database_url,
        "SELECT kind, count(*) FROM ind_transition WHERE version = 3 GROUP BY kind UNION ALL "
        "SELECT 'opened', count(*) FROM uind WHERE since_version = 3 UNION ALL "
        "SELECT 'closed', count(*) FROM uind WHERE until_version = 3",
    )
    counts = dict(transitions)
    assert counts["appeared"] == counts["opened"]
    assert counts["broke"] == counts["closed"]
    new = query(database_url, "SELECT attribute_id FROM attribute WHERE column_name = 'added'")
    assert new == [(14,)], "a new column gets an id that no column ever had"
    assert query(database_url, "SELECT version, generation FROM state_version ORDER BY 1") == [(1, 1), (2, 2), (3, 3)]


def test_a_column_that_is_gone_stays_in_the_history_and_keeps_its_id_when_it_comes_back(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    def bootstrap(columns: list[str], row: list[str]) -> None:
        write_csv(tmp_path / "t.csv", columns, [row])
        run_bootstrap(spark, Options(str(tmp_path), "s", database_url, replace=True))

    def held(as_of: int | None) -> set[tuple[str, str]]:
        with reader.snapshot() as snapshot:
            found = queries.uinds(snapshot, as_of=as_of).items
            return {(one.dependent.name.column, one.referenced.name.column) for one in found}

    engine = make_engine(database_url, "test")
    reader = PostgresStateReader(engine)
    bootstrap(["a", "b"], ["1", "1"])
    bootstrap(["a"], ["1"])
    assert held(None) == set()
    assert held(1) == {("a", "b"), ("b", "a")}
    with reader.snapshot() as snapshot:
        told = queries.transitions(snapshot, TransitionFilter(since=1)).items
        assert [(one.kind, one.dependent.name.column) for one in told] == [("broke", "a"), ("broke", "b")]
        assert [one.name.column for one in queries.attributes(snapshot).items] == ["a"]
        with pytest.raises(NotFoundError):
            queries.resolve(snapshot, "s.t.b")
    bootstrap(["b", "a"], ["1", "1"])
    assert held(None) == {("a", "b"), ("b", "a")}
    live = "SELECT column_name, attribute_id FROM attribute WHERE dropped_version IS NULL ORDER BY 1"
    assert query(database_url, live) == [("a", 0), ("b", 1)]
    engine.dispose()


@pytest.mark.parametrize("column", ["id", "name"])
def test_two_sources_may_not_have_one_table(database_url: str, tmp_path: Path, column: str) -> None:
    """Whatever columns each of them has of it; what is refused does not wait for Spark."""
    states.store(database_url, states.Tables({"t": ["id"]}).add("t", ["1"]))
    query(database_url, "UPDATE source SET name = 'elder'")
    write_csv(tmp_path / "t.csv", [column], [["1"]])
    with pytest.raises(StateError, match=r"s\.t is already followed in the source 'elder'.*--exclude"):
        run_bootstrap(lambda: pytest.fail("it starts Spark"), Options(str(tmp_path), "s", database_url))


def test_an_insert_only_source_keeps_no_frequencies(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "a" / "t.csv", ["x"], [["1"], ["1"], ["2"]])
    write_csv(tmp_path / "b" / "t.csv", ["y"], [["2"], ["2"], ["3"], [None]])
    run_bootstrap(spark, Options(str(tmp_path / "a"), "a", database_url))
    run_bootstrap(spark, Options(str(tmp_path / "b"), "b", database_url, insert_only=True, null_tokens=("",)))
    records = query(database_url, "SELECT value, attribute_ids, frequencies FROM gen_rec ORDER BY value")
    assert records == [("1", [0], [2]), ("2", [0, 1], [1, 0]), ("3", [1], None)]
    counters = query(database_url, "SELECT row_count, null_count, distinct_count, repeated_count FROM attribute")
    assert counters == [(3, 0, 2, 1), (3, 0, 2, None)], "one-column files have no line for a NULL"


def test_parquet_has_the_texts_of_its_types(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "number": pa.array([1, 2, None, 2], pa.int64()),
            "price": pa.array([1.0, 0.5, -0.0, 0.0]),
            "text": pa.array(["2", "1", "", None]),
            "tags": pa.array([[1, 2], [1, 2], None, []], pa.list_(pa.int8())),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    run_bootstrap(spark, Options(str(tmp_path), "p", database_url, task_bytes=1))
    expected = count_cells(
        {
            "p.t.number": ["1", "2", None, "2"],
            "p.t.price": ["1", "0.5", "0", "0"],
            "p.t.text": ["2", "1", "", None],
            "p.t.tags": ["[1,2]", "[1,2]", None, "[]"],
        }
    )
    assert read_state(database_url) == expected


def test_the_state_has_one_writer_and_the_other_is_told_who(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    write_csv(tmp_path / "t.csv", ["id"], [["1"]])
    with connect(database_url, "subsetd bootstrap") as connection:
        take_writer_lock(connection)
        with pytest.raises(StateError, match="another writer: subsetd bootstrap"):
            run_bootstrap(spark, Options(str(tmp_path), "s", database_url))
        release_locks(connection)
    assert run_bootstrap(spark, Options(str(tmp_path), "s", database_url)).version == 1


def test_feed_positions_are_those_of_the_new_data(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["id"], [["1"]])
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, feed_positions=(("kafka://b:9092", "t", 0, 7),)))
    run_bootstrap(
        spark, Options(str(tmp_path), "s", database_url, replace=True, feed_positions=(("kafka://b:9092", "t", 1, 8),))
    )
    positions = query(database_url, "SELECT feed, topic, partition, next_offset, version FROM feed_position")
    assert positions == [("kafka://b:9092", "t", 1, 8, 2)]


@pytest.mark.parametrize("place", [("0", str(1 << 63)), (str(1 << 31), "0"), ("0", "-1"), ("0", "9" * 5000)])
def test_a_feed_position_that_cannot_be_stored_is_refused_at_once(
    place: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["data", "--name=n", "--database-url=postgresql:///x", "--feed-position", "f", "t", *place])
    assert "are no numbers of a partition and an offset" in capsys.readouterr().err


def test_counting_clusters_only_needs_no_database(spark: SparkSession, tmp_path: Path) -> None:
    tables = shop()
    summary = run_bootstrap(
        spark, Options(str(write_tables(tmp_path, tables)), "shop", clusters_only=True, partitions=4, task_bytes=20_000)
    )
    expected = count_cells(columns_of(tables))
    assert (summary.version, summary.clusters, summary.inds) == (None, len(expected.clusters), len(expected.inds))
    names = list(columns_of(dict(sorted(tables.items()))))
    assert {(names[a], names[b]) for a, b in summary.pairs.tolist()} == expected.inds


def test_partitions_are_attached_without_constraints_left_over(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """Every partition has gen_rec's indexes, and its range as its bound alone."""
    write_tables(tmp_path, shop())
    run_bootstrap(spark, Options(str(tmp_path), "shop", database_url, partitions=4))
    checks = query(database_url, "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conname LIKE 'gen_rec%'")
    assert checks == []
    indexes = query(
        database_url,
        "SELECT t.relname, count(*) FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid "
        "JOIN pg_inherits p ON p.inhrelid = i.indexrelid WHERE t.relname LIKE 'gen_rec_g%' GROUP BY 1 ORDER BY 1",
    )
    assert indexes == [(f"gen_rec_g1_p{number:03d}", 2) for number in range(4)]
    remains = query(database_url, "SELECT relname FROM pg_class WHERE relname LIKE 'gen_cluster%' AND relkind = 'r'")
    assert list(itertools.chain(*remains)) == []


def test_parquet_without_row_groups_is_a_table_without_rows(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """So it is written from an empty DataFrame; and a source may become empty."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table([[1], ["x"]], schema=schema), file)
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url))
    with pq.ParquetWriter(file, schema):
        pass
    assert pq.ParquetFile(file).num_row_groups == 0
    summary = run_bootstrap(spark, Options(str(tmp_path), "s", database_url, replace=True))
    assert (summary.tables, summary.rows) == (1, 0)
    counted = "select column_name, row_count, distinct_count from attribute where dropped_version is null order by 1"
    assert query(database_url, counted) == [("id", 0, 0), ("name", 0, 0)]


def test_long_rows_of_parquet_are_read_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_source, "TABLE_BYTES", 100_000)
    rng = random.Random(4)
    texts = [str(number) for number in range(2000)] + [rng.randbytes(5000).hex() for _ in range(50)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", row_group_size=2000)
    source = open_source(Options(str(tmp_path), "s"))
    (split,) = source.splits(1 << 30, lambda function, items: [function(item) for item in items])
    read = list(source.reader().read(split))
    assert [text for table in read for text in table.column(0).to_pylist()] == texts
    assert max(table.nbytes for table in read) < 300_000


def test_files_are_found_again_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `verify` looks for them, or a service that tracks a key."""
    for folder in ("csv", "parquet"):
        (tmp_path / folder).mkdir()
    write_csv(tmp_path / "csv" / "t.csv", ["n"], [["1"]])
    pq.write_table(pa.table({"n": ["1"]}), tmp_path / "parquet" / "t.parquet")
    monkeypatch.chdir(tmp_path)
    locations = [open_source(Options(kind, "s")).location for kind in ("csv", "parquet")]
    assert locations == [f"{tmp_path}/csv", f"{tmp_path}/parquet"]


def test_what_is_masked_and_tracked_is_read_by_the_one_bootstrap(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a mask or a key of a moment later would be undone by it, without a word."""
    write_csv(tmp_path / "t.csv", ["n"], [["1"]])
    held: list[bool] = []

    def looking(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def look(connection: Any, name: str) -> Any:
            held.extend(is_alone for (is_alone,) in query(database_url, f"select {is_held(BOOTSTRAP_LOCK)}"))
            return read(connection, name)

        return look

    def start() -> SparkSession:
        raise StateError("There is no Spark.")

    for name in ("read_tuples", "read_shown"):
        monkeypatch.setattr(bootstrap, name, looking(getattr(bootstrap, name)))
    with pytest.raises(StateError, match=r"There is no Spark\."):
        run_bootstrap(start, Options(str(tmp_path), "s", database_url))
    assert held == [True, True]
