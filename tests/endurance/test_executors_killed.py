"""Executors are killed in every stage of every job, and the answer is that of one undisturbed process.

Long proofs alone (`make endurance ONLY=executors`); what a task does that Spark runs twice is shown by
tests/spark/test_late_tasks.py in each run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.store import migrate
from service.store.embedded import EmbeddedPostgres
from tests.endurance.conftest import IS_WHOLE
from tests.endurance.spark_masters import ROOT, SPECULATION, Settings, run_job, standalone
from tests.joinable import ask, told
from tests.ports import free_ports
from tests.postgres import TEMPLATE, administer, fresh_database
from tests.refreshing import Lake
from tests.spark.oracle import query, read_state
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="many executors: make endurance ONLY=executors runs it")

SHOP = ROOT / "service/demo/chinook"
KEPT = ["--key=Album=AlbumId", "--track-key=Album=ArtistId,Title"]
SOURCE = [str(SHOP), "--name=shop"]
STATE = (
    "select value_key::text, attribute_ids, frequencies from gen_rec order by 1",
    "select attribute_ids, value_count from cluster order by 1",
    "select attribute_id, column_name, row_count, null_count, distinct_count, repeated_count from attribute order by 1",
    "select dependent_id, referenced_id from uind where until_version is null order by 1, 2",
)
"""What a state is, but for the numbers of clusters, which are in the order in which tasks come."""
IMAGES = "select table_name, row_key::text, cells from row_image join tracked_table using (table_id) order by 1, 2"
SKETCHES = "select column_name, table_name, sketch from sketch join attribute using (attribute_id) order by 1, 2"
UPLOADS = "select name, sketch from uploaded_sketch order by name"

Run = Callable[..., str]
"""Run a job with its arguments, and give what it said."""


def bootstrap(run: Run, url: str, _: Path) -> Any:
    run("bootstrap", *SOURCE, *KEPT, "--partitions=4", "--task-bytes=40000")
    return [query(url, statement) for statement in (*STATE, IMAGES, SKETCHES)]


def audit(run: Run, url: str, _: Path) -> Any:
    return [
        re.sub(r"[\d.]+ s$", "", run("audit", f"--algorithm={algorithm}", "--partitions=4"), flags=re.MULTILINE)
        for algorithm in ("rarest-first", "signatures")
    ]


def key_discovery(run: Run, url: str, _: Path) -> Any:
    return re.sub(r"in [\d.]+ s", "", run("key_discovery", *SOURCE, "--width=2"))


def sketch_lake(run: Run, url: str, _: Path) -> Any:
    run("sketch_lake", *SOURCE, "--task-bytes=40000")
    return query(url, UPLOADS)


def backfill(run: Run, url: str, _: Path) -> Any:
    run("backfill", '--key=["shop", "Track", "AlbumId", "Name"]')
    return [query(url, statement) for statement in STATE]


def refresh(run: Run, url: str, folder: Path, **settings: Any) -> Any:
    """Refresh twice: all of the lake, and what was changed in it."""
    lake = Lake(url, folder, joinable=True, **settings)
    found = []
    for change in (None, "AlbumId,Title\n1,x\n2,y\n"):
        if change is not None:
            (folder / "Album.csv").write_text(change)
        run("many_refresh", f"--refresh-id={lake.queue()}", f"--data-dir={lake.data_dir}", "--on-spark")
        rows = [(str(n), f"{n % 5}") for n in range(1, 40)]
        found.append((lake.inds(), told(ask(url, lake.name, rows, 5)), lake.report["stored"]))
    return found


def refresh_in_partitions(run: Run, url: str, folder: Path) -> Any:
    return refresh(run, url, folder, partitions=3)


BOOTSTRAPPED = (audit, key_discovery, sketch_lake, backfill)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "settings")


def done(job: Any, server: EmbeddedPostgres, folder: Path, master: str, environment: dict[str, str]) -> Any:
    """Run a job on a database of its own, and give what it has done."""
    lake = folder / "lake"
    lake.mkdir(parents=True)
    for file in SHOP.glob("*.csv"):
        (lake / file.name).write_bytes(file.read_bytes())
    with fresh_database(server, TEMPLATE) as url:

        def run(module: str, *arguments: str) -> str:
            ended = run_job(master, module, arguments, [url], environment)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            return ended.stdout

        if job in BOOTSTRAPPED:
            before = run_job("local[2]", "bootstrap", [*SOURCE, *KEPT], [url], dict(os.environ))
            assert before.returncode == 0, before.stderr
        return job(run, url, lake)


@pytest.mark.parametrize("job", [bootstrap, *BOOTSTRAPPED, refresh, refresh_in_partitions])
def test_executors_killed_in_every_stage_of_a_job_change_nothing(
    postgres_server: EmbeddedPostgres, settings: Settings, tmp_path: Path, job: Any, tell: Callable[..., None]
) -> None:
    """In each stage one as its first task begins, one as a task has done all and not told; what lags is run twice."""
    undisturbed = done(job, postgres_server, tmp_path / "here", "local[2]", dict(os.environ))
    environment = settings.write(SPECULATION, "begin+end")
    assert done(job, postgres_server, tmp_path / "there", "local-cluster[3,1,1024]", environment) == undisturbed
    kills = sorted(path.name for path in settings.kills().iterdir())
    stages = {kill.partition("-")[0] for kill in kills}
    assert kills == sorted(f"{stage}-{point}" for stage in stages for point in ("begin", "end"))
    assert len(stages) >= 2
    tell(stages=len(stages), executors_killed=len(kills))


@pytest.fixture
def listening() -> Iterator[EmbeddedPostgres]:
    """Run a Postgres with an address, as executors elsewhere need it, and a password."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-test-"))
    with EmbeddedPostgres(folder, throw_away=True, port=free_ports(1)[0]) as server:
        administer(server, f"create database {TEMPLATE}")
        migrate.upgrade(server.url_of(TEMPLATE))
        yield server


