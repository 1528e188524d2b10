"""Following on Spark is killed in the middle of a batch, part after part, and every change is applied once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg2

from service.usecases.feed_session import Session
from tests import states
from tests.endurance.spark_masters import ROOT, Settings
from tests.spark.test_follow import AHEAD, BATCH_RECORDS, SHARDS, Shop, shop
from tests.waiting import BOUND_SECONDS, wait_for, wait_for_end

__all__ = ["shop"]

PARTS = ["keeper", "workers"]
START_SECONDS = 3 * BOUND_SECONDS
"""Java and Python processes start, and kernels may be compiled in each."""

APPLIED = "select coalesce(sum(records), 0) from state_version"


@contextmanager
def half_applied(shop: Shop) -> Iterator[psutil.Process]:
    """Send changes; when all shards but the last have them, give the keeper of that one, which waits for its row."""
    with closing(psycopg2.connect(shop.url)) as connection, connection.cursor() as cursor:
        cursor.execute("select from shard where shard = %s for update", (SHARDS - 1,))
        shop.change(BATCH_RECORDS // 2)
        shop.cluster.producer.flush()
        wait_for(lambda: states.query(shop.url, AHEAD) == [(SHARDS - 1,)])
        yield wait_for(lambda: next(asked_keepers(SHARDS - 1), None))
        connection.rollback()


def asked_keepers(shard: int) -> Iterator[psutil.Process]:
    """Give the keepers of a shard, of whatever executors, that have a call."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        is_keeper = "spark_jobs.shard_keeper" in command and command[-2].endswith(f"-{shard}")
        if is_keeper and sum(one.laddr == command[-2] for one in process.net_connections("unix")) > 1:
            yield process


def begun(
    shop: Shop, folder: Path, master: str, stderr: int | None = None, **environment: str
) -> subprocess.Popen[str]:
    """Let a process follow on Spark, and change something."""
    arguments = [f"--feed={shop.feed}", f"--master={master}", f"--batch-records={BATCH_RECORDS}"]
    following = subprocess.Popen(
        [sys.executable, "-m", "spark_jobs.follow", "--database-url=-", "--driver-memory=512m", *arguments],
        stdin=subprocess.PIPE, stderr=stderr, env=Settings(folder / "settings").write({}) | environment, cwd=ROOT,
        text=True,
    )  # fmt: skip
    assert following.stdin is not None
    following.stdin.write(f"{shop.url}\n")
    following.stdin.flush()
    shop.change(BATCH_RECORDS // 2)
    return following


def test_every_part_is_killed_while_a_batch_is_half_applied(shop: Shop, tmp_path: Path, whole: bool) -> None:
    """A keeper, the Python workers of an executor, the executor; and the driver, behind which one process goes on."""
    master, parts = ("local-cluster[2,1,512]", [*PARTS, "executor"]) if whole else ("local[2]", PARTS[:1])
    following = begun(shop, tmp_path, master, SUBSETD_DATABASE_RETRY_SECONDS=str(START_SECONDS))
    try:
        all_applied(shop, START_SECONDS)
        for part in parts:
            with half_applied(shop) as keeper:
                daemon = psutil.Process(int(keeper.cmdline()[-1]))
                victims = {"keeper": [keeper], "workers": daemon.children(), "executor": [daemon.parent()]}
                for victim in victims[part]:
                    assert victim is not None
                    victim.kill()
            all_applied(shop)
        with half_applied(shop):
            others = psutil.Process(following.pid).children(recursive=True)
            following.kill()
    finally:
        following.kill()
        following.communicate()
    for one in others:
        wait_for_end(one)
    consumer = shop.consumer(None, BATCH_RECORDS)
    consumer.make_session = Session
    consumer.run(threading.Event(), until_end=True)
    shop.check()
    all_applied(shop)


def test_a_java_that_is_killed_is_named(shop: Shop, tmp_path: Path) -> None:
    """It is not tried again, as a database is: the driver ends with one line, for whoever started it to start it."""
    following = begun(shop, tmp_path, "local[2]", stderr=subprocess.PIPE)
    try:
        all_applied(shop, START_SECONDS)
        (java,) = (one for one in psutil.Process(following.pid).children() if one.name() == "java")
        java.kill()
        _, said = following.communicate(timeout=BOUND_SECONDS)
    finally:
        following.kill()
    assert following.returncode == 1
    (told,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert told.startswith("error: Spark's Java ended (")
    assert "Traceback" not in said, said


def all_applied(shop: Shop, seconds: float = BOUND_SECONDS) -> None:
    """Wait until the batches hold all that was sent, each record once."""
    shop.cluster.producer.flush()
    wait_for(lambda: states.query(shop.url, APPLIED) == [(sum(shop.sent.values()),)], seconds)
