"""Refreshes of corpora: what is served afterwards, and after changes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from benchmarks.reference import Column
from service.core.errors import SourceError
from service.usecases.corpora import RefreshState
from tests.refreshing import LAKES, Lake, Tables, expected_inds, values_of, write_tables


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each has its own corpus
@given(
    versions=st.lists(LAKES, min_size=2, max_size=3),
    coverage=st.sampled_from(["0", "1/2"]),
    threshold=st.sampled_from(["1", "2/3"]),
)
def test_refreshes_after_any_changes_serve_what_comparing_all_columns_gives(
    spark: SparkSession,
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    versions: list[Tables],
    coverage: str,
    threshold: str,
) -> None:
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    lake = Lake(database_url, folder, coverage=coverage, threshold=threshold)
    before: dict[tuple[Column, Column], int] = {}
    for tables in versions:
        write_tables(folder, tables)
        landed = lake.refresh(spark)
        expected = expected_inds(values_of(tables), Fraction(threshold), Fraction(coverage))
        assert lake.inds() == expected
        assert landed.inds == len(expected)
        assert landed.appeared - landed.went == len(expected) - len(before)
        before = expected
    assert not lake.report["full"]


def shifted(number: int, by: int = 0) -> list[list[str]]:
    return [[f"v{k + by}" for k in range(number, number + 5)], ["x"] * 5, [f"v{number}", "v9", "v9", "v10", "v11"]]


@pytest.mark.parametrize(
    "chosen", [{}, {"partitions": 3}, {"threshold": "3/5", "partitions": 2}, {"algorithm": "signatures"}]
)
def test_a_refresh_reads_and_compares_what_changed(
    spark: SparkSession, database_url: str, tmp_path: Path, chosen: dict[str, Any]
) -> None:
    tables = {f"{n}.csv": shifted(n) for n in range(20)}
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake", **chosen)
    lake.refresh(spark)
    threshold = Fraction(chosen.get("threshold", 1))
    assert lake.inds() == expected_inds(values_of(tables), threshold)
    assert lake.report["full"]

    del tables["5.csv"]
    tables |= {"3.csv": shifted(3, by=100), "4.csv": shifted(4)[:2], "new.csv": shifted(7)}
    write_tables(tmp_path / "lake", tables)
    lake.refresh(spark)
    assert lake.inds() == expected_inds(values_of(tables), threshold)
    report = lake.report
    assert not report["full"]
    assert report["index"] == "used"
    assert report["files"] == {"read": 3, "unchanged": 17, "gone": 1, "faults": 0}
    assert report["changed_columns"] == 1 + 2 + 3, "3.csv keeps two of its columns, 4.csv has another number of them"
    assert 0 < report["stored"] < report["inds"]

    again = lake.refresh(spark)
    assert (again.appeared, again.went, lake.report["files"]["read"], lake.report["stored"]) == (0, 0, 0, 0)
    whole = lake.refresh(spark, full=True)
    assert (whole.appeared, whole.went, lake.report["files"]["read"]) == (0, 0, 20)
    assert "full refresh was asked for" in lake.report["index"]


def test_without_its_index_a_corpus_is_read_whole(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    tables = {f"{n}.csv": shifted(n) for n in range(4)}
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake")
    lake.refresh(spark)
    columns = lake.columns()
    next(lake.data_dir.glob("corpora/*/parts/*")).unlink()
    tables["1.csv"] = shifted(1, by=3)
    write_tables(tmp_path / "lake", tables)
    lake.refresh(spark)
    assert lake.report["full"]
    assert "the part is gone" in lake.report["index"]
    assert lake.inds() == expected_inds(values_of(tables))
    assert lake.columns() == columns, "ids stay"


def test_an_index_that_is_found_damaged_is_removed_so_that_the_next_refresh_reads_everything(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    tables = {f"{n}.csv": shifted(n) for n in range(4)}
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake")
    lake.refresh(spark)
    part = next(lake.data_dir.glob("corpora/*/parts/*"))
    part.write_bytes(bytes(part.stat().st_size))
    tables["1.csv"] = shifted(1, by=3)
    write_tables(tmp_path / "lake", tables)
    with pytest.raises(SourceError, match=r"the part cannot be read.*refresh .* again, which reads everything"):
        lake.refresh(spark)
    lake.corpora.end(lake.last().refresh_id, RefreshState.FAILED, "as its job said")
    lake.refresh(spark)
    assert lake.report["full"]
    assert lake.inds() == expected_inds(values_of(tables))


def test_the_best_referenced_columns_are_found_anew_each_time(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """When the best goes, one comes in that the generation before has not got."""
    values = ["a", "b", "c", "d", "e"]
    tables = {f"{n}.csv": [values[:n]] for n in range(1, 6)}
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake", top=1)
    lake.refresh(spark)
    assert {a[0]: b[0] for a, b in lake.inds()} == {f"{n}.csv": f"{n + 1}.csv" for n in range(1, 5)}
    del tables["2.csv"]
    write_tables(tmp_path / "lake", tables)
    lake.refresh(spark)
    assert lake.inds()[("1.csv", 0), ("3.csv", 0)] == 1
    assert lake.report["full"]
    assert lake.report["files"]["read"] == 0


def test_faults_are_listed_until_they_are_too_many(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    tables = {f"{n}.csv": shifted(n) for n in range(3)}
    write_tables(tmp_path / "lake", tables)
    (tmp_path / "lake" / "ragged.csv").write_text("a,b\n1\n")
    lake = Lake(database_url, tmp_path / "lake", max_failed="1/4")
    lake.refresh(spark)
    assert lake.report["files"]["faults"] == 1
    ((_, fault),) = lake.corpora.faults(lake.last().refresh_id, limit=10)
    assert fault.path == "ragged.csv"

    (tmp_path / "lake" / "binary.csv").write_bytes(b"a\n\0\1\xff\n")
    before = lake.inds()
    with pytest.raises(SourceError, match=r"(?s)2 of 5 tables .* max_failed is 1/4.*binary\.csv: .*ragged\.csv: "):
        lake.refresh(spark)
    assert lake.inds() == before == expected_inds(values_of(tables))


def test_a_corpus_without_tables_is_refused(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    """An empty folder is rather a disk that is not there than a lake that dried up."""
    write_tables(tmp_path / "lake", {"a.csv": [["x"]]})
    lake = Lake(database_url, tmp_path / "lake")
    lake.refresh(spark)
    (tmp_path / "lake" / "a.csv").unlink()
    with pytest.raises(SourceError, match="there is no table in it"):
        lake.refresh(spark)
    assert lake.columns()


def test_columns_that_no_refresh_examined_have_reasons(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    write_tables(tmp_path / "lake", {"a.csv": [["1", "2"], ["x", "y"], ["-", "?"]], "b.csv": [["x", "y"], ["7", "7"]]})
    filters = {"null_columns": True, "integer_columns": True, "non_unique_referenced": True, "coverage": "1/5"}
    lake = Lake(database_url, tmp_path / "lake", **filters)
    lake.refresh(spark)
    assert set(lake.inds()) == {(("a.csv", 1), ("b.csv", 0)), (("b.csv", 0), ("a.csv", 1))}
    assert lake.report["filters"] == {
        "dependent": {"null_column": 1, "integer_column": 2},
        "referenced": {"null_column": 1, "integer_column": 2, "not_unique": 1},
    }
