"""A lake of files becomes sketches that anybody would make of its columns, however its data is cut."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from service.core.errors import SourceError, StateError
from service.core.sketch_upkeep import FixedForm, SketchForm
from service.core.sketches.column import ColumnSketch
from service.core.sketches.prefixes import HashPrefixes
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases import sketched_columns
from service.usecases.sketched_columns import SketchNameError
from spark_jobs.postgres_source import PostgresSource
from spark_jobs.sketch_files import sketch_files
from spark_jobs.sketch_lake import sketch_lake
from spark_jobs.sources import Options
from tests import states
from tests.coefficients import hashes_of
from tests.spark.oracle import write_csv
from tests.states import key_of

FORM = SketchForm(6, 20, 6)
ROWS = 3000
LAKE: dict[str, dict[str, list[str | None]]] = {
    "person": {
        "id": [str(n) for n in range(ROWS)],
        "town": [f"town {n % 17}" if n % 5 else None for n in range(ROWS)],
        "none": [None] * ROWS,
    },
    "order": {"person": [str(n * n % ROWS) for n in range(ROWS)], "note": ["two\nlines, x"] * ROWS},
    "empty": {"id": []},
}


def write_lake(folder: Path) -> Path:
    for table, columns in LAKE.items():
        write_csv(folder / f"{table}.csv", list(columns), zip(*columns.values(), strict=True), "\n")
    return folder


def wanted(cells: list[str | None], form: SketchForm) -> bytes:
    """Sketch the cells of a column at once."""
    counted = Counter(cell for cell in cells if cell is not None)
    hashes = np.array([int.from_bytes(key_of(value)[:8], "big") for value in counted], np.uint64)
    sketch = ColumnSketch(*form, counts_values=False)
    sketch.update(hashes, np.array(list(counted.values()), np.int64))
    return sketch.to_bytes()


def stored(url: str) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in states.query(url, "select name, sketch from uploaded_sketch")}


@pytest.mark.parametrize("task_bytes", [None, 5000])
def test_a_lake_is_sketched_as_its_columns_would_be_one_by_one(
    spark: SparkSession, database_url: str, tmp_path: Path, task_bytes: int | None
) -> None:
    options = Options(str(write_lake(tmp_path)), "lake", database_url, sketches=FORM, task_bytes=task_bytes)
    summary = sketch_lake(spark, options)
    columns = {f"lake.{table}.{name}": cells for table, named in LAKE.items() for name, cells in named.items()}
    assert stored(database_url) == {name: wanted(cells, FORM) for name, cells in columns.items()}
    assert (sorted(summary.names), summary.rows) == (sorted(columns), 2 * ROWS)
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot() as snapshot:
        listed = sketched_columns.sketches(snapshot).items
    engine.dispose()
    for one in listed:
        count = len({cell for cell in columns[one.column.name] if cell is not None})  # type: ignore[index]
        assert (one.fault, one.is_complete) == (None, count <= FORM.k + FORM.spares)
        if one.is_complete:
            assert one.low == one.high == count


def test_a_lake_has_the_form_of_the_states_sketches_and_is_replaced_by_name(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    states.execute(database_url, "insert into sketch_form values (5, 12, 4)")
    states.execute(database_url, "insert into uploaded_sketch values ('lake.gone.x', ''), ('lakeside', '')")
    pq.write_table(pa.table({"n": [1, 2, None]}), tmp_path / "numbers.parquet")
    options = Options(str(tmp_path), "lake", database_url, sketches=FORM)
    sketch_lake(spark, options)
    assert stored(database_url).keys() == {"lake.gone.x", "lakeside", "lake.numbers.n"}
    assert stored(database_url)["lake.numbers.n"] == wanted(["1", "2"], SketchForm(5, 12, 4))
    sketch_lake(spark, Options(str(tmp_path), "lake", database_url, replace=True))
    assert stored(database_url).keys() == {"lakeside", "lake.numbers.n"}


@pytest.mark.parametrize("task_bytes", [None, 5000])
def test_a_lake_in_sketches_of_a_fixed_size_is_as_its_columns_at_once(
    spark: SparkSession, database_url: str, tmp_path: Path, task_bytes: int | None
) -> None:
    """Whatever the state's sketches are, and however the data is cut."""
    states.execute(database_url, "insert into sketch_form values (5, 12, 4)")
    options = Options(str(write_lake(tmp_path)), "lake", database_url, task_bytes=task_bytes)
    sketch_lake(spark, options, FixedForm(1000))
    found = stored(database_url)
    for table, columns in LAKE.items():
        for name, cells in columns.items():
            sketch = HashPrefixes(10, 1000)
            sketch.update(hashes_of({cell for cell in cells if cell is not None}))
            assert found.pop(f"lake.{table}.{name}") == sketch.to_bytes()
    assert found == {}


