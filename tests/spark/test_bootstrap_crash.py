"""A bootstrap killed at any stage leaves the served state as it was, and the next one cleans up and succeeds."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from service.core.errors import StateError
from service.store import locks
from service.store.bulk import KeyRange
from service.store.database import connect
from service.store.generation import TASK_NAME, clear_remains, create_registry
from service.store.writer_lock import take_bootstrap_lock
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from tests.spark.oracle import count_cells, query, read_state, write_csv
from tests.waiting import wait_for_end

ROOT = Path(__file__).resolve().parents[2]
REMAINS = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND NOT relispartition "
    "AND (relname LIKE 'gen_rec_g%' OR relname LIKE 'gen_cluster_g%') ORDER BY 1"
)


def bootstrap(url: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do, the address on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "spark_jobs.bootstrap", str(folder), "--name", "s", "--database-url", "-",
         "--master", "local[2]", "--partitions", "4", *arguments],
        input=url, text=True, capture_output=True, timeout=300, cwd=ROOT, check=False,
    )  # fmt: skip


def test_a_bootstrap_killed_at_any_stage_leaves_the_served_state(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """One test for all stages: each run finds what the one before it left."""
    cells = [str(i) for i in range(1000)]
    write_csv(tmp_path / "t.csv", ["id"], [[cell] for cell in cells])
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, partitions=4))
    before = read_state(database_url)

    more = [*cells, "new"]
    write_csv(tmp_path / "t.csv", ["id"], [[cell] for cell in more])
    for stage in ("planning", "map", "reduce", "commit"):
        killed = bootstrap(database_url, tmp_path, "--replace", "--fail-at", stage)
        assert killed.returncode == -signal.SIGKILL, f"{stage}: {killed.stderr}"
        assert read_state(database_url) == before, f"killed at {stage}"
        assert query(database_url, REMAINS), f"killed at {stage}, a job leaves something to clean up"

    done = bootstrap(database_url, tmp_path, "--replace")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "1 tables, 1 attributes, 1,001 rows", "1,001 values in 1 clusters: 0 inclusion dependencies"
    ]  # fmt: skip
    assert read_state(database_url) == count_cells({"s.t.id": more})
    assert query(database_url, REMAINS) == []


def test_an_error_is_one_message_and_exit_code_1(database_url: str, tmp_path: Path) -> None:
    """What fails on an executor reaches the user without a stack trace, of Python or of Java."""
    (tmp_path / "t.csv").write_bytes(b"id,name\n1,2,3\n")
    failed = bootstrap(database_url, tmp_path)
    assert failed.returncode == 1
    errors = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [
        f"error: {tmp_path}/t.csv, line 2: the row has 3 cells, its table has 2 columns. "
        "Mend the row, or name the --delimiter and --quote that the file has."
    ]
    assert "Traceback" not in failed.stderr
    assert "\tat " not in failed.stderr
    assert failed.stdout == ""


def test_the_command_refuses_a_state_that_is_not_there(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["id"], [["1"]])
    failed = bootstrap("postgresql://nobody@127.0.0.1:1/none", tmp_path)
    assert failed.returncode == 1
    assert "error: " in failed.stderr
    assert "127.0.0.1:1" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_tasks_that_outlive_their_job_are_ended_before_their_tables_are_dropped(database_url: str) -> None:
    """An orphan could commit its table after the cleaning: so its session goes first."""
    with connect(database_url, TASK_NAME) as orphan, connect(database_url, "subsetd bootstrap") as connection:
        with orphan.cursor() as cursor:
            cursor.execute("CREATE TABLE gen_rec_g1_p000 (LIKE gen_rec)")
        take_bootstrap_lock(connection)
        clear_remains(connection)
        create_registry(connection, 1)
        clear_remains(connection)
        assert query(database_url, REMAINS) == []
        alive = query(database_url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", TASK_NAME)
        assert alive == [(0,)]


def test_nothing_is_dropped_while_a_task_that_outlived_its_job_does_not_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "END_SECONDS", 1)
    with connect(database_url, TASK_NAME) as orphan, connect(database_url, "subsetd bootstrap") as connection:
        hanging = psutil.Process(orphan.get_backend_pid())
        hanging.suspend()
        try:
            take_bootstrap_lock(connection)
            with pytest.raises(StateError, match=f"could commit still, and did not end within 1 s .* {hanging.pid},"):
                clear_remains(connection)
        finally:
            hanging.resume()
        connection.rollback()
        monkeypatch.undo()
        clear_remains(connection)
        wait_for_end(hanging)


def test_a_session_that_comes_behind_those_that_are_ended_is_not_taken_for_one_of_them(database_url: str) -> None:
    with (
        connect(database_url, TASK_NAME),
        connect(database_url, "subsetd bootstrap") as connection,
        ExitStack() as later,
        connection.cursor() as cursor,
    ):

        class Asking:
            fetchall = cursor.fetchall

            def execute(self, *given: object) -> None:
                cursor.execute(*given)
                later.enter_context(connect(database_url, TASK_NAME))

        locks.end_sessions(Asking(), TASK_NAME)


@pytest.mark.parametrize("bits", [0, 1, 5, 8])
def test_key_ranges_are_equal_shares_without_gaps(bits: int) -> None:
    bounds = [KeyRange(number, bits).bounds() for number in range(1 << bits)]
    assert bounds[0][0] is None
    assert bounds[-1][1] is None
    assert [low for low, _ in bounds[1:]] == [high for _, high in bounds[:-1]]
