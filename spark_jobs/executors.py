"""Own what executors on other machines must have before a job begins: our code, the state's database, and the files.

A first small job looks on all executors that are there, so that what is missing is told at once, and by its name.
"""

from __future__ import annotations

import hashlib
import platform
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_jobs
from service.core.errors import SourceError, StateError
from service.store.database import connect, parse_address, place
from service.store.shard_servers import ShardServer, why_not_reached
from spark_jobs.hadoop_files import absolute
from spark_jobs.session import is_local
from spark_jobs.telling import told_error

TASKS_A_CORE = 2
"""Tasks of the first job for each core: so each executor gets one, as starting a Python takes longer than finding."""

SENT = "sent"
"""Stands for the code that the driver has sent along."""

NAMES = 20
"""Names in a folder that an executor must see, too, to have the same folder as the driver."""

OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] .*? version: ([\d.]*\d)")
"""PySpark itself finds that a task's Python is another, before ours is asked, and does not say where."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Tell where something runs, and with which versions: of Python, of PySpark, and of our code."""

    host: str
    python: str
    spark: str
    code: str

    @staticmethod
    def here() -> Machine:
        """Describe this process."""
        python = ".".join(platform.python_version_tuple()[:2])
        return Machine(socket.gethostname(), python, pyspark.__version__, code_digest())


@dataclass(frozen=True, slots=True)
class Look:
    """Look on an executor at what a job needs; picklable. `names` are some of what the driver sees in each path."""

    database_url: str | None
    names: Sequence[tuple[str, Sequence[str]]]
    servers: Sequence[ShardServer] = ()

    def __call__(self, _: Iterable[int]) -> Iterator[tuple[Machine, str | None, str | None, str | None]]:
        """Give where this is, and what is not to be reached from here: database, server of shards (why), a path."""
        fault = None
        if self.database_url is not None:
            try:
                with connect(self.database_url, "subsetd executor"):
                    pass
            except StateError as error:
                fault = str(error)
        missing = (path for path, inside in self.names if not all(Path(path, name).exists() for name in inside))
        away = filter(None, map(why_not_reached, self.servers))
        yield Machine.here(), fault, next(away, None), next(missing, None)


def require_executors(
    spark: SparkSession,
    database_url: str | None,
    locations: Sequence[str] = (),
    servers: Callable[[], Sequence[ShardServer]] = list,
) -> None:
    """Raise SourceError or StateError, with the way out, when executors cannot do what a job asks of them.

    `locations` are folders and files that tasks read or write; of addresses nothing is asked here. `servers` gives
    those of shards that the driver reaches: one that nobody reaches is away, which is another matter.
    """
    context = spark.sparkContext
    if is_local(str(context.master)):
        return
    paths = [path for path in map(absolute, locations) if path.startswith("/")]
    look = Look(database_url, [(path, names_in(path)) for path in paths], servers())
    count = TASKS_A_CORE * context.defaultParallelism
    here = Machine.here()
    try:
        found = context.parallelize(range(count), count).mapPartitions(look).collect()
    except (PySparkException, Py4JError) as error:
        if other := OTHER_PYTHON.search(str(error)):
            _require_same(here, replace(here, host="another machine", python=other[1]))
        raise told_error(error) from None
    for machine, fault, away, missing in found:
        _require_same(here, machine)
        if fault is not None:
            raise StateError(_unreachable(machine.host, fault, database_url or ""))
        if away is not None:
            raise StateError(
                f"The executor on {machine.host} does not reach a server of shards which the driver reaches: its "
                f"address must mean the same on all machines, and where it asks for a password the password file "
                f"(~/.pgpass, PGPASSFILE) must be there for executors, too. {away}"
            )
        if missing is not None:
            raise SourceError(
                f"{missing}: the executor on {machine.host} does not see it as the driver does. Tasks elsewhere read "
                "files by a path that is the same everywhere (a shared file system), or by an address (hdfs://..., "
                "s3a://...): put it there, or give --master local[*]."
            )


def names_in(path: str) -> list[str]:
    """Give some names of a folder; of a file, or of what is not there, the one that stands for itself."""
    folder = Path(path)
    return sorted(item.name for item in islice(folder.iterdir(), NAMES)) or ["."] if folder.is_dir() else [""]


def _require_same(here: Machine, there: Machine) -> None:
    for what, mine, theirs, way in (
        ("Python", here.python, there.python, "run the driver with the Python that the executors have"),
        ("PySpark", here.spark, there.spark, "install the PySpark of the cluster's version for the driver"),
        ("subsetd's code", here.code, there.code, "make the archive anew (make dist)"),
    ):
        if theirs not in (mine, SENT):
            raise SourceError(
                f"The driver has {what} {mine}, the executor on {there.host} has {theirs}: {way}, or name another "
                "archive by spark.archives. Nothing was changed."
            )


def _unreachable(host: str, fault: str, database_url: str) -> str:
    told = place(parse_address(database_url))
    way = (
        "it is a socket of the driver's machine, as that of the embedded Postgres is. Keep the state in a Postgres "
        "with an address: SUBSETD_DATABASE_URL=postgresql://user:password@host/database"
        if " socket " in told
        else "give an address that means the same on all machines, and let the server listen to them"
    )
    return f"The executor on {host} does not reach the state's {told}: {way}; or give --master local[*]. {fault}"


@cache
def code_digest() -> str:
    """Give a short digest of the packages that tasks run; SENT for those in a zip file."""
    root = Path(spark_jobs.__file__).parent.parent
    if not root.is_dir():
        return SENT
    digest = hashlib.sha256()
    for package in ("service", "spark_jobs"):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
