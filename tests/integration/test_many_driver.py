"""Refreshes whose work the driver does alone: the same INDs as by comparing all columns, and Spark is not started."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.reference import Column
from service.core import corpus_inds
from service.core.corpus import CorpusKind
from spark_jobs import many_workers
from tests.refreshing import LAKES, Lake, Tables, expected_inds, values_of, write_tables


class SparkStartedError(Exception):
    """Spark was started."""


def no_spark() -> NoReturn:
    raise SparkStartedError


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each has its own corpus
@given(
    versions=st.lists(LAKES, min_size=2, max_size=4),
    coverage=st.sampled_from(["0", "1/2"]),
    threshold=st.sampled_from(["1", "2/3"]),
    algorithm=st.sampled_from([None, "rarest-first", "signatures"]),
)
def test_small_refreshes_need_no_spark(
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    versions: list[Tables],
    coverage: str,
    threshold: str,
    algorithm: str | None,
) -> None:
    algorithm = None if threshold != "1" else algorithm
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    lake = Lake(database_url, folder, coverage=coverage, threshold=threshold, algorithm=algorithm)
    before: dict[tuple[Column, Column], int] = {}
    for tables in versions:
        write_tables(folder, tables)
        landed = lake.refresh(no_spark)
        expected = expected_inds(values_of(tables), Fraction(threshold), Fraction(coverage))
        assert lake.inds() == expected
        assert landed.appeared - landed.went == len(expected) - len(before)
        assert lake.report["spark"] is False
        before = expected
    assert not lake.report["full"]


@pytest.mark.parametrize(("wanted", "room"), [("signatures", 1 << 30), ("signatures", 1), ("rarest-first", 1 << 30)])
def test_the_algorithm_stays_after_changes_unless_its_signatures_take_too_much(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, room: int
) -> None:
    monkeypatch.setattr(corpus_inds, "MATRIX_BYTES", room)
    tables = {f"{n}.csv": [[f"v{k}" for k in range(n, n + 5)], ["x"] * 5] for n in range(8)}
    lake = Lake(database_url, tmp_path / "lake", algorithm=wanted)
    for tables["3.csv"] in ([["v1", "v2"]], [["v2"], ["x"]]):
        write_tables(tmp_path / "lake", tables)
        lake.refresh(no_spark)
        assert lake.inds() == expected_inds(values_of(tables))
        assert lake.report["algorithm"] == ("rarest-first" if room == 1 else wanted)
        estimates = lake.report["estimates"]
        assert estimates["rarest_first"] > 0
        assert (estimates["signatures"] is None) is (room == 1)
    assert not lake.report["full"]


@pytest.mark.parametrize("what", ["DRIVER_BYTES", "DRIVER_CELLS"])
def test_spark_is_started_for_more_than_the_driver_does(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    write_tables(tmp_path / "lake", {f"{n}.csv": [["a", "b"]] for n in range(3)})
    lake = Lake(database_url, tmp_path / "lake")
    monkeypatch.setattr(many_workers, what, 1)
    with pytest.raises(SparkStartedError):
        lake.refresh(no_spark)


def test_partitions_that_are_asked_for_need_spark(database_url: str, tmp_path: Path) -> None:
    write_tables(tmp_path / "lake", {f"{n}.csv": [["a", "b"]] for n in range(3)})
    with pytest.raises(SparkStartedError):
        Lake(database_url, tmp_path / "lake", partitions=2).refresh(no_spark)


def test_files_of_known_lines_are_read_by_the_driver(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of a file that has grown is not parsed again: a share of its bytes counts."""
    lines = [json.dumps({"relation": [[f"v{n}", f"v{n + 1}"]]}) + "\n" for n in range(50)]
    (tmp_path / "lake").mkdir()
    file = tmp_path / "lake" / "a.jsonl"
    file.write_text("".join(lines))
    lake = Lake(database_url, tmp_path / "lake", CorpusKind.JSONL)
    lake.refresh(no_spark)
    file.write_text("".join([*lines, json.dumps({"relation": [["v7"]]})]))
    monkeypatch.setattr(many_workers, "DRIVER_BYTES", many_workers.OPENING_BYTES + file.stat().st_size // 4)
    lake.refresh(no_spark)
    assert lake.inds() == {(("a.jsonl#51", 0), (f"a.jsonl#{n}", 0)): 1 for n in (7, 8)}
    with pytest.raises(SparkStartedError):
        lake.refresh(no_spark, full=True)
