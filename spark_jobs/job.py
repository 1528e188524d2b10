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


class Interrupt:
    """Let SIGTERM raise KeyboardInterrupt as SIGINT does, and either raise it again where it was lost.

    Python throws away what is raised in a callback of a weak reference or a finaliser, of which Py4J has many.
    """

    is_heard = False
    """Whether the job has ended, whatever by: there is nothing to be raised again."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Do so meanwhile, on the main thread; on others no signal comes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {signal.SIGTERM: self._raise, signal.SIGALRM: self._raise_again}
        if callable(signal.getsignal(signal.SIGINT)):  # which a shell has ignored by what runs in its background
            handlers[signal.SIGINT] = self._raise
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._hook, sys.unraisablehook = sys.unraisablehook, self._lose
        try:
            yield
        finally:
            sys.unraisablehook = self._hook
            self._later(0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _raise(self, *_: object) -> None:
        if is_compiling():
            self._later()
        else:
            raise KeyboardInterrupt

    def _raise_again(self, *_: object) -> None:
        if not self.is_heard:
            self._raise()

    def _lose(self, lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is KeyboardInterrupt:
            self._later()
        else:
            self._hook(lost)

    @staticmethod
    def _later(seconds: float = LOST_SECONDS) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def is_compiling() -> bool:
    """Tell whether Numba compiles on this thread: what is raised meanwhile may end the process (LLVM calls Python)."""
    lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return lock is not None and bool(lock.is_locked())


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
    interrupt = Interrupt()
    with interrupt.watching():
        return _run(given, name, job, tell, display or Quiet(), stopped, interrupt)


def _run(
    given: argparse.Namespace,
    name: str,
    job: Callable[[Callable[[], SparkSession]], Done],
    tell: Callable[[Done], int],
    display: Display,
    stopped: str,
    interrupt: Interrupt,
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
            interrupt.is_heard = True
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
