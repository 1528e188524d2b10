"""Own the row `recovery`: from the start of a killed consumer's successor to its first applied batch."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.feeds import write_feed
from benchmarks.results_file import Result
from benchmarks.state import Server, environment, one, server, tpch_state

SEED = 12
TIMES = 5
TUPLES = 100_000
PATIENCE = 300


def run(context: Context) -> list[Result]:
    """Kill a consumer in mid-feed again and again, and time its successors on TPC-H's state."""
    folder = tpch.tables(context.work, context.scale_factor)
    changes = tpch.lineitem_changes(folder, context.scaled(TUPLES), context)["insert"]
    columns = {"lineitem": tpch.lineitem_columns(folder)}
    feed = write_feed(context.work / "recovery.jsonl", changes, tpch.NAME, columns)
    with server(context) as postgres, postgres.clone(tpch_state(context, postgres), "recovery") as url:
        taken = [
            _seconds_to_first_batch(postgres, environment(url), feed, context.logs / "recovery.log")
            for _ in range(TIMES)
        ]
    return [
        Result("median from start to the first applied batch", median(taken), "s", goal="value <= 10"),
        Result("longest", max(taken), "s", goal="value <= 10"),
    ]


def _seconds_to_first_batch(postgres: Server, settings: dict[str, str], feed: Path, log: Path) -> float:
    """Start a consumer, wait for its first batch, kill it, and give the seconds that it took."""
    version = _version(postgres)
    started = time.perf_counter()
    with log.open("w") as lines:
        process = subprocess.Popen(
            # Small batches, so that the feed outlasts all consumers.
            [subsetd(), "consume", "--feed", f"file:{feed}"],
            stdout=lines,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings, "SUBSETD_BATCH_RECORDS": "1000"},
        )
    try:
        _wait(lambda: _version(postgres) > version, process, log)
        return time.perf_counter() - started
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the consumer applies nothing:\n{log.read_text()[-2000:]}")
        time.sleep(0.005)


def _version(postgres: Server) -> int:
    with postgres.connection("recovery") as connection, connection.cursor() as cursor:
        cursor.execute("select max(version) from state_version")
        return int(str(one(cursor)))
