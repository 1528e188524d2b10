"""A standalone master with workers on loopback: the archive alone, slow tasks, executors that come and go, refusals.

Long proofs alone (`make endurance ONLY=executors`).
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.store.embedded import EmbeddedPostgres
from tests.endurance.anywhere import SOURCE, WRITING, done, run_on, undisturbed
from tests.endurance.spark_masters import SPECULATION, Settings, Submission, run_job, standalone
from tests.postgres import TEMPLATE, fresh_database
from tests.spark.oracle import query, read_state
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="many executors: make endurance ONLY=executors runs it")

COMING_AND_GOING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    # What an executor has shuffled does not hold it: it is made anew where it is missed.
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.cores": "1",
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "settings")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone(tmp_path_factory.mktemp("standalone"), workers=3) as address:
        yield address


@pytest.mark.parametrize("job", WRITING)
def test_executors_that_come_and_go_and_tasks_that_run_twice_change_nothing(
    postgres_server: EmbeddedPostgres, master: str, settings: Settings, tmp_path: Path, job: Any,
    tell: Callable[..., None],
) -> None:  # fmt: skip
    """The first task of each stage has written all, and ends only when a second attempt has written all, too.

    Once in each application the second waits for an executor to go that has nothing to do.
    """
    expected = undisturbed(job, postgres_server, tmp_path / "here")
    environment = settings.write(SPECULATION | COMING_AND_GOING | settings.event_log(), "lag")
    assert done(job, postgres_server, tmp_path / "there", run_on(master, environment)) == expected

    attempts = Counter(path.name.partition("-attempt-")[0] for path in settings.kills().iterdir())
    assert attempts
    assert set(attempts.values()) == {2}
    events = [event for _, event in settings.events()]
    kinds = Counter(event["Event"] for event in events)
    second = sum(event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"] for event in events)
    assert second >= len(attempts)
    assert kinds["SparkListenerExecutorRemoved"] >= 1
    tell(stages=len(attempts), second_attempts=second, executors_added=kinds["SparkListenerExecutorAdded"],
         executors_removed=kinds["SparkListenerExecutorRemoved"])  # fmt: skip


MINOR = sys.version_info[1]
OTHER_PYTHON = """
import sys
from collections import namedtuple
fields = namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = fields(3, sys.version_info[1] - 1, *sys.version_info[2:])
"""
OTHER_SPARK = "import pyspark; pyspark.__version__ = '4.0.9'"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            OTHER_PYTHON,
            rf"The driver has Python 3\.{MINOR}, the executor on another machine has 3\.{MINOR - 1}: run the driver",
        ),
        (OTHER_SPARK, r"The driver has PySpark [\d.]+, the executor on \S+ has 4\.0\.9: install the PySpark"),
    ],
    ids=["python", "pyspark"],
)
def test_executors_of_another_version_are_told(
    postgres_server: EmbeddedPostgres, master: str, settings: Settings, tmp_path: Path, other: str, words: str
) -> None:
    """What runs there says that it is of another version, as soon as its Python starts."""
    (tmp_path / "sitecustomize.py").write_text(other)
    environment = settings.write({"spark.executorEnv.PYTHONPATH": str(tmp_path)})
    with fresh_database(postgres_server, TEMPLATE) as url:
        refused = run_job(master, "bootstrap", SOURCE, [url], environment)
        assert refused.returncode == 1
        assert re.search(words, refused.stderr), refused.stderr
        assert "Nothing was changed" in refused.stderr
        assert query(url, "select count(*) from attribute") == [(0,)]


def test_spark_submit_runs_a_job_on_executors_that_have_the_archive_alone(
    listening: EmbeddedPostgres, archive: Path, settings: Settings, tmp_path: Path
) -> None:
    """A standalone master with two workers, an empty folder, no PYTHONPATH; executors are killed; no secret shows."""
    environment = settings.write(SPECULATION, "end")
    with fresh_database(listening, TEMPLATE) as url, standalone(tmp_path) as master:
        submit = Submission(settings, environment, archive, ["--master", master])
        submit(url, "bootstrap", [*SOURCE, "--partitions=4"])
        submitted = read_state(url)
    assert len(list(settings.kills().iterdir())) >= 2
    assert list((tmp_path / "worker-0").glob("app-*/*/environment/bin/python")), "executors have unpacked it"
    with fresh_database(listening, TEMPLATE) as url:
        before = run_job("local[2]", "bootstrap", SOURCE, [url], dict(os.environ))
        assert before.returncode == 0, before.stderr
        assert read_state(url) == submitted
