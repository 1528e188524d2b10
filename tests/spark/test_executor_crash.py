"""A refresh over executors of which one is killed costs time, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from pyspark.sql import SparkSession

from benchmarks.reference import ind_hash
from spark_jobs.many_partitions import STAGES
from tests.endurance.spark_masters import Settings
from tests.lakes import LAKES, unpack
from tests.refreshing import Lake, refreshing
from tests.spark.test_many_lakes import require_all, served, web_tables
from tests.waiting import wait_for

CLUSTER = "local-cluster[2,1,1024]"
"""Two executors of their own, a core and 1,024 MiB each."""


def executors(process: subprocess.Popen[str]) -> list[int]:
    """Give the executors of a cluster that a refresh has started, by their processes."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


def test_a_killed_executor_costs_time_only_and_the_generation_before_is_served_meanwhile(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """Over partitions on two executors of their own; what the lost one had is made anew."""
    folder = unpack("webtables_2k", tmp_path)
    later = sorted(folder.glob("tables/*.csv"))[::20]
    for path in later:
        path.rename(tmp_path / path.name)
    lake = Lake(database_url, folder, null_tokens=[""], partitions=4)
    lake.refresh(spark)
    before = served(lake)
    inds_of = {1: before.shape[1], 2: LAKES["webtables_2k"].inds}
    for path in later:
        (tmp_path / path.name).rename(path)
    settings = Settings(tmp_path / "settings").write({})
    with refreshing(lake, master=CLUSTER, refresh_id=lake.queue(full=True), environment=settings) as process:
        wait_for(lambda: lake.last().stage in STAGES[1:-1] or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        first, _ = wait_for(lambda: executors(process) if len(executors(process)) == 2 else None)
        os.kill(first, signal.SIGKILL)
        assert np.array_equal(served(lake), before)
        told = None
        while told is None:
            with lake.corpora.snapshot(lake.name) as snapshot:
                assert snapshot.counts()["inds"] == inds_of[snapshot.generation]
            with suppress(subprocess.TimeoutExpired):
                _, told = process.communicate(timeout=1)
    assert process.returncode == 0, told
    assert lake.report["full"]
    with lake.corpora.snapshot(lake.name) as snapshot:
        assert snapshot.generation == 2
    assert ind_hash(lake.inds()) == LAKES["webtables_2k"][1:]
    require_all(lake, web_tables(folder))
