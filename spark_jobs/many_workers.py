"""Own where the tasks of a refresh run: in the driver's own process while they are few, or else on Spark.

Spark takes seconds to start, and its Python workers begin with cold imports: small changes are done in less. What is
started stays for what comes after.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_jobs.corpus_index import Manifest, PartColumns
from spark_jobs.corpus_sources import OPENING_BYTES, ReadingPlan, ReadResult, ReadTask
from spark_jobs.executors import require_executors
from spark_jobs.many_discovery import Search
from spark_jobs.many_tasks import Found, OneProcessTask
from spark_jobs.parallel import telling_job
from spark_jobs.progress import Display, watching
from spark_jobs.session import task_threads
from spark_jobs.telling import Telling

DRIVER_BYTES = 128 << 20
"""Reading so much, as `reading_cost` counts it, takes the driver about as long as starting Spark takes."""

KNOWN_SHARE = 8
"""So many bytes of lines that are known, or of parts that are only copied, take as long as one that is parsed."""

DRIVER_CELLS = 10_000_000
"""Distinct values of all columns that the driver compares itself; after changes it holds only those that matter."""

START = "starting Spark"


class Workers:
    """Run tasks here or on Spark, and keep the seconds of each stage.

    `spark` is a session that runs, which then does everything, or what starts one when it is needed. `cores` is how
    many threads the driver may use, `locations` what tasks read and write.
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        display: Display,
        seconds: dict[str, float],
        cores: int | None = None,
        locations: Sequence[str] = (),
    ) -> None:
        self._start = spark if callable(spark) else None
        self._spark = None if callable(spark) else spark
        self._locations = locations
        if self._spark is not None:
            require_executors(self._spark, None, locations)
        self._display = display
        self._seconds = seconds
        self._cores = cores or os.cpu_count() or 1

    @property
    def is_running(self) -> bool:
        """Say whether Spark runs."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """Give the session, which is started when it does not run."""
        if self._spark is None:
            assert self._start is not None
            began = time.monotonic()
            self._display.begin(START)
            started = self._start()
            require_executors(started, None, self._locations)
            self._spark = started
            self._seconds[START] = time.monotonic() - began
        return self._spark

    @property
    def cores(self) -> int:
        """Count the tasks that run at once."""
        return self._cores if self._spark is None else self._spark.sparkContext.defaultParallelism

    def read(self, plan: ReadingPlan, task: ReadTask) -> list[ReadResult]:
        """Read what a plan says."""
        if not plan.tasks:
            return []
        count = len(plan.tasks)
        if not self.is_running and reading_cost(plan) <= DRIVER_BYTES:
            results = []
            with self.stage("reading", count), ThreadPoolExecutor(self._cores, "subsetd-reading") as pool:
                for result in pool.map(task, plan.tasks):
                    results.append(result)
                    self._display.update(len(results))
            return results
        spark = self.spark
        with telling_job(), self.watching([("reading", count)]):
            return spark.sparkContext.parallelize(plan.tasks, count).map(Telling(task)).collect()

    def find(self, task: OneProcessTask, search: Search, stage: str) -> Found:
        """Find and store the INDs of a search in one process."""
        if not self.is_running and (search.changed is not None or search.cells <= DRIVER_CELLS):
            with self.stage(stage):
                return task(search, self._cores)
        context = self.spark.sparkContext
        self._display.begin(stage)
        told = context.broadcast(search)
        threads = task_threads(context)
        began = time.monotonic()
        with telling_job():
            (found,) = context.parallelize([0], 1).map(Telling(lambda _: task(told.value, threads))).collect()
        self._seconds[stage] = time.monotonic() - began
        return found

    @contextmanager
    def watching(self, stages: list[tuple[str, int]]) -> Iterator[None]:
        """Show and time the stages of the Spark job that runs inside."""
        with watching(self.spark.sparkContext, self._display, stages, str) as seconds:
            yield
        self._seconds.update(seconds)

    @contextmanager
    def stage(self, stage: str, total: int | None = None) -> Iterator[None]:
        """Show and time a stage that is done here."""
        self._display.begin(stage, total)
        began = time.monotonic()
        yield
        self._seconds[stage] = time.monotonic() - began


def reading_cost(plan: ReadingPlan) -> int:
    """Estimate what reading takes, in bytes that are parsed; most lines of a file that was read before are known."""
    sizes = plan.read["size"].to_numpy()
    cost = len(sizes) * OPENING_BYTES + int(sizes.sum())
    if plan.previous is not None:
        known = pc.is_in(plan.read["path"], _files_of_lines(plan.previous))
        cost -= int(sizes[known.to_numpy()].sum()) * (KNOWN_SHARE - 1) // KNOWN_SHARE
        bytes_of = {part.name: part.size for part in plan.previous.parts}
        copied = [piece.detail for task in plan.tasks for piece in task if isinstance(piece.detail, PartColumns)]
        cost += sum(bytes_of[part.part] for part in copied) // KNOWN_SHARE
    return cost


def _files_of_lines(manifest: Manifest) -> pa.Array:
    """Name the files of JSON lines of a generation."""
    return pc.unique(manifest.tables["file"].filter(manifest.tables["line"].is_valid()))


def local_cores(master: str) -> int | None:
    """Give the cores that a local master names; None where it names none, or the tasks run elsewhere."""
    named = re.fullmatch(r"local\[(\d+).*", master)
    return int(named[1]) if named else 1 if master == "local" else None
