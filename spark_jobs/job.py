"""Own how a Spark job runs as a process: its session, its interrupt, what it says and with which code it ends."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from service.core.errors import SubsetdError, first_line
from service.store.shard_servers import servers_reached
from spark_jobs.executors import require_executors
from spark_jobs.java_runtime import said_by_java
from spark_jobs.progress import Display, Quiet
from spark_jobs.session import java_has_ended, session

Done = TypeVar("Done")

LOST_SECONDS = 0.01
"""When an interrupt comes again that a callback has lost."""


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as SIGINT does, and either raise it again where it came in a callback.

    Python throws away what is raised in a callback of a weak reference or a finaliser, of which Py4J has many.
    """

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    def end_later(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, LOST_SECONDS)
        else:
            hook(lost)

    hook = sys.unraisablehook
    if threading.current_thread() is not threading.main_thread():  # no signal comes here
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    sys.unraisablehook = end_later
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def run_job(
    given: argparse.Namespace,
    name: str,
    job: Callable[[Callable[[], SparkSession]], Done],
    tell: Callable[[Done], int],
    display: Display | None = None,
    stopped: str = "stopped",
) -> int:
    """Run a job that starts Spark by the function it is given, and `tell` what it did; returns the exit code.

    An error that a person can mend is one message on standard error, and its exit code; an interrupt, by SIGINT or
    SIGTERM, is told as `stopped`.
    """
    gc.freeze()  # what is loaded is kept, and is not looked through for garbage
    with interrupted_by_signals():
        return _run(given, name, job, tell, display or Quiet(), stopped)


def _run(
    given: argparse.Namespace,
    name: str,
    job: Callable[[Callable[[], SparkSession]], Done],
    tell: Callable[[Done], int],
    display: Display,
    stopped: str,
) -> int:
    # Py4J logs a stack trace of an interrupt to a root logger that nobody has set up; the error itself is told below.
    logging.getLogger().addHandler(logging.NullHandler())
    started: list[SparkSession] = []

    def start() -> SparkSession:
        started.append(session(given.master, f"subsetd {name}", given.driver_memory, given.spark_log))
        source = getattr(given, "source", None)
        url, locations = given.database_url, [] if source is None else [source]
        require_executors(started[0], url, locations, partial(servers_reached, url) if url else list)
        return started[0]

    try:
        try:
            done = job(start)
        finally:
            display.close()
    except SubsetdError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        print(str(error) or stopped, file=sys.stderr)
        return 130
    except (Py4JError, OSError, EOFError) as error:
        if not java_has_ended():
            raise
        started.clear()
        said = said_by_java(error) if isinstance(error, Py4JError) else first_line(error)
        print(
            f"error: Spark's Java ended ({said}): what is committed stays. Run it again, with --spark-log warn to see "
            "what Spark says; where its memory was too small, with more of --driver-memory.",
            file=sys.stderr,
        )
        return 1
    finally:
        for spark in started:
            with suppress(Py4JError):  # Java may have ended meanwhile
                spark.stop()
    return tell(done)
