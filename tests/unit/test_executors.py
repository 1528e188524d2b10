"""What runs elsewhere: how executors are told of our code, what is asked of them, and where their kernels are kept."""

from __future__ import annotations

import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyspark
import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkException

from service.core.errors import (
    ConflictError,
    DamagedStateError,
    FeedAwayError,
    NoStateError,
    SketchError,
    SourceError,
    StateError,
    SubsetdError,
)
from service.store.shard_servers import ShardServer
from service.usecases.batches import Totals
from spark_jobs import executors, follow, kernel_cache, session
from spark_jobs import job as jobs
from spark_jobs.command_line import read_secrets
from spark_jobs.executors import Look, Machine, names_in, require_executors
from spark_jobs.follow_source import ChangesDataSource
from spark_jobs.hadoop_files import absolute
from spark_jobs.job_folder import SOCKET_PATH_BYTES
from spark_jobs.kafka_source import TopicsDataSource
from spark_jobs.parallel import telling
from spark_jobs.session import executors_python, is_here, is_local, own_python, worker_sockets, workers_daemon
from spark_jobs.submit import JOBS
from spark_jobs.submit import main as submit
from spark_jobs.telling import telling_errors, told_error
from spark_jobs.worker_daemon import end_quietly_here, without_zipped_copies
from tests.waiting import BOUND_SECONDS

HERE = Machine("driver", "3.11", "4.3.0", "abc")
URL = "postgresql://u:hidden@db/x"


class Cluster:
    """Be a session whose executors say what a test lets them."""

    def __init__(self, *said: tuple[Machine, str | None, str | None, str | None]) -> None:
        self.sparkContext = self
        self.master, self.defaultParallelism, self.said = "spark://m:7077", 2, list(said)

    def parallelize(self, *_: object) -> Cluster:
        return self

    def mapPartitions(self, look: Look) -> Cluster:
        self.look = look
        return self

    def collect(self) -> list[Any]:
        return self.said

    def stop(self) -> None:
        """End, as a job does."""


def there(**other: str) -> Machine:
    told = {"host": "far", "python": HERE.python, "spark": HERE.spark, "code": HERE.code, **other}
    return Machine(**told)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "here", lambda: HERE)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"python": "3.12"}, "has Python 3.11, the executor on far has 3.12"),
        ({"spark": "4.0.1"}, "has PySpark 4.3.0, the executor on far has 4.0.1"),
        ({"code": "def"}, "has subsetd's code abc, the executor on far has def: make the archive anew"),
    ],
)
def test_versions_that_differ_are_told(driver: None, other: dict[str, str], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        require_executors(Cluster((there(), None, None, None), (there(**other), None, None, None)), URL)  # type: ignore[arg-type]


def test_a_python_that_pyspark_itself_refuses_is_told(driver: None) -> None:
    """As PySpark 4.3 says it, with much before and behind."""
    said = (
        "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
        "driver: 3.11, PySpark cannot run with different minor versions.\n\tat org.apache.spark"
    )
    cluster: Any = Cluster()
    cluster.collect = raising(PySparkException(said))
    with pytest.raises(
        SourceError, match=r"The driver has Python 3\.11, the executor on another machine has 3\.12: run"
    ):
        require_executors(cluster, None)
    cluster.collect = raising(PySparkException("Caused by: java.lang.OutOfMemoryError: Java heap space"))
    with pytest.raises(StateError, match="OutOfMemoryError"):
        require_executors(cluster, None)


def raising(error: Exception) -> Callable[[], None]:
    """Give what raises an error."""

    def fail() -> None:
        raise error

    return fail


def test_code_that_was_sent_along_is_the_drivers(driver: None) -> None:
    require_executors(Cluster((there(code=executors.SENT), None, None, None)), URL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:hidden@/x?host=/tmp/socket&port=1", "it is a socket of the driver's machine"),
        (URL, "give an address that means the same on all machines"),
    ],
)
def test_a_database_that_executors_do_not_reach_is_told_without_its_password(
    driver: None, url: str, words: str
) -> None:
    with pytest.raises(StateError, match=words) as refused:
        require_executors(Cluster((there(), "Connection refused.", None, None)), url)  # type: ignore[arg-type]
    assert "executor on far" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_folder_that_executors_do_not_see_is_told_and_addresses_are_not_looked_for(
    driver: None, tmp_path: Path
) -> None:
    cluster: Any = Cluster((there(), None, None, str(tmp_path)))
    with pytest.raises(SourceError, match=f"{tmp_path}: the executor on far does not see it"):
        require_executors(cluster, None, [str(tmp_path), "hdfs://nn/x", "postgresql://h/d"])
    assert [path for path, _ in cluster.look.names] == [str(tmp_path)]


