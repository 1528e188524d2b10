"""The Spark session as a process sees it: a driver takes its Java with it, and tells of a Java that does not start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_jobs.follow_source import ChangesDataSource
from spark_jobs.java_runtime import find_java, said_by_java
from spark_jobs.session import REUSE, register
from spark_jobs.worker_daemon import IMPORTED
from tests.waiting import wait_for, wait_for_end

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import signal, sys
from spark_jobs.session import local_session
for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts with & ignore the first
    signal.signal(number, signal.default_int_handler)
try:
    local_session(1).range(1 << 40).count()
except KeyboardInterrupt:
    sys.exit(130)
"""


def java_of(driver: subprocess.Popen[bytes]) -> psutil.Process | None:
    """Find Spark's launcher among a driver's children; the same process becomes its Java."""
    for child in psutil.Process(driver.pid).children():
        try:
            if "pyspark-shell" in child.cmdline():
                return child
        except psutil.Error:
            continue
    return None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_ends_while_its_java_starts_leaves_none(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", DRIVER], cwd=ROOT, stderr=subprocess.DEVNULL) as driver:
        java = wait_for(lambda: java_of(driver))
        assert java is not None
        driver.send_signal(number)
        try:
            assert driver.wait(120) == (-number if number is signal.SIGKILL else 130)
        finally:
            driver.kill()  # or it would be waited for without end
    try:
        wait_for_end(java, seconds=60)
    except AssertionError:
        java.kill()
        raise


def test_of_an_error_of_java_is_told_what_java_says(spark: SparkSession) -> None:
    """Py4J's error begins with the call: that of a session that did not start, whatever the reason."""
    assert spark.sparkContext._jvm is not None
    with pytest.raises(Py4JJavaError) as raised:
        spark.sparkContext._jvm.java.lang.Class.forName("none.such")
    assert said_by_java(raised.value) == "java.lang.ClassNotFoundException: none.such"


JOB = """
import sys
from argparse import Namespace
from spark_jobs.job import run_job
given = Namespace(master="local[1]", driver_memory=sys.argv[1], spark_log="off")
sys.exit(run_job(given, "test", lambda start: start(), lambda _: 0))
"""

ENDS_AT_ONCE = """#!/bin/sh
[ "$2" = -XshowSettings:properties ] && echo "java.home = $JAVA_HOME
java.specification.version = 17" >&2 && exit
case "$*" in *org.apache.spark.launcher.Main*) exec '{java}' "$@" ;; esac
echo 'this Java is broken' >&2
exit {code}
"""


def a_broken_java(home: Path, code: int) -> dict[str, str]:
    """Make a Java that says its version, makes Spark's command line, and ends with an exit code instead of serving."""
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(ENDS_AT_ONCE.format(java=find_java().java, code=code))
    java.chmod(0o755)
    return {"JAVA_HOME": str(home)}


@pytest.mark.parametrize(
    ("ends_with", "memory", "said"),
    [(1, "1g", "this Java is broken"), (0, "1g", "this Java is broken"), (None, "9999999g", "heap")],
)
def test_a_java_that_ends_before_spark_has_started_is_told(
    tmp_path: Path, ends_with: int | None, memory: str, said: str
) -> None:
    chosen = {} if ends_with is None else a_broken_java(tmp_path, ends_with)
    done = subprocess.run(
        [sys.executable, "-c", JOB, memory], cwd=ROOT, env={**os.environ, **chosen}, check=False, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    told = done.stderr.splitlines()[-1]
    java = re.match(rf"error: (.*) \(version \d+\) was to run Spark with {memory} of memory, and ended ", told)
    assert java is not None
    assert ends_with is None or java[1] == str(tmp_path / "bin" / "java")
    assert "JAVA_HOME" in told
    assert "--driver-memory" in told
    assert said in done.stdout + done.stderr, "Java's own words"
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def where_this_runs(_: object) -> tuple[list[str], int, set[str]]:
    """Give the command line and the threads of the process that forked this one, and what this has not imported."""
    daemon = psutil.Process(os.getppid())
    return daemon.cmdline(), daemon.num_threads(), set(IMPORTED) - sys.modules.keys()


def test_workers_are_forked_from_one_thread_that_has_imported_what_they_need(spark: SparkSession) -> None:
    ((command, threads, missing),) = spark.sparkContext.parallelize([0], 1).map(where_this_runs).collect()
    assert "spark_jobs.worker_daemon" in command
    assert threads == 1, "a child may wait for ever for what another thread had locked"
    assert missing == set()


def test_what_looks_for_other_data_sources_does_not_wait_for_more(spark: SparkSession) -> None:
    """Java closes one that waits after a minute, of which it would print a traceback among what the job says."""
    register(spark, ChangesDataSource)
    java = spark.sparkContext._gateway.proc.pid
    (looks,) = (
        one
        for one in psutil.process_iter(["ppid", "cmdline"])  # others may be ended, and not yet waited for
        if one.info["ppid"] == java and "pyspark.sql.worker.lookup_data_sources" in (one.info["cmdline"] or ())
    )
    wait_for(lambda: not looks.children())
    assert Path(looks.exe()).samefile(sys.executable), "not any python3 that the PATH has"
    assert spark.sparkContext._conf.get(REUSE) == "true"


class WhereThisIsPlanned(DataSource):
    """Have one row: the path of modules of the process that plans to read it."""

    @classmethod
    def name(cls) -> str:
        return "where-this-is-planned"

    def schema(self) -> str:
        return "path string"

    def reader(self, schema: object) -> DataSourceReader:
        return PlannedHere()


class PlannedHere(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(os.pathsep.join(sys.path))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (partition.value,)


def test_what_plans_to_read_imports_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    register(spark, WhereThisIsPlanned)
    (row,) = spark.read.format(WhereThisIsPlanned.name()).load().collect()
    assert "spark-core" in row.path, "it is Spark's path"
    assert [entry for entry in row.path.split(os.pathsep) if entry.endswith(("pyspark.zip", "src.zip"))] == []


def test_what_plans_a_stream_imports_little() -> None:
    """Spark starts a process for it whenever a stream begins, and all wait for that."""
    heavy = "{'numba', 'pandas', 'psycopg2', 'scipy', 'sqlalchemy'}"
    asked = f"import sys, spark_jobs.follow_source; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.check_output([sys.executable, "-c", asked], cwd=ROOT, text=True) == "[]\n"