def test_a_form_that_is_asked_for_goes_before_the_states(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    states.execute(database_url, "insert into sketch_form values (5, 12, 4)")
    pq.write_table(pa.table({"n": [1, 2, None]}), tmp_path / "numbers.parquet")
    sketch_lake(spark, Options(str(tmp_path), "lake", database_url), FORM)
    assert stored(database_url)["lake.numbers.n"] == wanted(["1", "2"], FORM)


def test_what_cannot_be_read_or_written_is_told_and_nothing_is_kept(
    spark: SparkSession, database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(SourceError, match=r"bad.csv, line 3: the row has 1 cells"):
        sketch_lake(spark, Options(str(tmp_path), "lake", database_url))
    assert stored(database_url) == {}
    with pytest.raises(StateError, match="holds no state"):
        sketch_lake(spark, Options(str(tmp_path), "lake", empty_database_url))
    with pytest.raises(SourceError, match="no such file or folder"):
        sketch_lake(spark, Options(str(tmp_path / "nowhere"), "lake", database_url))


def test_columns_that_have_no_name_of_their_own_are_named(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    write_csv(tmp_path / "a.csv", ["b.c"], [["1"]])
    write_csv(tmp_path / "a.b.csv", ["c"], [["2"]])
    options = Options(str(tmp_path), "lake", database_url)
    with pytest.raises(SourceError, match=r"2 columns would have one name, 'lake\.a\.b\.c'"):
        sketch_lake(spark, options)
    with pytest.raises(SourceError, match=r"2 columns would have one name, 'a\.b\.c'"):
        sketch_files(options)
    (tmp_path / "a.b.csv").unlink()
    write_csv(tmp_path / "wide.csv", ["new\xa0name", "x" * 300], [["1", "2"]])
    with pytest.raises(SketchNameError, match=r"'lake\.wide\.new\\xa0name' is no name of a sketch"):
        sketch_lake(spark, options)


def test_a_lake_of_a_database_has_its_own_names(
    spark: SparkSession, database_url: str, empty_database_url: str
) -> None:
    """Tables of another lake may be called as its own, and are not forgotten with them."""
    states.execute(empty_database_url, "create table t (n integer, m integer); insert into t values (1, 2)")
    sketch_lake(spark, Options(empty_database_url, "other", database_url), FORM)
    sketch_lake(spark, Options(empty_database_url, "lake", database_url), FORM)
    states.execute(empty_database_url, "alter table t drop m; update t set n = 7")
    sketch_lake(spark, Options(empty_database_url, "lake", database_url, replace=True), FORM)
    expected = {"lake.public.t.n": "7", "other.public.t.n": "1", "other.public.t.m": "2"}
    assert stored(database_url) == {name: wanted([value], FORM) for name, value in expected.items()}


def test_a_table_that_is_emptied_while_it_is_sketched_is_told_as_such(
    spark: SparkSession, database_url: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm = PostgresSource.confirm

    def empty_first(source: PostgresSource) -> None:
        states.execute(empty_database_url, "truncate t")
        confirm(source)

    monkeypatch.setattr(PostgresSource, "confirm", empty_first)
    states.execute(empty_database_url, "create table t (n integer); insert into t values (1)")
    told = r"public\.t: truncated.*Sketches of it may be of too little: run the same command again"
    with pytest.raises(SourceError, match=told):
        sketch_lake(spark, Options(empty_database_url, "lake", database_url), FORM)
    assert stored(database_url).keys() == {"lake.public.t.n"}