def test_the_names_of_a_feeds_sources_are_no_locations(driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = Cluster((there(), None, None, None))
    monkeypatch.setattr(jobs, "session", lambda *_: cluster)
    monkeypatch.setattr(jobs, "servers_reached", lambda _: [])
    given: list[Any] = []
    monkeypatch.setattr(follow, "follow", lambda start, told, _: [start(), given.append(told.sources), Totals()][-1])
    named = ["--source=shop", "--source=lake"]
    assert follow.main([f"--database-url={URL}", "--feed=kafka://host:1/t", "--master=spark://m:7077", *named]) == 0
    assert (given, cluster.look.names) == ([["shop", "lake"]], [])


def test_a_server_of_shards_that_the_driver_alone_reaches_is_told(driver: None) -> None:
    cluster: Any = Cluster((there(), None, None, None), (there(host="near"), None, "server 'east': no password.", None))
    servers = [ShardServer("east", URL, (1,))]
    with pytest.raises(StateError, match=r"executor on near .* which the driver reaches.*server 'east': no password\."):
        require_executors(cluster, URL, servers=lambda: servers)
    assert cluster.look.servers == servers


def test_an_executor_looks_for_the_database_and_for_what_the_driver_sees(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    seen = [(str(path), names_in(str(path))) for path in (tmp_path, tmp_path / "t.csv")]
    assert list(Look(None, seen)([])) == [(Machine.here(), None, None, None)]
    nowhere = "postgresql://u@127.0.0.1:1/x"
    look = Look(nowhere, [*seen, (str(tmp_path), ["other.csv"])], [ShardServer("east", nowhere, (1, 2))])
    ((_, fault, away, missing),) = look([])
    assert "Cannot reach" in str(fault)
    assert re.match(r"server 'east' \(shards 1, 2\): Cannot reach .*127\.0\.0\.1", str(away))
    assert missing == str(tmp_path), "a folder of the same name, with other files"


def test_a_local_master_is_not_asked() -> None:
    require_executors(SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]")), URL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("master", "settings", "python"),
    [
        ("local[2]", {"spark.archives": "/a/subsetd-environment.tar.gz#e"}, "./e/bin/python"),
        ("yarn", {"spark.yarn.dist.archives": "hdfs:///a/subsetd-environment.tar.gz#e"}, "./e/bin/python"),
        ("k8s://https://h:1", {"spark.archives": "x.zip#x,s3a://b/subsetd-environment.tar.gz#env"}, "./env/bin/python"),
        ("spark://h:1", {"spark.archives": "a/subsetd-environment.tar.gz"}, "./subsetd-environment.tar.gz/bin/python"),
        ("spark://h:1", {"spark.archives": "a/subsetd-environment.tar.gz#e", "spark.pyspark.python": "p"}, "p"),
        ("spark://h:1", {"spark.archives": "a/other.tar.gz#e"}, None),
        ("local-cluster[2,1,1024]", {}, None),
    ],
)
def test_tasks_run_with_the_python_of_the_archive(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str], python: str | None
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    told = SparkConf(loadDefaults=False)
    told.setAll(list(settings.items()))
    assert executors_python(told) == python
    there = master == "local[2]" or "subsetd-environment" in str(settings)
    assert workers_daemon(master, told) == ("spark_jobs.worker_daemon" if there else "pyspark.daemon")
    assert (is_local(master), is_here(master)) == (master == "local[2]", master.startswith("local"))


def test_a_daemon_that_spark_is_told_of_counts() -> None:
    told = SparkConf(loadDefaults=False).set("spark.python.daemon.module", "theirs")
    assert workers_daemon("local[2]", told) == "theirs"


def test_workers_import_the_pyspark_that_is_installed_and_a_clusters_own_where_that_comes_first() -> None:
    zipped = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")
    theirs = "/opt/spark/python/lib/pyspark.zip"
    installed = str(Path(pyspark.__file__).parent.parent)
    assert without_zipped_copies(["", theirs, zipped, installed]) == ["", theirs, installed]
    assert without_zipped_copies([zipped]) == [zipped], "what else would they import?"


def modules_path(python: str, path: list[str]) -> list[str]:
    """Give what of a path of modules a Python keeps."""
    asked = [python, "-c", "import os; print(os.environ['PYTHONPATH'])", "an argument"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.check_output(asked, env=environment, text=True).strip().split(os.pathsep)


def test_what_java_starts_here_imports_no_zipped_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(session, "job_folder", lambda: tmp_path)
    of_spark = ["/a/lib/pyspark/python/lib/pyspark.zip", "/a/lib/pyspark/python/lib/py4j-1-src.zip"]
    rest = ["/a/jars/spark-core.jar", "/my own/code.zip", ""]
    python = own_python.__wrapped__()
    assert modules_path(python, [*of_spark, *rest]) == rest
    assert modules_path(python, rest) == rest
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert own_python.__wrapped__() == sys.executable, "a folder of which nothing is run"
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert own_python.__wrapped__() == sys.executable, "another Spark's own"


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"{URL}\n")
    given = SimpleNamespace(database_url=f"@{tmp_path / 'url'}", source="x")
    read_secrets(given, "database_url", "source")  # type: ignore[arg-type]
    assert (given.database_url, given.source) == (URL, "x")
    given.database_url = f"@{tmp_path / 'none'}"
    with pytest.raises(SourceError, match="none: the address that is to be in it cannot be read"):
        read_secrets(given, "database_url")  # type: ignore[arg-type]


@pytest.mark.parametrize("job", JOBS)
def test_each_job_has_a_name_for_spark_submit(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        submit([job, "--help"])
    assert ended.value.code == 0
    assert "--database-url" in capsys.readouterr().out


NEEDED = {
    "backfill": ["--key", '["s", "t", "a"]'],
    "bootstrap": ["files", "--name", "s"],
    "follow": ["--feed", "kafka://host:1/t"],
    "join-index": ["--corpus", "c"],
    "key-discovery": ["files", "--name", "s"],
    "refresh": ["--refresh-id", "1"],
    "sketch-lake": ["files", "--name", "s"],
}


@pytest.mark.parametrize("job", JOBS)
def test_each_job_says_that_it_needs_the_address_of_the_state(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        submit([job, *NEEDED.get(job, [])])
    assert ended.value.code == 2
    assert "--database-url is needed" in capsys.readouterr().err


def test_local_paths_are_absolute_for_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("a/b") == f"{tmp_path}/a/b"
    assert absolute("s3a://b/a") == "s3a://b/a"


KERNEL = "from numba import njit\n@njit(cache=True)\ndef times(n):\n    return 2 * n\n"
CALLER = """
from numba import njit
from made.numbers import (
    THREE,
)
from made import kernels
times = kernels.times
@njit(cache=True)
def both(n):
    return times(n) + THREE
"""
RUN = "import sys; sys.path.insert(0, sys.argv[1]); from made.caller import both; " \
    "print(both(2), sum(both.stats.cache_hits.values()))"  # fmt: skip


def test_kernels_are_compiled_once_wherever_the_code_is_unpacked(tmp_path: Path) -> None:
    """Code in other folders and other zip files finds them; other code does not, nor what imports other code."""
    environment = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(executors.__file__).parent.parent),
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
        "NUMBA_CACHE_LOCATOR_CLASSES": "spark_jobs.kernel_cache.ByContent",
    }  # fmt: skip
    hits = []
    for number, (factor, three, text) in enumerate([(2, 3, ""), (2, 3, ""), (2, 3, "# other"), (5, 3, ""), (2, 4, "")]):
        path = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("made/__init__.py", "")
            archive.writestr("made/kernels.py", KERNEL.replace("2", str(factor)))
            archive.writestr("made/numbers.py", f"THREE = {three}\n")
            archive.writestr("made/caller.py", CALLER + text)
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found, hit = map(int, done.stdout.split())
        assert found == factor * 2 + three
        hits.append(hit)
    assert hits == [0, 1, 0, 0, 0]


def test_kernels_are_kept_where_something_of_this_users_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A shared folder is others', and one may be gone or full: kernels are compiled anew then, and jobs go on."""
    own = f"subsetd-kernels-{os.getuid()}"
    shared, temporary = tmp_path / "shared", tmp_path / "temporary"
    shared.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(shared))
    find = kernel_cache.cache_root.__wrapped__
    assert find() == shared / own
    (shared / own).rmdir()
    (shared / own).touch()
    assert find() == temporary / own
    (temporary / own).rmdir()
    (temporary / own).touch()
    alone = find()
    assert (alone.parent, alone.is_dir(), alone.name == own) == (temporary, True, False)


