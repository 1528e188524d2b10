"""Be Spark's Python daemon, and kill the executor that it works for: in each stage once as a task begins and ends.

A task ends here when all that it gives and writes is written, and the executor has not told of it yet. In the folder
SUBSETD_KILLS is a file for each kill, named by application and stage, so that each happens once; executors find this
module by PYTHONPATH.

Where SUBSETD_KILL_AT says `lag`, nothing is killed: each stage's first task has done all, and does not end before
another attempt of it, which Spark starts for what lags, has done all, too. Each attempt that has leaves a file. Once in
each application the second of both waits for a third executor to go, which has nothing to do by then.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext, daemon, worker

LAG_SECONDS = 300
IDLE_SECONDS = 20
"""Many times what an executor may be idle for."""

EXECUTORS = {
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
}


@cache
def executor() -> psutil.Process:
    """Give the executor's Java, which this worker's daemon is a child of."""
    java = psutil.Process(os.getppid()).parent()
    assert java is not None
    assert EXECUTORS & {*java.cmdline()}
    return java


def stage() -> str:
    """Name the stage at work: a job may be several applications, each of which counts its stages from 0."""
    context = TaskContext.get()
    assert context is not None
    return f"{application()}-{context.stageId():03}"


@cache
def application() -> str:
    """Name the application that the executor works for."""
    command = executor().cmdline()
    return command[command.index("--app-id") + 1]


def kill_once(point: str) -> None:
    """Kill the executor's Java, at the first task of a stage that comes to a point."""
    if point not in os.environ["SUBSETD_KILL_AT"].split("+"):
        return
    try:
        (Path(os.environ["SUBSETD_KILLS"]) / f"{stage()}-{point}").touch(exist_ok=False)
    except FileExistsError:
        return
    executor().send_signal(signal.SIGKILL)
    os._exit(1)


def lag() -> None:
    """Let a stage's first task wait for another attempt of itself, whichever of both is the first to have done all."""
    context = TaskContext.get()
    assert context is not None
    if os.environ["SUBSETD_KILL_AT"] != "lag" or context.partitionId() != 0:
        return
    done, attempts = Path(os.environ["SUBSETD_KILLS"]), f"{stage()}-attempt-"
    gone = done.parent / f"{application()}-gone"
    if list(done.glob(f"{attempts}*")) and not gone.exists():  # the other ends as soon as this one says that it is done
        seen, deadline = others(), time.monotonic() + IDLE_SECONDS
        while all(one.is_running() for one in seen) and time.monotonic() < deadline:
            time.sleep(0.05)
        gone.touch()
    (done / f"{attempts}{context.attemptNumber()}").touch()
    deadline = time.monotonic() + LAG_SECONDS
    while len(list(done.glob(f"{attempts}*"))) == 1:
        if time.monotonic() > deadline:
            raise TimeoutError("Spark has started no second attempt")
        time.sleep(0.05)


def others() -> list[psutil.Process]:
    """Give the other executors of this application."""
    found = []
    for one in psutil.process_iter(["name", "cmdline"]):
        told = one.info["cmdline"] or []
        if one.info["name"] == "java" and EXECUTORS & {*told} and application() in told and one != executor():
            found.append(one)
    return found


def killing(read: Any) -> Any:
    """Wrap what reads a task's function, so that the function kills."""

    def reading(*given: Any) -> Any:
        function, *rest = read(*given)
        if len(rest) != 3:  # it is a function inside of another, which is read by itself
            return function, *rest

        def killed(number: int, items: Any) -> Iterator[Any]:
            kill_once("begin")
            yield from function(number, items)
            kill_once("end")
            lag()

        return killed, *rest

    return reading


worker.read_command = killing(worker.read_command)
worker.read_udfs = killing(worker.read_udfs)

if __name__ == "__main__":
    daemon.manager()
