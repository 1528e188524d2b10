"""Sketches by Spark: of any form, however the data is cut; kept by further bootstraps; alone, without records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.core.errors import StateError
from service.core.sketch_upkeep import DEFAULT_FORM, SketchForm
from service.core.sketches.column import ColumnSketch
from service.store.sketch_reading import read_sketches
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from tests import states
from tests.endurance.following import broken_invariants
from tests.following import Stream, consume
from tests.spark.oracle import query, read_state, write_csv
from tests.states import Tables

Table = dict[str, list[str | None]]
SMALL = SketchForm(4, 20, 5)
LOG = {
    "visit": {"user": [f"{i % 700}" for i in range(3000)], "page": [None if i % 3 else f"/{i}" for i in range(3000)]}
}
SHOP = {"item": {"id": [str(i) for i in range(900)], "kind": [str(i % 7) for i in range(900)]}}


def write(folder: Path, tables: Mapping[str, Table]) -> str:
    for name, columns in tables.items():
        write_csv(folder / f"{name}.csv", list(columns), zip(*columns.values(), strict=True))
    return str(folder)


def sketches(url: str) -> dict[str, ColumnSketch]:
    names = dict(query(url, "select attribute_id, table_name || '.' || column_name from attribute"))
    with states.one_version(url) as connection:
        found = read_sketches(connection)
    assert found.faults == {}
    return {names[attribute_id]: sketch for attribute_id, sketch in found.by_id.items()}


def of_occurrences(form: SketchForm, cells: Sequence[str | None]) -> bytes:
    """Sketch a column cell by cell, as nothing but counters of (bucket, ρ)."""
    sketch = form.empty(counts_values=False).dense()
    for text, count in Counter(cell for cell in cells if cell is not None).items():
        bucket, rho = states.bucket_and_rho(int.from_bytes(states.key_of(text)[:8], "big"), form.bucket_bits)
        if rho > len(sketch.counts):
            sketch.counts.resize((rho, 1 << form.bucket_bits), refcheck=False)
        sketch.counts[rho - 1, bucket] += count
    return sketch.payload()


@pytest.mark.parametrize(
    ("form", "partitions", "task_bytes"),
    [
        (SketchForm(0, 1, 0), 8, None),
        (SketchForm(2, 3, 1), 32, 9000),
        (SMALL, 4, 9000),
        (SketchForm(9, 1000, 0), 2, None),
    ],
)
def test_sketches_do_not_depend_on_how_the_data_was_cut(
    spark: SparkSession, database_url: str, tmp_path: Path, form: SketchForm, partitions: int, task_bytes: int | None
) -> None:
    options = Options(
        write(tmp_path, SHOP | LOG), "s", database_url, partitions=partitions, task_bytes=task_bytes, sketches=form
    )
    run_bootstrap(spark, options)
    read_state(database_url)  # holds all sketches against the records' keys
    assert broken_invariants(database_url) == []
    found = sketches(database_url)
    assert {name: sketch.size for name, sketch in found.items()} == {
        "item.id": 900, "item.kind": 7, "visit.user": 700, "visit.page": 1000
    }  # fmt: skip
    assert {(one.m, one.bottom.k, one.bottom.spares) for one in found.values()} == {tuple(form)}
    assert query(database_url, "select * from sketch_form") == [tuple(form)]
    assert query(database_url, "select from pg_class where relname ~ '^gen_(sketch|cluster)'") == []


def test_the_next_bootstrap_makes_all_sketches_anew(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    shop = Options(write(tmp_path / "shop", SHOP), "shop", database_url, sketches=SMALL)
    log = Options(write(tmp_path / "log", LOG), "log", database_url)
    run_bootstrap(spark, shop)
    run_bootstrap(spark, log)
    assert {one.m for one in sketches(database_url).values()} == {DEFAULT_FORM.bucket_bits}
    assert broken_invariants(database_url) == []
    write(tmp_path / "log", {"visit": {"user": ["1"]}})
    run_bootstrap(spark, replace(log, replace=True))
    assert sketches(database_url).keys() == {"item.id", "item.kind", "visit.user"}
    assert broken_invariants(database_url) == []
    run_bootstrap(spark, replace(log, replace=True, sketches=None))
    assert (sketches(database_url), query(database_url, "select * from sketch_form")) == ({}, [])
    assert broken_invariants(database_url) == []


def test_changes_are_followed_behind_a_bootstrap(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    tables = Tables({"item": ["id", "kind"]}).add("item", *zip(*SHOP["item"].values(), strict=True))
    run_bootstrap(spark, Options(write(tmp_path / "shop", SHOP), "s", database_url, sketches=SMALL))
    stream = Stream(tmp_path / "feed", tables, {"item": ["id", "kind"]})
    for i in range(0, 900, 2):
        stream.change("item", (str(i), str(i % 7)), None if i % 3 else (str(i), f"new {i}"))
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(tables)
    assert broken_invariants(database_url) == []


def test_a_sketch_only_source_leaves_no_value_in_the_state(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    shop = Options(write(tmp_path / "shop", SHOP), "shop", database_url, sketches=SMALL)
    log = Options(
        write(tmp_path / "log", LOG),
        "log",
        database_url,
        sketches=SMALL,
        sketch_only=True,
        task_bytes=9000,
        partitions=4,
    )
    run_bootstrap(spark, log)
    assert (query(database_url, "select from gen_rec"), query(database_url, "select from uind")) == ([], [])
    counters = "select row_count, null_count, distinct_count, repeated_count from attribute order by column_name"
    assert query(database_url, counters) == [(3000, 2000, None, None), (3000, 0, None, None)]
    run_bootstrap(spark, shop)
    run_bootstrap(spark, replace(shop, replace=True))
    assert broken_invariants(database_url) == []
    found = sketches(database_url)
    for column, cells in LOG["visit"].items():
        sketch = found[f"visit.{column}"]
        assert sketch.dense().payload() == of_occurrences(SMALL, cells)
        assert (sketch.size, sketch.counts_values) == (sum(cell is not None for cell in cells), False)
        assert (
            sketch.bottom.hashes.tolist()
            == sorted(int.from_bytes(states.key_of(cell)[:8], "big") for cell in set(cells) - {None})[
                : SMALL.k + SMALL.spares
            ]
        )
    assert found["item.id"].counts_values


def test_sketches_that_cannot_be_made_of_records_decide_the_form(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    log = Options(write(tmp_path / "log", LOG), "log", database_url, sketches=SMALL, sketch_only=True)
    run_bootstrap(spark, log)
    shop = Options(write(tmp_path / "shop", SHOP), "shop", database_url)
    for other in (shop, replace(shop, sketches=None)):
        with pytest.raises(StateError, match=r"2\^4 buckets and 20 smallest.*'log'.*SUBSETD_SKETCH_BUCKET_BITS=4 and"):
            run_bootstrap(spark, other)
    run_bootstrap(spark, replace(log, replace=True, sketches=DEFAULT_FORM))  # its own may change
    run_bootstrap(spark, shop)
    run_bootstrap(spark, replace(log, replace=True, sketch_only=False, sketches=SMALL))  # now there is none that cannot
    assert {one.m for one in sketches(database_url).values()} == {SMALL.bucket_bits}
    assert broken_invariants(database_url) == []
    read_state(database_url)
    run_bootstrap(spark, replace(log, replace=True, sketches=SMALL))  # and back: its records go
    assert query(database_url, "select from gen_rec where value like '/%%'") == []
    assert broken_invariants(database_url) == []


def test_who_reads_a_source_anew_has_not_forgotten_that_no_value_of_it_is_kept(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "log", {**LOG, "left_out": {"word": ["secret"]}})
    log = Options(folder, "log", database_url, sketches=SMALL, sketch_only=True, exclude=("left_out",))
    assert run_bootstrap(spark, log).warnings == []
    again = Options(folder, "log", database_url, sketches=SMALL, replace=True, as_before=True)
    (told,) = run_bootstrap(spark, again).warnings
    assert told == "read as before, with --exclude=left_out --sketch-only; --forget-options reads it without"
    assert query(database_url, "select from gen_rec") == []
    assert query(database_url, "select from tracked_table where table_name = 'left_out'") == []
    run_bootstrap(spark, replace(again, as_before=False))
    assert query(database_url, "select from gen_rec where value = 'secret'") != []


def test_a_sketch_only_source_is_recomputed_by_a_check(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    log = Options(write(tmp_path / "log", LOG), "log", database_url, sketches=SMALL, sketch_only=True)
    run_bootstrap(spark, log)
    check = Options(log.source, "log", database_url, check=True)
    assert run_bootstrap(spark, check).differences == []
    changed: Table = {**LOG["visit"], "user": ["other", *LOG["visit"]["user"][1:]]}
    write(tmp_path / "log", {"visit": changed})
    (difference,) = run_bootstrap(spark, check).differences
    assert difference == "1 sketches: log.visit.user"
