"""A second attempt of a task, as Spark may start it, that outlives its job changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from service.core.errors import StateError
from spark_jobs import bootstrap, tasks
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from spark_jobs.telling import told_error
from tests import states
from tests.spark.oracle import count_cells, query, read_state, write_csv


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the tasks of the bootstraps of a test, the newest of each kind."""
    tasks_of: dict[str, Any] = {}

    def keep(name: str, task: Any) -> Any:
        tasks_of[name] = task
        return task

    for name in ("CountTask", "MergeTask"):
        kind = getattr(bootstrap, name)
        monkeypatch.setattr(bootstrap, name, lambda *given, kind=kind, name=name: keep(name, kind(*given)))
    return tasks_of


def merge(made: dict[str, Any], payloads: list[Any]) -> None:
    """Let a merging task run whose job has no need of it; it is refused."""
    with pytest.raises(RuntimeError, match="subsetd-error") as late:
        list(made["MergeTask"](0, [payload for payload in payloads if payload[0] == 0]))
    assert isinstance(told_error(late.value), StateError)


def test_tasks_of_a_bootstrap_that_outlive_it_change_nothing(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]
) -> None:
    cells = [str(n) for n in range(300)]
    write_csv(tmp_path / "t.csv", ["id", "v"], [[cell, "x"] for cell in cells])
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, partitions=2, keys=(("t", ("id",)),)))
    expected = count_cells({"s.t.id": cells, "s.t.v": ["x"] * 300})
    assert read_state(database_url) == expected

    states.execute(database_url, "delete from row_image where cells[1] = '7'")  # as a change does
    payloads = list(made["CountTask"]([0]))
    assert query(database_url, "select count(*) from row_image") == [(299,)], "no deleted row is back"

    # It had the ids of its clusters when the job ended.
    monkeypatch.setattr(tasks, "register_clusters", lambda _, __, sets: np.arange(1, len(sets) + 1))
    merge(made, payloads)
    assert read_state(database_url) == expected


def test_tasks_of_a_bootstrap_that_died_change_nothing_of_the_next_one(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]
) -> None:
    """It builds a generation of the same number, and has stored all of it."""
    publish = bootstrap.publish

    def die(*_: object) -> int:
        raise StateError("It died.")

    def bring(cells: list[str]) -> None:
        write_csv(tmp_path / "t.csv", ["id"], [[cell] for cell in cells])
        run_bootstrap(spark, Options(str(tmp_path), "s", database_url, partitions=2))

    monkeypatch.setattr(bootstrap, "publish", die)
    with pytest.raises(StateError, match="It died"):
        bring([str(n) for n in range(300)])
    dead = dict(made)
    payloads = list(dead["CountTask"]([0]))

    def publish_behind(*given: Any) -> int:
        merge(dead, payloads)
        return publish(*given)

    monkeypatch.setattr(bootstrap, "publish", publish_behind)
    cells = [f"other {n}" for n in range(300)]
    bring(cells)
    assert made["MergeTask"].generation == dead["MergeTask"].generation
    assert read_state(database_url) == count_cells({"s.t.id": cells})
