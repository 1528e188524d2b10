"""Own the Spark session: its settings, the Java it runs on, and what executors on other machines run our code with.

That is the archive of `make dist` where Spark's settings name one (spark.archives), or else the Python that they name
(spark.pyspark.python, PYSPARK_PYTHON) with our packages sent along.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import DataType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from service.core.errors import SourceError
from spark_jobs.class_archive import archive_options
from spark_jobs.java_runtime import JavaRuntime, find_java, said_by_java
from spark_jobs.job_folder import SOCKET_PATH_BYTES, job_folder
from spark_jobs.spark_defaults import spark_defaults

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ROOT = Path(__file__).resolve().parent.parent

REUSE = "spark.python.worker.reuse"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.shuffle.compress": "false",
    REUSE: "true",
    # Each run's executors have our code elsewhere; so kernels are found again by what is in the code.
    "spark.executorEnv.NUMBA_CACHE_LOCATOR_CLASSES": "spark_jobs.kernel_cache.ByContent",
}
"""What counts where Spark's own settings (spark-defaults.conf, --conf of spark-submit) do not say otherwise."""

DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"
COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
DAEMON = "spark.python.daemon.module"
ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
SOCKET_NAME_BYTES = 43
"""Spark calls a socket /.UUID.sock."""
ENDING_SECONDS = 5.0
"""When a Java whose connections are gone has ended at last."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of a driver that spark-submit has started: its Java runs already."""

LOGGING = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{{1}}: %m%n
"""


def session(
    master: str, app_name: str = "subsetd", driver_memory: str = "2g", log_level: str = "off", **settings: str
) -> SparkSession:
    """Start (or join) the Spark session for a master; `settings` are further Spark settings, `_` for `.`.

    A local master runs on 127.0.0.1 only. On other machines executors run the archive of `make dist` that Spark's
    settings name. Without one the packages `service` and `spark_jobs` are sent along to a Python that has the packages
    of requirements.lock. Spark's own log is off by default: an error reaches the driver as an exception, and is told
    once. Under spark-submit its Java, its master and its settings are taken as they are.
    Raises SourceError when there is no Java that runs Spark, or it ends before Spark has started.
    """
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app_name)
    if is_here(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = own_python()  # Java itself, too, starts what this names, or a python3
    if SUBMITTED not in os.environ:
        _start_java(conf, driver_memory, log_level)
    SparkContext._ensure_initialized()
    told = SparkConf()
    for key, value in SETTINGS.items():
        conf.set(key, told.get(key) or value)
    for key, value in settings.items():
        conf.set(key.replace("_", "."), value)
    conf.setIfMissing(DAEMON, workers_daemon(master, told))
    for key, value in {**worker_sockets(master), **kept_from_others(master)}.items():
        conf.set(key, told.get(key) or value)
    if not is_local(master):
        os.environ["PYSPARK_PYTHON"] = executors_python(told) or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except Py4JError as error:
        raise SourceError(
            f"Spark did not start on {master}: {said_by_java(error)}. Is the master there, and does it start "
            "executors? Run it again with --spark-log warn to see what Spark says."
        ) from error
    _quieten(spark.sparkContext._accumulatorServer)
    spark.sparkContext.setLogLevel(log_level.upper())
    if not _code_is_there(master, told):
        spark.sparkContext.addPyFile(str(zip_packages()))
    return spark


def java_has_ended() -> bool:
    """Tell whether the Java that Spark runs on has ended; one that is not ours is not asked."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return SUBMITTED in os.environ
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _quieten(server: Any) -> None:
    """Let what takes accumulators show no traceback where Java has been killed: that is told once."""
    told = server.handle_error
    server.handle_error = lambda *asked: None if java_has_ended() else told(*asked)


def _start_java(conf: SparkConf, driver_memory: str, log_level: str) -> None:
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    told = spark_defaults()
    theirs = told.get(DEFAULT_OPTIONS, ""), told.get("spark.driver.extraJavaOptions", "")
    # Spark itself puts the extra ones behind these: of two that contradict each other Java takes the last.
    options = f"{_java_options(java, log_level, ' '.join(theirs))} {theirs[0]}"
    conf.set("spark.driver.memory", driver_memory).set(DEFAULT_OPTIONS, options)
    conf.set("spark.ui.showConsoleProgress", "false")  # which is on by itself where Python starts Spark
    try:
        with _signals_waiting(), _any_end_seen():
            SparkContext._ensure_initialized(conf=conf)  # starts Java, as getOrCreate() would
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SourceError(
            f"{java.java} (version {java.version}) was to run Spark with {driver_memory} of memory, and ended before "
            f"Spark had started; what it said stands above. Set JAVA_HOME to another Java 17 or 21, or give less "
            f"memory: --driver-memory"
        ) from error


def _java_options(java: JavaRuntime, log_level: str, theirs: str = "") -> str:
    """Give the driver's options, which Spark takes apart as a shell would: a path may have a space.

    Beside a collector that the options of Spark's own settings name, Java would not start with ours.
    """
    collector = "" if COLLECTOR.search(theirs) else "-XX:+UseParallelGC "
    options = f"{collector}-XX:TieredStopAtLevel=1"  # moves bytes for a minute: C2 would never pay back
    logging = shlex.quote(f"-Dlog4j2.configurationFile={_logging_file(log_level)}")
    return f"{options} {logging} {archive_options(java)}"


def submitted_master() -> str | None:
    """Give the master of the spark-submit that has started this process; None where none has."""
    if SUBMITTED not in os.environ:
        return None
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master")


