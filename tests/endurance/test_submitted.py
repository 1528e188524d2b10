"""Every job by spark-submit on a YARN and on a Kubernetes' API, from the archive alone; executors of some are killed.

Long proofs alone: make endurance ONLY=submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from service.store.embedded import EmbeddedPostgres
from tests import states
from tests.cluster import Cluster
from tests.endurance.anywhere import JOBS, audit, bootstrap, done, undisturbed
from tests.endurance.hadoop import yarn
from tests.endurance.kubernetes import kubernetes
from tests.endurance.spark_masters import Settings, Submission
from tests.postgres import TEMPLATE, fresh_database
from tests.spark.test_follow import SHARDS, Shop
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="servers and jars of their own: make endurance ONLY=submitted")

EXECUTORS = {"spark.executor.instances": "2", "spark.executor.maxNumFailures": "100"}
KILLED = (bootstrap, audit)
"""Jobs whose executors are killed in each stage: another takes long to come, and unpacks the archive anew.

That each job bears it is shown where executors come sooner: tests/endurance/test_executors_killed.py.
"""

CLUSTER = ["--deploy-mode", "cluster", "--files", "url", "--conf", "spark.pyspark.python=./environment/bin/python"]
CLIENT = ["--deploy-mode", "client"]


@dataclass(frozen=True)
class Place:
    """Hold where jobs run: the options of spark-submit, Spark's settings, and where a driver's output is."""

    options: list[str]
    told: dict[str, str]
    environment: dict[str, str]
    stdout: tuple[Path, str] | None
    pods: Path | None = None

    def submission(self, settings: Settings, archive: Path, killing: str | None = None) -> Submission:
        written = settings.write({**EXECUTORS, **self.told, **settings.event_log()}, killing)
        return Submission(settings, {**written, **self.environment}, archive, self.options, self.stdout)


def on_yarn(folder: Path, mode: list[str]) -> Iterator[Place]:
    with yarn(folder) as clients:
        told = {
            "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
            "spark.yarn.stagingDir": f"file://{folder}/staging",
            "spark.yarn.am.memory": "512m",
        }
        environment = dict.fromkeys(("YARN_CONF_DIR", "HADOOP_CONF_DIR"), str(clients))
        stdout = None if mode is CLIENT else (folder, "node-*/logs/*/container_*_000001/stdout")
        yield Place(["--master", "yarn", *mode], told, environment, stdout)


def on_kubernetes(folder: Path, mode: list[str]) -> Iterator[Place]:
    with kubernetes(folder / "pods") as master:
        told = {
            "spark.kubernetes.container.image": "none",
            "spark.kubernetes.allocation.batch.delay": "1s",
        }
        if mode is CLIENT:
            told |= {"spark.driver.host": "127.0.0.1"}
        else:
            told |= {
                "spark.kubernetes.file.upload.path": f"file://{folder}",
                "spark.kubernetes.driver.master": master.removeprefix("k8s://"),
            }
        stdout = None if mode is CLIENT else (folder, "pods/*-driver/said")
        yield Place(["--master", master, *mode], told, {}, stdout, folder / "pods")


@pytest.fixture(
    scope="module",
    params=[(on_yarn, CLIENT), (on_yarn, CLUSTER), (on_kubernetes, CLIENT), (on_kubernetes, CLUSTER)],
    ids=lambda place: f"{place[0].__name__.removeprefix('on_')}-{place[1][1]}",
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Run what gives executors, on loopback."""
    on, mode = request.param
    yield from on(tmp_path_factory.mktemp("place"), mode)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "settings")


@pytest.mark.parametrize("job", JOBS)
def test_jobs(
    listening: EmbeddedPostgres, archive: Path, place: Place, settings: Settings, tmp_path: Path, job: Any,
    tell: Callable[..., None],
) -> None:  # fmt: skip
    """What a job has done is what one undisturbed process does."""
    expected = undisturbed(job, listening, tmp_path / "here")
    before = len(list(place.pods.glob("*"))) if place.pods else 0
    submission = place.submission(settings, archive, "begin+end" if job in KILLED else None)
    assert done(job, listening, tmp_path / "there", submission) == expected
    stages = settings.python_stages()
    assert stages
    tell(stages=len(stages))
    if job in KILLED:
        killed = [path.name.rpartition("-") for path in settings.kills().iterdir()]
        assert {stage for stage, _, _ in killed} == stages
        tell(executors_killed=len(killed))
        if place.pods:
            started = len(list(place.pods.iterdir())) - before
            assert started > len(killed)
            tell(pods=started)


def test_following(
    listening: EmbeddedPostgres, archive: Path, cluster: Cluster, place: Place, settings: Settings
) -> None:
    """All that a topic has is applied, each change once, over the end of one driver."""
    submission = place.submission(settings, archive)
    with fresh_database(listening, TEMPLATE) as url:
        shop = Shop(url, cluster)
        states.deal(url, SHARDS)
        for _ in range(2):
            shop.change(90)
            cluster.producer.flush()
            submission(url, "follow", [f"--feed={shop.feed}", "--until-end", "--batch-records=60"])
            shop.check()
