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


def test_tasks_of_a_bootstrap_that_outlive_it_change_nothing(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    for name in ("CountTask", "MergeTask"):
        kind = getattr(bootstrap, name)
        monkeypatch.setattr(bootstrap, name, lambda *given, kind=kind, name=name: made.setdefault(name, kind(*given)))
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
    with pytest.raises(RuntimeError, match="subsetd-error") as late:
        list(made["MergeTask"](0, [payload for payload in payloads if payload[0] == 0]))
    assert isinstance(told_error(late.value), StateError)
    assert read_state(database_url) == expected