def test_workers_of_this_machine_are_reached_by_unix_sockets_where_a_path_is_short_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enabled, folder = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        longest = Path(short, "x" * (SOCKET_PATH_BYTES - session.SOCKET_NAME_BYTES - len(short) - 1))
        longest.mkdir()
        monkeypatch.setattr(session, "job_folder", lambda: longest)
        assert worker_sockets("local[2]") == {enabled: "true", folder: str(longest)}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(longest / f".{uuid.uuid4()}.sock"))
        assert worker_sockets("local-cluster[2,1,1024]") == worker_sockets("spark://h:1") == {}
        monkeypatch.setattr(session, "job_folder", lambda: Path(f"{longest}y"))
        assert worker_sockets("local[2]") == {}


PLANNED = {"plan": "[0, [], []]", "registry": ""}


@pytest.mark.parametrize(
    "first_task",
    [
        end_quietly_here,
        lambda: ChangesDataSource(PLANNED),
        lambda: TopicsDataSource(PLANNED),
        lambda: TopicsDataSource.reader(SimpleNamespace(options=PLANNED), None),  # type: ignore[arg-type]
    ],
    ids=["any", "stream", "topics", "topics planned"],
)
def test_a_worker_of_pysparks_own_daemon_says_nothing_of_a_java_that_does_not_listen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], first_task: Callable[[], object]
) -> None:
    """As those that plan a stream, or the reading of topics: Java closes them idle for a minute, and as it ends."""
    daemon = SimpleNamespace(__name__="__main__", __spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    first_task()
    for error, is_told in [(BrokenPipeError, False), (ConnectionResetError, False), (EOFError, False), (OSError, True)]:
        try:
            raise error
        except error:
            daemon.traceback.print_exc()
        assert (f"raise error\n{error.__name__}\n" in capsys.readouterr().err) == is_told


def test_whoever_runs_what_plans_a_stream_but_pysparks_own_daemon_is_left_as_it_is() -> None:
    names = dict(vars(sys.modules["__main__"]))
    end_quietly_here()
    assert vars(sys.modules["__main__"]) == names


def with_length(said: bytes) -> bytes:
    return struct.pack("!i", len(said)) + said


@pytest.mark.parametrize(
    ("module", "worker", "said"),
    [
        ("spark_jobs.worker_daemon", "pyspark.worker", b""),
        (
            "pyspark.daemon",
            "pyspark.sql.streaming.python_streaming_source_runner",
            with_length(f"{sys.version_info[0]}.{sys.version_info[1]}".encode())
            + with_length(b"/tmp")
            + struct.pack("!i", 0)
            + with_length(pickle.dumps(ChangesDataSource(PLANNED)))
            + with_length(b'{"type": "struct", "fields": []}')
            + struct.pack("!i", 1),
        ),
    ],
    ids=["tasks", "a reader of ours"],
)
def test_a_worker_that_java_no_longer_needs_ends_without_a_word(module: str, worker: str, said: bytes) -> None:
    """As at every job's end: Java has closed the socket, and what a worker would still write to it is refused."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as java:
        spark = {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": folder, "SPARK_REUSE_WORKER": "1",
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        }  # fmt: skip
        daemon = subprocess.Popen(
            [sys.executable, "-m", module, worker], env={**os.environ, **spark},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert daemon.stdout is not None
        (size,) = struct.unpack("!i", daemon.stdout.read(4))
        java.connect(daemon.stdout.read(size))
        (pid,) = struct.unpack("!i", java.recv(4))
        process = psutil.Process(pid)
        if said:
            java.sendall(said)
            assert java.recv(4) == struct.pack("!i", 0), "it has a reader"
        java.close()
        process.wait(BOUND_SECONDS)
        assert daemon.communicate(timeout=BOUND_SECONDS) == (b"", b"")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        *((kind, kind) for kind in (ConflictError, DamagedStateError, FeedAwayError, SourceError)),
        *((kind, StateError) for kind in (NoStateError, SketchError)),
    ],
)
def test_an_error_keeps_its_kind_on_the_way_through_spark(raised: type[SubsetdError], told: type[SubsetdError]) -> None:
    """By it a session knows whether the same may do in a moment."""
    with pytest.raises(RuntimeError) as through, telling_errors():
        raise raised("Of a task.")
    error = told_error(RuntimeError(f"Traceback ...\n{through.value}\n\tat org.apache.spark"))
    assert (type(error), str(error)) == (told, "Of a task.")


def test_an_error_that_is_not_called_one_is_told() -> None:
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "task.py", line 1, in run\n    read()\npsycopg2.errors.CrashShutdown: terminating connection\n\n'
        "\tat org.apache.spark.Worker.run(Worker.java:7)\n"
    )
    assert "changed: psycopg2.errors.CrashShutdown: terminating connection Run" in str(told_error(RuntimeError(text)))


def test_what_a_database_refuses_is_told_without_reading_all_of_it_again() -> None:
    with pytest.raises(RuntimeError) as through, telling_errors():
        raise SourceError("Of a task.")
    source: Any = SimpleNamespace(kind="postgres")
    spark: Any = None
    with pytest.raises(SourceError, match=r"^Of a task\.$"), telling(spark, source, []):
        raise PySparkException(f"Traceback ...\n{through.value}\n\tat org.apache.spark")