@cache
def own_python() -> str:
    """Name what runs the driver's Python, without the zip files that Spark puts first on the path of its modules.

    They hold the PySpark that is installed as source alone, which each process would compile for half a second: one for
    each stream that begins, and three for its data source. Those of another Spark (SPARK_HOME) count.
    """
    if "SPARK_HOME" in os.environ:
        return sys.executable
    script = job_folder() / "python"
    unzipped = "PYTHONPATH=${PYTHONPATH#*/python/lib/pyspark.zip:*.zip:}"
    script.write_text(f'#!/bin/sh\n{unzipped} exec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else sys.executable  # of some folders nothing is run


def executors_python(told: SparkConf) -> str | None:
    """Give the Python that tasks elsewhere run with, where one is named: no path of the driver is one there."""
    named = told.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    archive = _archive(told)
    return named or (f"./{archive}/bin/python" if archive else None)


def workers_daemon(master: str, told: SparkConf) -> str:
    """Name the module from which workers are forked: ours has imported our code, so Spark must not first send that."""
    ours = "spark_jobs.worker_daemon" if _code_is_there(master, told) else "pyspark.daemon"
    return str(told.get(DAEMON) or ours)


def worker_sockets(master: str) -> dict[str, str]:
    """Let Java and the Python workers of this machine talk over Unix sockets, where the path of one is not too long.

    Over TCP a task's last small message waits up to 40 ms until the one before it is acknowledged. On executors
    elsewhere the folder is theirs, with a name of any length, so that it is for whoever knows them to say.
    """
    if not is_local(master) or len(os.fsencode(folder := job_folder())) + SOCKET_NAME_BYTES > SOCKET_PATH_BYTES:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}


def kept_from_others(master: str) -> dict[str, str]:
    """Let no other user of this machine read what is shuffled, nor ask the driver for tasks and what is in them.

    Spark's folders can be read by all, and whoever connects to a port of its is heard. Of a cluster that is its
    administrator's to say: its executors have to know the secret.
    """
    return {"spark.local.dir": str(job_folder()), "spark.authenticate": "true"} if is_local(master) else {}


def _code_is_there(master: str, told: SparkConf) -> bool:
    return is_local(master) or _archive(told) is not None


def _archive(told: SparkConf) -> str | None:
    """Give the folder into which executors unpack an archive of `make dist`; None where the settings name none."""
    for key in ARCHIVES:
        for location in (told.get(key) or "").split(","):
            found = re.search(r"subsetd-environment[^/#]*(?:#(.+))?$", location.strip())
            if found:
                return found[1] or Path(location).name
    return None


@contextmanager
def _signals_waiting() -> Iterator[None]:
    """Let signals that have a handler wait for the end of the block.

    A Java of Spark's ends when its driver has ended, but not one that was starting when the driver was interrupted:
    PySpark then takes away the folder in which it is to say its port, and it fails before it looks for the driver.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda caught, _: came.append(caught))
    try:
        yield
    finally:
        for caught, handler in handlers.items():
            signal.signal(caught, handler)
    if came:
        signal.raise_signal(came[0])


class _Launched(subprocess.Popen[bytes]):
    """Be a Java that PySpark starts, and say of one that ended well, before it served, that it ended ill.

    PySpark 4.3 waits while the exit code is none or 0, so for ever when Java, or a script in its place, ends with 0.
    """

    def poll(self) -> int | None:
        code = super().poll()
        return 1 if code == 0 else code


@contextmanager
def _any_end_seen() -> Iterator[None]:
    """Let PySpark see that the Java which it starts in the block has ended, whatever its exit code."""
    pyspark: Any = java_gateway
    before, pyspark.Popen = pyspark.Popen, _Launched
    try:
        yield
    finally:
        pyspark.Popen = before


def local_session(cores: int | str = "*", **settings: str) -> SparkSession:
    """Start a session on this machine."""
    return session(f"local[{cores}]", **settings)


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Let Spark know a data source of ours.

    The first time it looks for others' in a worker, which would then wait for more and, as Java closes it a minute
    later, print the traceback of a broken pipe. That worker imports nothing of ours: so it is to end with its task.
    """
    conf = spark.sparkContext._conf  # what Java itself reads, while getConf() is a copy
    before = conf.get(REUSE, "true")
    conf.set(REUSE, "false")
    try:
        spark.dataSource.register(source)
    finally:
        conf.set(REUSE, before)


def is_local(master: str) -> bool:
    """Tell whether a master runs everything in this machine's driver."""
    return master == "local" or master.startswith("local[")


def is_here(master: str) -> bool:
    """Tell whether a master runs everything on this machine, if in processes of their own."""
    return is_local(master) or master.startswith("local-cluster[")


def task_threads(context: SparkContext) -> int:
    """Count the threads that a task which runs alone may use where it runs."""
    if is_local(str(context.master)):
        return int(context.defaultParallelism)
    return int(context.getConf().get("spark.executor.cores", "1"))


def zip_packages() -> Path:
    """Write the Python packages that executors need into a zip file, for `--py-files`, and return its path."""
    path = job_folder() / "subsetd.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("service", "spark_jobs"):
            for file in sorted((ROOT / package).rglob("*.py")):
                archive.write(file, file.relative_to(ROOT))
    return path


def _logging_file(level: str) -> Path:
    path = job_folder() / "log4j2.properties"
    path.write_text(LOGGING.format(level=level))
    return path


def map_in_arrow(frame: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Do what `frame.mapInArrow(function, schema)` does, without pandas.

    PySpark 4.3 asks for pandas before it makes the function's wrapper and then never uses it; a worker that finds
    pandas imports it, which takes longer than most of our tasks.
    """
    wrapped = UserDefinedFunction(function, _parsed(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = wrapped(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


@cache
def _parsed(schema: str) -> DataType:
    """Read a schema once: Java does it, and a micro-batch would ask it twice, for two milliseconds each."""
    return DataType.fromDDL(schema)
