"""Own what the driver lets executors do for it, and how it tells what befalls a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from service.core.errors import SourceError
from spark_jobs.sources import Source, Split
from spark_jobs.telling import Telling, told_error

FAULTS_TOLD = 20


def run_parallel(spark: SparkSession) -> Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]:
    """Give what applies a picklable function to items on executors, as `sources.ParallelMap` says."""

    def run(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if not items:
            return []
        slices = min(len(items), 4 * spark.sparkContext.defaultParallelism)
        with telling_job():
            return spark.sparkContext.parallelize(items, slices).map(Telling(function)).collect()

    return run


@contextmanager
def telling_job() -> Iterator[None]:
    """Turn what befalls a job into an error of ours."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise told_error(error) from None


@contextmanager
def telling(spark: SparkSession, source: Source, splits: Sequence[Split]) -> Iterator[None]:
    """Turn what befalls a job into the errors that a user can mend."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        told = told_error(error)
        # What a database refuses it has told by its name; to read all of that once more may take hours.
        if isinstance(told, SourceError) and source.kind != "postgres":
            told = _all_faults(spark, source, splits) or told
        raise told from None


def _all_faults(spark: SparkSession, source: Source, splits: Sequence[Split]) -> SourceError | None:
    """Read everything once more, only to find the first fault of each file."""
    run, reader = run_parallel(spark), source.reader()
    found = [fault for fault in run(reader.check, splits) if fault]
    first = sorted({fault.place: fault for fault in sorted(found, reverse=True)}.values())
    messages = run(reader.told, first[:FAULTS_TOLD])
    if len(first) > FAULTS_TOLD:
        messages.append(f"... and {len(first) - FAULTS_TOLD} more files.")
    return SourceError("\n".join(messages)) if messages else None
