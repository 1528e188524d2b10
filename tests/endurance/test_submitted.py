"""Jobs by spark-submit on a YARN and on a Kubernetes' API, from the archive alone, while executors are killed.

Long proofs alone: make endurance ONLY=submitted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from service.store.embedded import EmbeddedPostgres
from tests.endurance.anywhere import SOURCE
from tests.endurance.hadoop import yarn
from tests.endurance.kubernetes import kubernetes
from tests.endurance.spark_masters import Settings, run_job, submit_job
from tests.postgres import TEMPLATE, fresh_database
from tests.spark.oracle import read_state
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="servers and jars of their own: make endurance ONLY=submitted")

EXECUTORS = {"spark.executor.instances": "2", "spark.executor.maxNumFailures": "100"}
JOBS = (["bootstrap", *SOURCE, "--task-bytes=40000"], ["audit", "--algorithm=rarest-first"])
IN_CLUSTER = ["--deploy-mode", "cluster", "--files", "url", "--conf", "spark.pyspark.python=./environment/bin/python"]

Submitted = Callable[..., int]


@pytest.fixture
def submitted(listening: EmbeddedPostgres, archive: Path, tmp_path: Path) -> Submitted:
    """Run a bootstrap, and the audit of what it made; executors are killed in each stage, as tasks begin and end.

    What is there then is what a bootstrap in one process makes. Returns how many were killed.
    """

    def submit(options: list[str], told: Mapping[str, str], environment: Mapping[str, str]) -> int:
        kills = 0
        with fresh_database(listening, TEMPLATE) as url:
            for job in JOBS:
                settings = Settings(tmp_path / job[0])
                written = settings.write({**EXECUTORS, **told, **settings.event_log()}, "begin+end")
                submit_job(settings, {**written, **environment}, archive, url, options, [*job, "--partitions=4"])
                killed = [path.name.rpartition("-") for path in settings.kills().iterdir()]
                assert {stage for stage, _, _ in killed} == settings.python_stages()
                kills += len(killed)
            state = read_state(url)
        assert len(state.records) > 1000
        with fresh_database(listening, TEMPLATE) as url:
            here = run_job("local[2]", "bootstrap", SOURCE, [url], dict(os.environ))
            assert here.returncode == 0, here.stderr
            assert read_state(url) == state
        return kills

    return submit


@pytest.fixture(scope="module")
def clients_of_yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.mark.parametrize("mode", [["--deploy-mode", "client"], IN_CLUSTER], ids=lambda mode: mode[1])
def test_jobs_on_yarn(
    submitted: Submitted, clients_of_yarn: Path, tmp_path: Path, mode: list[str], tell: Callable[..., None]
) -> None:
    told = {
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        "spark.yarn.stagingDir": f"file://{tmp_path}/staging",
        "spark.yarn.am.memory": "512m",
    }
    environment = dict.fromkeys(("YARN_CONF_DIR", "HADOOP_CONF_DIR"), str(clients_of_yarn))
    tell(executors_killed=submitted(["--master", "yarn", *mode], told, environment))


def test_jobs_on_kubernetes(submitted: Submitted, tmp_path: Path, tell: Callable[..., None]) -> None:
    """The driver is this machine's; its executors are pods."""
    told = {
        "spark.kubernetes.container.image": "none",
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.driver.host": "127.0.0.1",
    }
    with kubernetes(tmp_path / "pods") as master:
        killed = submitted(["--master", master, "--deploy-mode", "client"], told, {})
        started = len(list((tmp_path / "pods").iterdir()))
    assert started > killed
    tell(executors_killed=killed, pods=started)
