"""A refresh that is killed or asked to end leaves the generation before; one that loses an executor lands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from service.usecases.corpora import RefreshState
from spark_jobs.many_partitions import STAGES
from spark_jobs.many_refresh import CRASH_POINTS
from tests.many import unpack_web_tables
from tests.refreshing import Lake, expected_inds, write_tables
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def refreshing(
    lake: Lake, *arguments: str, master: str = "local[2]", refresh_id: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run the job as the service does, the address on its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spark_jobs.many_refresh", "--refresh-id", str(refresh_id or lake.queue()),
         "--database-url", "-", "--data-dir", str(lake.data_dir), "--master", master, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin
    process.stdin.write(f"{lake.url}\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("where", [(), ("--on-spark",)], ids=["driver", "spark"])
def test_a_refresh_killed_at_any_stage_leaves_the_generation_before(
    spark: SparkSession, database_url: str, tmp_path: Path, where: tuple[str, ...]
) -> None:
    """One test for all stages: each run finds what the one before it left."""
    tables = {f"{n}.csv": [[f"v{k}" for k in range(n, n + 5)], ["x"] * 5] for n in range(10)}
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake")
    lake.refresh(spark)
    before = lake.inds()
    tables["4.csv"] = [["v1", "v2", "v3"]]
    write_tables(tmp_path / "lake", tables)
    refresh_id = lake.queue()
    for stage in CRASH_POINTS:
        with refreshing(lake, "--fail-at", stage, *where, refresh_id=refresh_id) as process:
            _, told = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, f"{stage}: {told}"
        assert lake.inds() == before, f"killed at {stage}"
        assert lake.corpora.refresh(refresh_id).state is RefreshState.RUNNING, "its runner sees that it has died"
    with refreshing(lake, *where, refresh_id=refresh_id) as process:
        said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert lake.report["spark"] is bool(where)
    expected = expected_inds(
        {(path, n): set(cells) for path, columns in tables.items() for n, cells in enumerate(columns)}
    )
    assert lake.inds() == expected
    assert said.startswith(f"generation 2: {len(expected):,} inclusion dependencies, ")
    assert not lake.report["full"], "what the killed ones left of the index does no harm"
    (parts,) = (lake.data_dir / "corpora").iterdir()
    assert [path.name for path in parts.iterdir() if path.name not in ("parts", "owner")] == ["generation-2"]


@pytest.mark.parametrize("how", ["signal", "cancel"])
def test_a_refresh_that_is_asked_to_end_ends(database_url: str, tmp_path: Path, how: str) -> None:
    write_tables(tmp_path / "lake", {f"{n}.csv": [["a"]] for n in range(3)})
    lake = Lake(database_url, tmp_path / "lake")
    refresh_id = lake.queue()
    with refreshing(lake, refresh_id=refresh_id) as process:
        wait_for(lambda: lake.last().stage is not None)
        if how == "cancel":
            lake.corpora.cancel(refresh_id)
        else:
            process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "stopped: the generation before is served" in told
    assert "Traceback" not in told
    assert lake.corpora.named(lake.name).generation is None


def command_of(process: psutil.Process) -> list[str]:
    """Give the command of a process, nothing of one that has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_an_executor_that_is_killed_costs_time_only(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    """Over partitions on two executors of their own; what the lost one had is made anew."""
    folder = unpack_web_tables(tmp_path) / "tables"
    for path in sorted(folder.iterdir())[150:]:
        path.unlink()
    lake, other = (Lake(database_url, folder, null_tokens=[""], partitions=count) for count in (4, None))
    with refreshing(lake, master="local-cluster[2,1,1024]") as process:
        wait_for(lambda: lake.last().stage in STAGES[1:-1] or process.poll() is not None, seconds=240)
        executors = [
            child.pid
            for child in psutil.Process(process.pid).children(recursive=True)
            if any("CoarseGrainedExecutorBackend" in word for word in command_of(child))
        ]
        assert len(executors) == 2, process.communicate()[1] if process.poll() is not None else executors
        os.kill(executors[0], signal.SIGKILL)
        _, told = process.communicate(timeout=480)
    assert process.returncode == 0, told
    other.refresh(spark)
    assert lake.inds() == other.inds()
    assert len(lake.inds()) > 1_000


def test_an_error_is_one_message_and_exit_code_1(database_url: str, tmp_path: Path) -> None:
    lake = Lake(database_url, tmp_path / "nowhere")
    with refreshing(lake) as process:
        said, told = process.communicate(timeout=120)
    assert (process.returncode, said) == (1, "")
    assert [line for line in told.splitlines() if line.startswith("error: ")] == [told.splitlines()[-1]]
    assert "nowhere" in told
    assert "Traceback" not in told