def test_spark_submit_runs_a_job_on_executors_that_have_the_archive_alone(
    listening: EmbeddedPostgres, settings: Settings, tmp_path: Path
) -> None:
    """A standalone master with two workers, an empty folder, no PYTHONPATH; executors are killed; no secret shows."""
    made = subprocess.run([sys.executable, "-m", "tools.make_dist"], cwd=ROOT, check=False, capture_output=True)
    assert made.returncode == 0, made.stderr
    with tarfile.open(ROOT / "dist/subsetd-environment.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="tar")
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = settings.write(SPECULATION, "end")
    environment = {
        **{name: value for name, value in environment.items() if name != "PYTHONPATH"},
        "PYSPARK_DRIVER_PYTHON": str(tmp_path / "environment/bin/python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with fresh_database(listening, TEMPLATE) as url, standalone(tmp_path) as master:
        (empty / "url").write_text(url)
        password = url.partition("postgres:")[2].partition("@")[0]
        assert len(password) > 8
        submit = [
            f"{settings.folder}/spark/bin/spark-submit", "--master", master, "--driver-memory", "512m",
            "--archives", f"{ROOT}/dist/subsetd-environment.tar.gz#environment", f"{ROOT}/dist/subsetd_job.py",
            "bootstrap", *SOURCE, "--partitions=4", "--database-url=@url",
        ]  # fmt: skip
        with (
            (tmp_path / "said").open("wb") as said,
            subprocess.Popen(submit, cwd=empty, env=environment, stdout=said, stderr=said) as job,
        ):

            def ended() -> bool:
                for process in psutil.process_iter(["cmdline"]):
                    assert password not in " ".join(process.info["cmdline"] or ())
                return job.poll() is not None

            wait_for(ended, 900)
        assert job.returncode == 0, (tmp_path / "said").read_text()
        submitted = read_state(url)
    assert len(list(settings.kills().iterdir())) >= 2
    assert list((tmp_path / "worker-0").glob("app-*/*/environment/bin/python")), "executors have unpacked it"
    with fresh_database(listening, TEMPLATE) as url:
        before = run_job("local[2]", "bootstrap", SOURCE, [url], dict(os.environ))
        assert before.returncode == 0, before.stderr
        assert read_state(url) == submitted
