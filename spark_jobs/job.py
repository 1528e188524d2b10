"""Own how a Spark job runs as a process: its session, its interrupt, what it says and with which code it ends."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

from service.core.errors import SubsetdError
from spark_jobs.progress import Display, Quiet
from spark_jobs.session import session

Done = TypeVar("Done")


def run_job(
    given: argparse.Namespace,
    name: str,
    job: Callable[[Callable[[], SparkSession]], Done],
    tell: Callable[[Done], int],
    display: Display | None = None,
    stopped: str = "stopped",
) -> int:
    """Run a job that starts Spark by the function it is given, and `tell` what it did; returns the exit code.

    An error that a person can mend is one message on standard error, and its exit code; an interrupt is told as
    `stopped`.
    """
    # Py4J logs a stack trace of an interrupt to a root logger that nobody has set up; the error itself is told below.
    logging.getLogger().addHandler(logging.NullHandler())
    display = display or Quiet()
    started: list[SparkSession] = []

    def start() -> SparkSession:
        started.append(session(given.master, f"subsetd {name}", given.driver_memory, given.spark_log))
        return started[0]

    try:
        try:
            done = job(start)
        finally:
            display.close()
    except SubsetdError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    finally:
        for spark in started:
            spark.stop()
    return tell(done)
